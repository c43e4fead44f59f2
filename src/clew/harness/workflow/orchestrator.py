"""The orchestrator: an agent whose model plans, while other models work (specs/E166 section 4, after arXiv 2606.21228).

``clew run orchestrator`` and ``clew serve --agent orchestrator`` play it. Who sees whose work is decided by what is put
into each worker's conversation (``crew``), never by asking a model to ignore text. What a worker says is data: it is
never read as a plan, nor as a call of a tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clew.core.errors import BadInput, ModelError
from clew.core.values import StopReason
from clew.harness.run.drive import innermost
from clew.harness.run.live import Conversation, LiveRun
from clew.harness.run.pending import Stop
from clew.harness.workflow.clearance import Team, Words
from clew.harness.workflow.crew import (
    TITLE,
    Crew,
    Question,
    Result,
    Work,
    classes_of,
    remembered,
    shown,
    withheld,
    work,
)
from clew.harness.workflow.plan_grammar import plan_grammar
from clew.harness.workflow.subsets import some
from clew.harness.workflow.workplan import SHAPE, Part, parse, written

OVER = "finished"
SELF = -1  # in place of a worker: the leading model, which plans anew
LIMITS = (StopReason.STEP_LIMIT, StopReason.TOKEN_LIMIT, StopReason.TIME_LIMIT, StopReason.COST_LIMIT)
EXAMPLE = [Part(0, "List the rivers that the text names."), Part(1, "Check the list against the text.", (0,))]
LEAD = """You lead other models and do not answer yourself. The workers, by number:
{workers}
For the question that follows write a plan of 1 to {most} parts: who works, at what, and which earlier results each
sees. Parts that do not see each other are worked on side by side. The result of the last part is the answer. An
example, of another question:
{example}
"""
ITSELF = "you yourself: after the part before, you see its result and this plan, and write another plan or end the work"
AGAIN = f"You see the results above as data. Write another plan that goes on from them, or the one word {OVER}."


@dataclass
class Lead:
    """Who writes plans: its conversation, the classes of all it was shown, and the workers that its plans may name.

    itself: whether a plan may name the leading model, by the number after the workers'. most: parts of a plan.
    strict: there is no second try. grammar: its replies are held to the language of plans.
    """

    chat: Conversation
    holds: frozenset[str]
    open: list[int]
    itself: bool
    most: int
    strict: bool = False
    grammar: bool = False


async def orchestrator(
    run: LiveRun,
    workers: Sequence[str | Mapping[str, object]] | Mapping[str, str | Mapping[str, object]] = (),
    parts: int = 5,
    plans: int = 1,
    asks: int = 50,
    turns: int = 20,
    depth: int = 0,
    policy: Mapping[str, object] | None = None,
    lead: Mapping[str, object] | None = None,
    strict: bool = False,
    grammar: bool = False,
    subset: bool = False,
) -> str:
    """Plans with the run's model, lets the workers work, and returns the result of the last part.

    A reply that is no plan is refused once with the reason; after a second one, the first worker answers alone.

    Args:
        workers: references of models, or name -> reference; the plan names them by number. In place of a reference, an
            object with ``ref`` and the labels of a router's worker (region, retention_days, price_in, clearance, ...).
        parts: that a plan may have.
        plans: that may follow each other; a later one is written in sight of the results of those before.
        asks: of workers in all. Where they are used up, the best result so far is returned, and a note says so.
        turns: of a worker that calls tools, in one part.
        depth: 1 lets a plan name the leading model itself, which then goes on from what was found.
        policy: who may be asked and shown what, as a router reads it. The task's own (``data["policy"]``) narrows it.
        lead: labels of the run's model, which is held to the policy too.
        strict: a reply that is no plan ends the run with an empty answer, as is right while plans are trained.
        grammar: hold the replies of the leading model to the language of plans, where it can be held.
        subset: offer some of the workers alone, drawn anew for each task and the same in all runs of its group.

    Raises:
        BadInput: there are no workers, or an argument is wrong. Refused: the policy allows nobody. ModelError: no
        worker answered.
    """
    if depth not in (0, 1):
        raise BadInput(f"a depth of {depth!r:.20}", remedy="Use 0, or 1 where a plan may name the leading model.")
    team = Team.read(workers, lead, policy).under(run.task.data.get("policy"))
    if subset:  # after the policy was read, which may name workers that are not drawn
        drawn = some({post.labels.name: post for post in team.posts}, await run.draw("workers", shared=True))
        team = replace(team, posts=tuple(post for post in team.posts if post.labels.name in drawn))
    asked = question(run, team)
    crew = Crew(team, asks, turns, list(asked.tools))
    if not team.open(asked.text.classes)[0]:
        raise team.nobody()
    try:
        await _led(run, crew, asked, _leads(run, crew, asked, parts, depth == 1, strict=strict, grammar=grammar), plans)
        answer = crew.best[1]
        if not answer.text and crew.failed is not None:
            raise crew.failed
        if crew.short:
            bounds = {"asks": asks, "max_cost": team.policy.max_cost}
            run.note("limit", **{name: bounds[name] for name in sorted(crew.short)})
        run.note("answer", text=answer.text, **classes_of(answer.classes))
        await _acts(run, answer.text)
    except Stop as stop:
        if stop.reason not in LIMITS:  # those end the run, and its last Call names them
            raise
    return crew.best[1].text


async def _acts(run: LiveRun, answer: str) -> None:
    """Give the answer to a world that waits for one and has no tools."""
    if run.view.text and not run.done and not run.tools:
        await run.act(answer)


def question(run: LiveRun, team: Team) -> Question:
    """The question of a run's task: its last user message, where it has messages, else its prompt."""
    said = list[tuple[str, Words]]()
    for one in run.task.data.get("messages", ()):
        text, role = str(one.get("content", one.get("text", ""))), str(one.get("role", "user"))
        text = f"{one.get('called', 'a tool')} gave: {text}" if role == "tool" else text
        said.append((role, Words(text, team.of(one))))
    last = max((i for i, (role, _) in enumerate(said) if role == "user"), default=None)
    if last is None:
        return Question((), Words(run.task.prompt or run.view.text))
    before = [(role, words) for role, words in said[:last] if role in ("system", "user", "assistant") and words.text]
    tools = [words for role, words in said[:last] if role == "tool"]
    return Question(tuple(before), said[last][1], tuple(tools))


async def _led(
    run: LiveRun,
    crew: Crew,
    asked: Question,
    lead: Lead | None,
    plans: int,
    place: str = "",
    order: tuple[int, ...] = (),
    found: Result | None = None,
) -> Result:
    """Plans one after another, each performed; gives the last result, and what all tools gave.

    ``found``: the result that the leading model goes on from, where a plan named it.
    """
    told, answer = list[Words](), found or Result()
    for number in range(plans):
        where, begins = f"{place}w{number}", not number and not answer.said.text
        plan = await _plan(run, crew, lead, where, not begins) if lead is not None else None
        holds = lead.holds if lead is not None else frozenset[str]()
        if plan is None:
            open_to = crew.team.open(asked.text.classes)[0]
            if not begins or not open_to or (lead is not None and lead.strict):
                break
            run.note("no plan: the first worker answers alone")
            plan, holds = (Part(open_to[0], asked.text.text),), frozenset()
        results = await perform(run, crew, asked, plan, lead, holds, where, (*order, number))
        told += [line for result in results for line in result.told]
        answer = next((one for one in reversed(results) if one.said.text), answer)
        if not place:
            crew.told += [line for result in results for line in result.told]
        if lead is not None and number + 1 < plans:
            lead = _shows(run, crew, lead, where, plan, dict(enumerate(results)))
    return Result(answer.said, tuple(told))


async def perform(
    run: LiveRun,
    crew: Crew,
    asked: Question,
    plan: Sequence[Part],
    lead: Lead | None,
    holds: frozenset[str],
    where: str,
    order: tuple[int, ...],
) -> list[Result]:
    """Work on the parts of a plan, each as soon as what it reads is there; gives their results in the plan's order.

    What tools gave is told in later plans: the parts of one plan see each other by the access list alone.
    """
    tasks = list[asyncio.Task[Result]]()
    names = [crew.team.lead.name if one.worker == SELF else crew.team.posts[one.worker].name for one in plan]
    listed = [
        {"worker": name, "subtask": one.subtask[:TITLE], "reads": list(one.reads)}
        for name, one in zip(names, plan, strict=True)
    ]
    run.note("plan", at=where, parts=listed)

    async def part(at: int) -> Result:
        results, place, here = [Result()] * len(plan), f"{where}s{at}", (*order, at)
        for j in plan[at].reads:
            results[j] = await tasks[j]
        task = Work(asked, plan, at, results, holds, place)
        result = await (_again(run, crew, task, lead, here) if plan[at].worker == SELF else work(run, crew, task))
        crew.keep(here, result.said)
        return result

    try:
        async with asyncio.TaskGroup() as group:
            for at in range(len(plan)):
                tasks.append(group.create_task(part(at)))
    except BaseExceptionGroup as several:
        raise innermost(several) from None
    return [task.result() for task in tasks]


async def _again(run: LiveRun, crew: Crew, task: Work, lead: Lead | None, order: tuple[int, ...]) -> Result:
    """The part of a plan that names the leading model: it sees the plan and what the part reads, and goes on with one
    plan of its own, which the same bounds hold for, or ends the work."""
    assert lead is not None
    part, told = task.plan[task.at], task.asked.text
    own = Words(f"{told.text}\n\nYour part of the work: {part.subtask}", told.classes | task.holds)
    asked = task.asked._replace(text=own)
    found = next((task.results[j] for j in reversed(part.reads) if task.results[j].said.text), Result())
    inner = _leads(run, crew, asked, lead.most, False, task.place, lead.strict, lead.grammar)
    if inner is not None and part.reads:
        inner.chat.say("user", f"Your plan so far:\n{_named(inner, task.plan)}")
        reads = {j: task.results[j] for j in part.reads}
        inner = _shows(run, crew, inner, task.place, task.plan, reads)
    result = await _led(run, crew, asked, inner, 1, task.place, order, found._replace(told=()))
    run.note("part", at=task.place, worker=crew.team.lead.name, asks=[], **classes_of(result.said.classes))
    return result


def _named(lead: Lead, plan: Sequence[Part]) -> str:
    """A plan by the numbers that its author knows; who may not be named any more stands under that after the last."""
    numbers = {at: number for number, at in enumerate(lead.open)} | {SELF: len(lead.open)}
    return written([one._replace(worker=numbers.get(one.worker, SELF)) for one in plan])


def _leads(
    run: LiveRun,
    crew: Crew,
    asked: Question,
    most: int,
    itself: bool,
    place: str = "",
    strict: bool = False,
    grammar: bool = False,
) -> Lead | None:
    """The conversation in which plans are written; None where the policy does not let its model be asked."""
    team, every = crew.team, [*(words for _, words in asked.before), *crew.told, asked.text]
    why, hidden = team.judged(team.lead, [words.classes for words in every])
    seen = [words for at, words in enumerate(every) if at not in hidden]
    holds = team.made(team.lead, frozenset().union(*(words.classes for words in seen)))
    open_to, refused = team.open(holds)
    if refused:
        run.note("refused", part=place, workers=refused)
    if why or not open_to:
        run.note(
            "not asked", part=place, worker=team.lead.name, why=why or "no worker is cleared for what it was shown"
        )
        return None
    withheld(run, place, team.lead.name, [every[at] for at in hidden])
    chat = run.chat(instructions([team.posts[at].name for at in open_to], most, itself))
    for at, (role, words) in enumerate(asked.before):
        if role != "system" and at not in hidden:
            chat.say(role, words.text)
    told = [words for at, words in enumerate(crew.told, len(asked.before)) if at not in hidden]
    chat.say("user", remembered(told) + asked.text.text)
    return Lead(chat, holds, open_to, itself, most, strict, grammar)


def instructions(names: Sequence[str], most: int, itself: bool = False) -> str:
    """What the leading model is told first: its workers by number, and how plans are written."""
    example = written([part._replace(worker=min(part.worker, len(names) - 1)) for part in EXAMPLE])
    return LEAD.format(workers=_numbered(names, itself), most=most, example=example) + SHAPE


def _numbered(names: Sequence[str], itself: bool) -> str:
    return "\n".join(f"{number}: {name}" for number, name in enumerate([*names, ITSELF] if itself else names))


def _shows(
    run: LiveRun, crew: Crew, lead: Lead, place: str, plan: Sequence[Part], results: Mapping[int, Result]
) -> Lead | None:
    """Show the leading model results, as far as it is cleared for them; None where it may not go on, or nobody could
    work on what it writes then."""
    team, which = crew.team, list(results)
    why, hidden = team.judged(team.lead, [*(results[j].said.classes for j in which), frozenset()])
    seen = {j: results[j] for at, j in enumerate(which) if at not in hidden}
    holds = lead.holds.union(*(one.said.classes for one in seen.values()))
    open_to, refused = team.open(holds)
    if why or not open_to:
        run.note(
            "not asked", part=place, worker=team.lead.name, why=why or "no worker is cleared for what it would see"
        )
        return None
    withheld(run, place, team.lead.name, [results[which[at]].said for at in hidden])
    changed = ""
    if open_to != lead.open:
        run.note("refused", part=place, workers=refused)
        names = _numbered([team.posts[at].name for at in open_to], lead.itself)
        changed = f"The workers are now, by number:\n{names}\n\n"
    lead.chat.say("user", f"{shown(plan, seen)}\n\n{changed}{AGAIN}")
    return replace(lead, holds=holds, open=open_to)


async def _plan(run: LiveRun, crew: Crew, lead: Lead, place: str, may_end: bool) -> tuple[Part, ...] | None:
    """The next plan; None where the leading model wrote none in all its tries, fails, or ends the work."""
    held = dict[str, str]()
    if lead.grammar:
        held = {"grammar": plan_grammar(len(lead.open) + lead.itself, lead.most, OVER if may_end else "")}
    for _ in range(1 if lead.strict else 2):
        try:
            if why := crew.spend(run, crew.team.lead, lead.chat, works=False):
                run.note("not asked", part=place, worker=crew.team.lead.name, why=why)
                return None
            reply = await lead.chat.ask(**held)
        except ModelError as error:
            crew.failed = error
            run.note("no plan", why=str(error)[:TITLE])
            return None
        if may_end and reply.text.strip().strip(".").lower() == OVER:
            return None
        try:
            plan = parse(reply.text, len(lead.open) + lead.itself, lead.most)
        except BadInput as error:
            run.note("no plan", why=error.message)
            lead.chat.say("user", f"That is no plan: {error.message}. {error.remedy}")
        else:
            return tuple(_placed(lead, part, at) for at, part in enumerate(plan))
    return None


def _placed(lead: Lead, part: Part, at: int) -> Part:
    """A part with its worker's place in the team. The leading model itself sees the part before, too."""
    if part.worker < len(lead.open):
        return part._replace(worker=lead.open[part.worker])
    return Part(SELF, part.subtask, tuple(sorted({*part.reads, *([at - 1] if at else [])})))

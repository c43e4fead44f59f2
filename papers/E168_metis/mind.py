"""A memory that learns over a stream of errands, by rules: what is recalled and selected, counted, promoted, checked.

The loop of specs/E168 section 4, with section 8's improvements as choices. ``stream`` plays tasks with it. What it
gives the player are lines of advice and tools; what it learns comes from ``reflect`` and ``codify``. It never looks at
what the judge knows, except through the reflector after a wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from clew.core.keys import derive
from clew.core.values import Task
from clew.harness.memory.ranking import words
from clew.methods.memory.craft import demoted
from clew.methods.memory.craft.query_shapes import plain, shapes
from clew.methods.memory.craft.thresholds import PRIOR, Fixed, Need, Recurrence, SkiRental, measured
from clew.methods.memory.lessons.spent import Cost, Spent
from clew.worlds.apps import Apps
from papers.E168_metis.codify import API, BUGS, Draft, compiled, pattern, trajectory
from papers.E168_metis.errands import Played, trial, words_cost
from papers.E168_metis.player import Errand, Outcome, Tool, explore
from papers.E168_metis.reading import Asked, read
from papers.E168_metis.reflect import Lesson, reflect, topic_of
from papers.E168_metis.shelf import Found, Shelf

TAU_TEXT, TAU_TOOL = 0.45, 0.50  # similarity from which a plan, a tool is selected: specs/E168 4.2, the pilot's values
K_FACTS, K_PLANS, K_TOOLS = 13, 3, 5  # facts and pitfalls (8 + 5), plans, tools that are recalled
MOST = 20  # uses after which a tool that was taken back may be built again at the latest
KEPT = 6  # queries that stand with a plan or a tool
REPLAYS = 3  # verified runs that a tool is checked on
GUESS = 300  # tokens of a tool's source, before one is known
NEVER = math.inf


class Way(NamedTuple):
    """A condition.

    text: whether lines of text are learnt and given. codifier: none, ``pattern``, ``trajectory``, or ``compiled``: as
    pattern, with what was known when it was built frozen in and errors taken for empty pages. theta: selections of a
    plan after which it is built; 0 at once, infinite never. ski: by ski rental in place of theta. distinct: only
    queries of different shape count (with ``ski``: two are needed). check: ``static`` (it compiles and gives an
    answer), ``replay`` (the end states of verified runs come out), ``shadow`` (as static, then the end states of the
    next ``shadows`` tasks come out). demote: by success. invalidate: where a line that was compiled in is no longer
    held. late: tasks by which learning lags. bug: chance that a pattern tool is built with a flaw from one query,
    falling as 1 / queries. price: what building costs, in multiples. prior: the share of a text run's tokens that a
    tool saves, for ski rental to reckon with; learnt: it is one tool among those that were used, else what all runs
    with and without a tool took counts alone as soon as there is one with a tool.
    """

    text: bool = True
    codifier: str = ""
    theta: float = NEVER
    ski: bool = False
    distinct: bool = False
    check: str = "static"
    demote: bool = False
    invalidate: bool = False
    late: int = 0
    bug: float = 0.0
    price: float = 1.0
    shadows: int = 3
    prior: float = PRIOR
    learnt: bool = True


@dataclass
class Made:
    """A tool. state: shadow, active or retired. none: calls that gave None."""

    name: str
    plan: Plan
    draft: Draft
    call: Tool
    queries: list[str]
    state: str = "active"
    item: str = ""
    ended: list[bool] = field(default_factory=list)  # whether tasks that it answered were right
    tokens: list[int] = field(default_factory=list)  # the executor's, in tasks that it answered
    none: int = 0
    shadowed: int = 0
    bug: str = ""
    why: str = ""

    @property
    def used(self) -> int:
        return len(self.ended) + self.none


@dataclass
class Plan:
    """A plan, with its ledger. again: count from which the next attempt is made.

    ended: whether tasks that were played by it as text were right. verified: tasks with the end states that were right.
    """

    item: str
    asked: Asked
    text: str
    queries: list[str]
    ledger: list[str] = field(default_factory=list)
    source: Played | None = None
    tool: Made | None = None
    again: float = 0.0
    ended: list[bool] = field(default_factory=list)
    by_text: list[int] = field(default_factory=list)  # the executor's tokens, in tasks that were played by it as text
    verified: list[tuple[Task, bytes]] = field(default_factory=list)
    uses: int = 0  # tasks in which it was selected, its tool's included
    before: int = 0  # of these, those before it had a tool
    tokens: int = 0  # the executor's, in all tasks of its kind since it is there


class Used(NamedTuple):
    """What was selected for the task that is being played."""

    asked: Asked | None = None
    plan: Plan | None = None
    tools: tuple[Made, ...] = ()


class Mind:
    """The memory of one stream."""

    def __init__(self, way: Way, taskset: Apps, shelf: Shelf, seed: int) -> None:
        self.way, self.taskset, self.shelf, self.seed = way, taskset, shelf, seed
        self.plans: dict[tuple[str, str], Plan] = {}
        self.tools: list[Made] = []
        self.spent = Spent()
        self.by_tool: list[int] = []  # executor tokens of tasks that a tool answered, and of those played by a plan
        self.by_text: list[int] = []
        self._lines: dict[str, str] = {}  # item -> what the player is told
        self._topics: dict[tuple[str, str], str] = {}  # of facts and pitfalls: (app, topic) -> item
        self._late: list[tuple[Played, Used]] = []
        self._now = Used()

    # ---- while a task is played -----------------------------------------------------------------------------------

    async def attend(self, run: Errand) -> Outcome:
        """Play a task with what is remembered."""
        query = run.task.prompt
        asked = read(query)
        self._now = Used(asked)
        if asked is None or not (self.way.text or self.way.codifier):
            return await explore(run)
        facts = await self.shelf.recall(run, query, K_FACTS, asked.app, ("fact", "pitfall")) if self.way.text else []
        plans = await self.shelf.recall(run, query, K_PLANS, asked.app, ("plan",)) if self.way.text else []
        tools = await self.shelf.recall(run, query, K_TOOLS, asked.app, ("tool",)) if self.way.codifier else []
        self._paid("retrieval", Cost(words_cost([query, *(one.text for one in (*facts, *plans, *tools))]), 0, 1))
        plan, chosen = self._plan(query, asked, plans), self._chosen(query, asked, tools)
        self._now = Used(asked, plan, tuple(chosen))
        lines = [self._lines[one.id] for one in facts]
        if plan:
            plan.uses += 1
            plan.ledger.append(query)
            lines.append(f"plan: app {asked.app}: {plan.text}")
        lines += [f"tool: {tool.name}(query): {tool.draft.doc}" for tool in chosen]
        return await explore(run, lines, {tool.name: tool.call for tool in chosen})

    def _plan(self, query: str, asked: Asked, found: Sequence[Found]) -> Plan | None:
        """The plan that fits: a signature that fits, and words that are like."""
        own = self.plans.get((asked.app, topic_of(asked)))
        if own and own.item in {one.id for one in found} and alike(query, own.queries) >= TAU_TEXT:
            return own
        return None

    def _chosen(self, query: str, asked: Asked, found: Sequence[Found]) -> list[Made]:
        """The tools that fit, the likest first."""
        known = {one.id for one in found}
        fit = [
            (alike(query, tool.queries), -place, tool)
            for place, tool in enumerate(self.tools)
            if tool.state == "active" and tool.item in known and tool.plan.asked[:3] == asked[:3]
        ]
        return [tool for like, _, tool in sorted(fit, reverse=True, key=lambda one: one[:2]) if like >= TAU_TOOL]

    def facts(self) -> list[str]:
        """The lines of all facts and pitfalls that are held."""
        return [self._lines[item] for item in self._topics.values()]

    # ---- afterwards -----------------------------------------------------------------------------------------------

    def learn(self, played: Played) -> None:
        """Learn from a task that was played, or from the one that was played ``late`` tasks ago."""
        self._count(played, self._now)
        self._late.append((played, self._now))
        if len(self._late) > self.way.late:
            self._learn(*self._late.pop(0))

    def _learn(self, played: Played, used: Used) -> None:
        if used.asked is None or not (self.way.text or self.way.codifier):
            return
        found = reflect(self.taskset, played)
        if self.way.text:
            self._paid("reflection", Cost(found.read, found.written, 1))
        plan = used.plan
        for lesson in found.lessons:
            if lesson.kind == "plan":
                plan = self._learn_plan(lesson, used, played)
            elif self.way.text:
                self._learn_fact(lesson, played)
        if plan:
            self._shadow(plan, played, used)
            self._promote(plan, played)

    def _learn_fact(self, lesson: Lesson, played: Played) -> None:
        """The screen for facts and pitfalls: what is known is dropped, what is contradicted is replaced."""
        key, line = (lesson.app, lesson.topic), f"{lesson.kind}: app {lesson.app}: {lesson.text}"
        held = self._topics.get(key)
        if held and self._lines[held] == line:
            return
        if held and not lesson.text:
            if not self._lines[held].endswith(f" {lesson.wrong}"):
                return
            self.shelf.retire(held, "no longer true")
            del self._topics[key]
        elif lesson.text:
            body = lesson.body
            new = (
                self.shelf.replace(held, body)
                if held
                else self.shelf.add(lesson.kind, body, lesson.app, played.at(lesson.seq))
            )
            self._topics[key], self._lines[new] = new, line
        else:
            return
        if held and self.way.invalidate:
            self._invalidate(self._lines[held])

    def _learn_plan(self, lesson: Lesson, used: Used, played: Played) -> Plan:
        """The screen for plans: one for each kind of errand; another wording is merged, other steps replace."""
        assert used.asked is not None
        key, query = (lesson.app, lesson.topic), played.task.prompt
        plan = self.plans.get(key)
        if plan is None:
            plan = Plan("", used.asked, lesson.text, [query])
            if self.way.text:
                plan.item = self.shelf.add("plan", _body(plan), lesson.app, played.at(lesson.seq))
            self.plans[key] = plan
        elif plan.text != lesson.text or not used.plan:
            plan.text = lesson.text
            if not used.plan:
                plan.queries = [*plan.queries, query][-KEPT:]
            if self.way.text:
                plan.item = self.shelf.replace(plan.item, _body(plan))
        plan.source = played
        plan.verified = [*plan.verified, (played.task, played.end)][-KEPT:]
        return plan

    def _count(self, played: Played, used: Used) -> None:
        """How the tools and the plan of a task did."""
        out, right = played.outcome, played.reward == 1
        for tool in used.tools:
            if tool.name in out.refused:
                tool.none += 1
            elif tool.name == out.tool:
                tool.ended.append(right)
                self.by_tool.append(out.tokens)
                tool.tokens.append(out.tokens)
                self._demote(tool)
        kind = self.plans.get((used.asked.app, topic_of(used.asked))) if used.asked else None
        if kind:
            kind.tokens += out.tokens
        if used.plan and not out.tool:
            used.plan.before += used.plan.tool is None
            used.plan.ended.append(right)
            self.by_text.append(out.tokens)
            used.plan.by_text.append(out.tokens)

    def _paid(self, part: str, cost: Cost) -> None:
        self.spent = self.spent.plus(Spent(**{part: cost}))

    # ---- from plans to tools --------------------------------------------------------------------------------------

    def _promote(self, plan: Plan, played: Played) -> None:
        """Build a tool of a plan that has earned one and has none; of trajectories at once, from each run."""
        way = self.way
        eager = way.codifier == "trajectory" and way.theta == 0 and plan.source is played
        free = plan.tool is None or plan.tool.state == "retired"
        if way.codifier and plan.source and (free or eager) and self._due(plan):
            self._build(plan, plan.source)

    def _due(self, plan: Plan) -> bool:
        need = self._need(plan)
        return need.have >= max(need.theta, plan.again)

    def _need(self, plan: Plan) -> Need:
        """What the plan's ledger shows, and what is wanted of it."""
        way, asked = self.way, plan.ledger
        if not (way.ski or way.distinct):
            return Need(len(asked), way.theta, "")  # type: ignore[arg-type]
        seen = Recurrence(len(asked), len({*map(plain, asked)}), len(shapes(asked)))
        if not way.ski:
            return Fixed(int(way.theta), of="shapes").need(seen)
        builds = [way.price * tool.draft.cost.tokens for tool in self.tools]
        guess = way.price * (words_cost([plan.text, *plan.queries, *API]) + GUESS)
        floor = 2 if way.distinct else 1
        rule = measured(builds, self.by_text, self._saved(), guess, floor, prior=way.prior)
        if not way.learnt and self.by_text:
            text = sum(self.by_text) / len(self.by_text)
            saving = text - sum(self.by_tool) / len(self.by_tool) if self.by_tool else way.prior * text
            rule = SkiRental(rule.build, saving, floor)
        return rule.need(seen)

    def _saved(self) -> list[float]:
        """Of each tool that answered a task whose plan was played as text too: the share of tokens that it saved."""
        both = [(tool.tokens, tool.plan.by_text) for tool in self.tools if tool.tokens and tool.plan.by_text]
        return [1 - (sum(tool) / len(tool)) / (sum(text) / len(text)) for tool, text in both]

    def _build(self, plan: Plan, source: Played) -> None:
        way, asked, number = self.way, plan.asked, len(self.tools)
        name = f"{asked.verb}_{asked.table}_{number}"
        known = [line for line in self.facts() if f" {asked.app}: " in line]
        queries, bug = list(dict.fromkeys([*plan.queries, *plan.ledger])), ""
        if way.codifier == "trajectory":
            draft = trajectory(name, source.task.prompt, source.steps, known)
            queries = queries if way.theta else [source.task.prompt]  # ungated, there is no ledger
        else:
            if self._lot("bug", number) < way.bug / len(queries):
                bug = BUGS[int(self._lot("which", number) * len(BUGS))]
            frozen = way.codifier == "compiled"
            draft = pattern(name, asked, plan.text, queries, known if frozen else (), bug, wary=not frozen)
        self._paid(
            "building",
            draft.cost._replace(read=round(draft.cost.read * way.price), written=round(draft.cost.written * way.price)),
        )
        tool = Made(name, plan, draft, compiled(draft, self.facts), queries[-KEPT:], bug=bug)
        self.tools.append(tool)
        if way.codifier != "trajectory" or way.theta > 0 or plan.tool is None:
            plan.tool = tool
        if not self._checked(tool):
            self._retire(tool, "it failed its checks")
        elif way.check == "shadow":
            tool.state = "shadow"
        else:
            self._admit(tool)

    def _checked(self, tool: Made) -> bool:
        """Whether a tool gives an answer, and with ``replay`` the end states of runs that were right."""
        ends = [self._tried(tool, task, end) for task, end in tool.plan.verified[-REPLAYS:]]
        return any(end is not None for end in ends) and (self.way.check != "replay" or False not in ends)

    def _tried(self, tool: Made, task: Task, end: bytes) -> bool | None:
        """Whether a tool alone comes to an end state; None where it gives no answer."""
        own, read = trial(self.taskset, task, tool.call)
        self._paid("checking", Cost(read // 4, 0, 1))
        return None if own is None else own == end

    def _shadow(self, plan: Plan, played: Played, used: Used) -> None:
        """Let a tool that is not admitted yet do what was just done by text, beside it."""
        tool = plan.tool
        if tool is None or tool.state != "shadow" or used.plan is not plan or played.outcome.tool:
            return
        same = self._tried(tool, played.task, played.end)
        if same is False:
            self._retire(tool, "its end state was another than the text plan's")
        tool.shadowed += bool(same)
        if tool.shadowed >= self.way.shadows:
            self._admit(tool)

    def _admit(self, tool: Made) -> None:
        tool.state, app = "active", tool.plan.asked.app
        doc = f"{tool.draft.doc}; asked: {' | '.join(tool.queries)}"
        body = {"name": tool.name, "doc": doc, "signature": "(query)"}
        tool.item = self.shelf.add("tool", body, app, tool.plan.source.at(0) if tool.plan.source else "")

    def _retire(self, tool: Made, why: str) -> None:
        """Take a tool back: its plan goes on as text, and may earn another."""
        if tool.item:
            self.shelf.retire(tool.item, why)
        tool.state, tool.why = "retired", why
        need = self._need(tool.plan)
        tool.plan.again = need.have + max(1, min(need.theta, MOST))

    def _demote(self, tool: Made) -> None:
        standing = demoted(tool.ended, tool.plan.ended) if self.way.demote and tool.state == "active" else None
        if standing:
            self._retire(tool, standing.why)

    def _invalidate(self, line: str) -> None:
        for tool in self.tools:
            if line in tool.draft.deps and tool.state != "retired":
                self._retire(tool, f"no longer held: {line}")

    def _lot(self, what: str, number: int) -> float:
        return derive(self.seed, what, number) / 2**63


def alike(query: str, others: Iterable[str]) -> float:
    """How like a query is to the likest of others: Jaccard's share of common words."""
    own = set(words(query))
    return max((len(own & his) / len(own | his) for his in (set(words(one)) for one in others)), default=0.0)


def _body(plan: Plan) -> dict[str, str]:
    return {"text": f"{plan.text}\nasked: {' | '.join(plan.queries)}"}

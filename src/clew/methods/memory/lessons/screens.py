"""``RuleScreen``: whether a memory takes a lesson, by rules that ask no model.

The four criteria are those of Metis (arXiv 2606.24151, section 3.2): general beyond the task, not redundant,
grounded in what was seen, rightly scoped. Before them stands what must never pass: text that a tool's output planted.
Every ruling says why in a sentence that quotes no more of a lesson than a term: sentences outlive deleted items.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from clew.core.errors import BadInput, UnknownName
from clew.core.printable import short
from clew.core.records import Cursor, action_of
from clew.core.values import ToolCall
from clew.harness.memory import Item
from clew.harness.memory.item_kinds import check_body, check_provenance, check_scope, text_of
from clew.harness.memory.ranking import words
from clew.methods.memory.lessons.grounds import Grounds, content, grounds_of, holds, shares, terms
from clew.methods.memory.lessons.lesson import Lesson, Ruling
from clew.methods.memory.lessons.likeness import relative, says_nothing
from clew.methods.memory.lessons.planted_text import advice_of, borrowed, hostile, passed_on, retold, untried
from clew.methods.memory.lessons.run_view import RunView

KINDS = ("plan", "fact", "pitfall")  # of a lesson; a tool is made from a plan, never from a run
FOUND = 0.3  # least share of a lesson's words that the run shows
TASK = 8  # words in a row of the task that make a lesson one of this task alone
SOURCES = 8  # answers that are named as where a lesson's words come from
_ONE = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b(?=[a-f]*\d)[0-9a-f]{12,}\b|\b\d{5,}\b|[\w.+-]{1,64}@[\w-]{1,63}\.\w+|\b\d{4}-\d\d-\d\d\b"
)


class RuleScreen:
    """A screen without a model; see ``docs/lessons.md`` for what it catches and what it does not.

    Args:
        strict: also drop facts of which half stands in an answer alone. Claims of a web page or an e-mail then do not
            pass, and neither does what a tool's own documentation says and the agent did not try.
    """

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict

    async def judge(self, lesson: Lesson, neighbours: Sequence[Item], run: RunView) -> Ruling:
        """As ``Screen``. It reads nothing but the run and the neighbours, and asks nobody."""
        return rule(lesson, neighbours, run, self.strict)


def rule(lesson: Lesson, neighbours: Sequence[Item], run: RunView, strict: bool = False) -> Ruling:
    """What becomes of a lesson; see ``RuleScreen``."""
    try:
        body, scope = check_body(lesson.kind, lesson.body), check_scope(lesson.scope)
        cited = [Cursor.parse(one) for one in check_provenance(lesson.provenance, "")]
    except BadInput as error:
        return _drop(error.message)
    if lesson.kind not in KINDS:
        return _drop("a tool is made from a plan, not learnt from a run")
    known = {call.seq for call in run.run.calls}
    if any(one.run != run.id or one.seq not in known for one in cited):
        return _drop("it names a place that is not in this run")
    found = grounds_of(run, lesson.revealed, tuple(lesson.seen))
    text = text_of(lesson.kind, body)
    why = (
        hostile(text, found)
        or _planted(lesson.kind, body, found)
        or _particular(text, found)
        or says_nothing(text)
        or _ungrounded(lesson.kind, body, [one.seq for one in cited], found)
        or _misplaced(scope, found)
        or (_claimed(text, found) if strict else "")
    )
    if why:
        return _drop(why)
    return _settled(lesson._replace(body=body, scope=scope), neighbours, run, _sources(text, found))


def _drop(why: str) -> Ruling:
    return Ruling("drop", why=short(why, 300))


# ---- planted ---------------------------------------------------------------------------------------------------------


def _planted(kind: str, body: Mapping[str, str], found: Grounds) -> str:
    """Why a lesson is an answer's and not the run's; empty where it is the run's."""
    advice = advice_of(kind, body)
    for text in advice:
        term, seq = untried(text, found)
        if term:
            where = f"only the answer at {found.run.place(seq)} names it" if seq >= 0 else "nothing in the run names it"
            return f"it tells to use {short(term, 40)!r}, which the run never did; {where}"
    if kind == "pitfall" and (why := _never_made(body["mistake"], found)):
        return why
    for text in [*advice, *([body["trigger"], body["mistake"]] if kind == "pitfall" else [])]:
        why, seq = passed_on(text, found)
        if why:
            return why.format(place=f"the answer at {found.run.place(seq)}")
    for text in advice:
        if why := _claimed(text, found):
            return why
    if kind == "pitfall" and (seq := retold(body["mistake"], body["consequence"], found)) >= 0:
        return f"the answer at {found.run.place(seq)} tells of mistake and consequence together; the run shows neither"
    return ""


def _claimed(text: str, found: Grounds) -> str:
    """Why a lesson is no more than a claim."""
    seq = borrowed(text, found)
    where = found.run.place(seq)
    return f"half of what it says is in the answer at {where} alone, and not in what the run did" if seq >= 0 else ""


def _never_made(mistake: str, found: Grounds) -> str:
    """Why a run did not make a mistake, as far as names and words tell."""
    if not all(found.was_done(term) or found.was_revealed(term) for term in terms(mistake)):
        return "the run never made the mistake that it warns of: it did nothing by that name"
    if not terms(mistake) and not shares(content(mistake), content(f"{found.deeds}\n{found.revealed}")):
        return "the run never made the mistake that it warns of"
    return ""


# ---- general, grounded, scoped ---------------------------------------------------------------------------------------


def _particular(text: str, found: Grounds) -> str:
    """Why a lesson is of this task alone."""
    run = found.run
    for name in (run.id, run.run.task_id):
        if len(name) > 3 and holds(text, name):
            return "it names this run or this task"
    everything = "\n".join([run.prompt, found.deeds, *(told.text for told in found.told)])
    for hit in _ONE.findall(text):
        if holds(everything, hit):
            return f"it holds {short(hit, 40)!r}, which belongs to this task"
    said, asked = words(text), words(run.prompt)
    rows = {tuple(asked[i : i + TASK]) for i in range(len(asked) - TASK + 1)}
    if rows & {tuple(said[i : i + TASK]) for i in range(len(said) - TASK + 1)}:
        return "it repeats the task"
    for answer in _submitted(run):
        if holds(text, answer) and not holds(run.prompt, answer):
            return f"it holds {answer!r}, the answer to this task"
    return ""


def _submitted(run: RunView) -> list[str]:
    """Numbers of two digits or more in the last thing the agent did: the answer, where the task has one."""
    acts = [call for call in run.run.calls if call.kind == "act"]
    if not acts:
        return []
    action = action_of(acts[-1])
    return [one for one in re.findall(r"\d[\d.]*\d", _plain(action)) if len(one) >= 2]


def _plain(action: str | ToolCall) -> str:
    if not isinstance(action, ToolCall):
        return action
    try:
        given = json.loads(action.arguments or "{}")
    except (ValueError, RecursionError):
        return ""
    return " ".join(str(value) for value in given.values()) if isinstance(given, dict) else ""


def _ungrounded(kind: str, body: Mapping[str, str], cited: Sequence[int], found: Grounds) -> str:
    """Why a lesson is not of what the run shows."""
    text = text_of(kind, body)
    mine = content(" ".join(body.values()))
    for term in terms(text):
        if not (found.was_tried(term) or found.was_asked(term) or found.answers(term)):
            return f"nothing in the run says {short(term, 40)!r}"
    if not mine or shares(mine, found.all) < FOUND:
        return "hardly a word of it is in what the run did and was answered"
    if not shares(mine, found.near(cited)):
        return "the places that it names show nothing of it"
    if kind == "pitfall":
        answers = {one for told in found.told for one in content(told.text)}
        wrong = found.run.reward is not None and found.run.reward <= 0.5
        if not wrong and not shares(content(body["consequence"]), answers):
            return "nothing that was answered shows its consequence, and the run succeeded"
    return ""


def _misplaced(scope: Sequence[str], found: Grounds) -> str:
    """Why a lesson's scope is not right."""
    world = f"{found.run.run.taskset} {found.run.run.task_id}"
    for key in scope:
        if not any(holds(text, key) for text in (found.deeds, found.operator, world)):
            return f"the run has nothing to do with its scope {short(key, 40)!r}"
    return ""


def _sources(text: str, found: Grounds) -> tuple[str, ...]:
    """The answers from which it takes what the agent neither did nor was asked: whoever doubts it looks there."""
    taken = [term for term in terms(text) if not found.was_tried(term) and not found.was_asked(term)]
    strange = {one for one in content(text) if not shares([one], found.trusted)}
    calls = [seq for term in taken for seq in found.answers(term)[:2]]
    weight = {told.seq: len(strange & {*content(told.text)}) for told in found.told} if strange else {}
    calls += [seq for seq in sorted(weight, key=lambda seq: (-weight[seq], seq))[:2] if weight[seq]]
    return tuple(found.run.place(seq) for seq in dict.fromkeys(calls))[:SOURCES]


# ---- new -------------------------------------------------------------------------------------------------------------


def _settled(lesson: Lesson, neighbours: Sequence[Item], run: RunView, sources: tuple[str, ...]) -> Ruling:
    """A sound lesson beside what the memory holds."""
    near = relative(lesson.kind, dict(lesson.body), lesson.scope, neighbours)
    if near is None:
        return Ruling("add", sources=sources)
    item = near.item
    if near.how == "same":
        return Ruling("merge", item.id, "the memory says so already", sources)
    if item.by and not item.provenance:
        return _drop(f"a person wrote item {item.id}, which says otherwise or less; a run does not replace it")
    if near.how == "more":
        return Ruling("replace", item.id, "a later lesson says the same and more", sources)
    if _later(item, run):
        return _drop(f"item {item.id} says otherwise, and was learnt from a later run")
    return Ruling("replace", item.id, "a later run shows otherwise", sources)


def _later(item: Item, run: RunView) -> bool:
    """Whether an item was learnt from a run that was made after this one."""
    made = []
    for place in item.provenance:
        try:
            made.append(run.run.store.row(place.partition("@")[0]).created)
        except UnknownName:
            continue
    return max(made, default=0.0) > run.run.row.created

"""A recorded run held against the real world: its actions performed there, and each answer compared.

``clew world check`` calls it, for runs of a simulated world and of any other. The world is opened here and changed by
what is performed; one whose actions last must be allowed by name. A record is read and never written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput
from clew.core.protocols import Taskset
from clew.core.reading import Record
from clew.core.records import Call, action_of
from clew.core.registry import build, parse_ref
from clew.core.values import Observation, ToolCall
from clew.methods.world_model.content_kinds import Content, content_of, form_words, words_of
from clew.methods.world_model.fidelity import Acted, Compared, canonical_text, played, share
from clew.methods.world_model.simulated import Simulated
from clew.worlds.judging import world_acts
from clew.worlds.world_asks import open_world

_READS = re.compile(r"(get|list|read|look|search|find|show|fetch|view|describe|query|check|ls|cat|pwd)(?![a-z])", re.I)


class Checked(NamedTuple):
    """A run's turns as both worlds answer them.

    acts: their Calls, in the same order. told: to the agent, before them. alone: no real world is named, so that the
    run's answers are compared with one another alone.
    """

    run: str
    task: str
    acts: list[Call]
    turns: list[Compared]
    told: str = ""
    alone: bool = False

    @property
    def compared(self) -> int:
        return sum(turn.same is not None for turn in self.turns)

    @property
    def agreeing(self) -> int:
        return sum(bool(turn.same) for turn in self.turns)

    @property
    def agreement(self) -> float | None:
        """The share of compared turns in which both answer the same; None where none is compared."""
        return share(self.turns)

    @property
    def first(self) -> int | None:
        """The first turn, from 0, in which they differ; None where they never do."""
        return next((i for i, turn in enumerate(self.turns) if turn.same is False), None)


async def check(run: Record, real: Taskset | None = None, lasting: bool = False) -> Checked:
    """Perform a run's actions in the real world of its task.

    Args:
        real: the real world's taskset; None: the one that the simulated world of the run names.
        lasting: perform them also where they cannot be undone (a world of kind ``none``).

    A run of a simulated world that names no real one is given back alone.

    Raises:
        BadInput: no real world is named, it has no such task, or its actions would last.
    """
    if any(edit.kind == "world" for edit in run.changes.edits):
        told = f"the world of run {run.id} was changed by an edit, which no action of it repeats"
        raise BadInput(told, remedy="Choose a run that was not forked so.")
    made_by = run.row.taskset
    needed = bool(made_by) and (real is None or parse_ref(made_by)[0] == "simulated")
    taskset: Taskset | None = build("tasksets", made_by) if needed else None
    simulated = taskset if isinstance(taskset, Simulated) else None
    real = real or (simulated.real if simulated is not None else None)
    acts, prompt = world_acts(run), str(json.loads(run.row.task or "{}").get("prompt", ""))
    if real is None and simulated is not None:
        answers = [Compared(act, Observation(""), b"", None) for act in simulated.acted(acts)]
        return Checked(run.id, run.task_id, acts, answers, prompt, alone=True)
    if real is None:
        raise BadInput(f"run {run.id} names no real world to hold it against", remedy="Name one with --against WORLD.")
    world = open_world(real, real.find(run.task_id))
    if world is None:
        raise BadInput(f"{real.ref} has no world: its agents only answer", remedy="Name another with --against.")
    try:
        if world.restores == "none" and not lasting:
            told = f"what is done in {real.ref} cannot be undone"
            raise BadInput(told, remedy="Add --lasting to perform the run's actions there once more.")
        said = simulated.acted(acts) if simulated is not None else list(map(_plain, acts))
        return Checked(run.id, run.task_id, acts, await played(world, said, prompt), prompt)
    finally:
        world.close()


def _plain(call: Call) -> Acted:
    return Acted(action_of(call), call.text, call.terminal)


def contents(checked: Sequence[Checked]) -> list[list[Content | None]]:
    """The class of what the real world answered at each compared turn of each run; see ``content_kinds``."""
    form = form_words((one.task, turn.real.text) for one in checked for turn in one.turns if turn.same is not None)
    found = list[list[Content | None]]()
    for one in checked:
        before, mine = set(words_of(one.told)), list[Content | None]()
        for turn in one.turns:
            action, real = turn.act.action, canonical_text(turn.real.text)
            before |= set(words_of(action.arguments if isinstance(action, ToolCall) else action))
            mine.append(None if turn.same is None else content_of(real, before, form))
            before |= set(words_of(real))
        found.append(mine)
    return found


def comparisons(checked: Sequence[Checked]) -> Comparisons:
    """The turns that were held against the real world. Where that answered all of them the same, whoever says so
    always agrees, and nothing is tested."""
    real = [canonical_text(turn.real.text) for one in checked for turn in one.turns if turn.same is not None]
    why = f"the real world answered all {len(real)} turns the same" if real else "no turn could be held against it"
    return Comparisons("turns", len(real), len(real) if len(set(real)) > 1 else 0, why_not=why)


class Repeated(NamedTuple):
    """A question that a run asked twice while nothing had changed: the turns, and whether the answers are the same."""

    run: str
    first: int
    again: int
    same: bool


def repeats(one: Checked) -> list[Repeated]:
    """The repeated questions of a run, each held against its last time, which needs no truth: a world that answers two
    of them differently contradicts itself.

    Nothing has changed where the real world's state stood still and it answered both the same; where none is named,
    where only such tools were called meanwhile as read by their name.
    """
    found, last = list[Repeated](), dict[str, int]()
    for i, turn in enumerate(one.turns):
        if not turn.act.compared:
            continue
        asked = _asked(turn.act.action)
        if (before := last.get(asked)) is not None and _still(one, before, i):
            said = [canonical_text(one.turns[at].act.observation) for at in (before, i)]
            found.append(Repeated(one.run, before, i, said[0] == said[1]))
        last[asked] = i
    return found


def _asked(action: str | ToolCall) -> str:
    if isinstance(action, ToolCall):
        return f"{action.name} {canonical_text(action.arguments)}"
    return canonical_text(action)


def _still(one: Checked, first: int, again: int) -> bool:
    turns = one.turns[first : again + 1]
    if one.alone:
        return all(_READS.match(_asked(turn.act.action)) for turn in turns)
    real = canonical_text(turns[0].real.text) == canonical_text(turns[-1].real.text)
    return real and len({turn.state for turn in turns}) == 1


def together(checked: Sequence[Checked], turn: int) -> float:
    """The share of the runs that still agree with the real world after ``turn`` turns, of those that are as long."""
    long = [one for one in checked if len(one.turns) >= turn]
    return sum(one.first is None or one.first >= turn for one in long) / len(long) if long else float("nan")


def half_life(checked: Sequence[Checked]) -> int | None:
    """The first turn after which at most half of the runs still agree; None where more do as far as they go."""
    longest = max((len(one.turns) for one in checked), default=0)
    return next((t for t in range(1, longest + 1) if together(checked, t) <= 0.5), None)

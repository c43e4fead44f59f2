"""A recorded run held against the real world: its actions performed there, and each answer compared.

``clew world check`` calls it, for runs of a simulated world and of any other. The world is opened here and changed by
what is performed; one whose actions last must be allowed by name. A record is read and never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.core.protocols import Taskset
from clew.core.reading import Record
from clew.core.records import Call, action_of
from clew.core.registry import build, parse_ref
from clew.worlds.judging import world_acts
from clew.worlds.learned.fidelity import Acted, Compared, played, share
from clew.worlds.learned.simulated import Simulated
from clew.worlds.world_asks import open_world


class Checked(NamedTuple):
    """A run's turns as both worlds answer them. ``acts`` are its Calls, in the same order."""

    run: str
    task: str
    acts: list[Call]
    turns: list[Compared]

    @property
    def compared(self) -> int:
        return sum(turn.same is not None for turn in self.turns)

    @property
    def agreeing(self) -> int:
        return sum(bool(turn.same) for turn in self.turns)

    @property
    def agreement(self) -> float:
        """The share of compared turns in which both answer the same; 1 where none is compared."""
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
    if real is None:
        raise BadInput(f"run {run.id} names no real world to hold it against", remedy="Name one with --against WORLD.")
    world = open_world(real, real.find(run.task_id))
    if world is None:
        raise BadInput(f"{real.ref} has no world: its agents only answer", remedy="Name another with --against.")
    try:
        if world.restores == "none" and not lasting:
            told = f"what is done in {real.ref} cannot be undone"
            raise BadInput(told, remedy="Add --lasting to perform the run's actions there once more.")
        acts = world_acts(run)
        said = simulated.acted(acts) if simulated is not None else list(map(_plain, acts))
        return Checked(run.id, run.task_id, acts, await played(world, said))
    finally:
        world.close()


def _plain(call: Call) -> Acted:
    return Acted(action_of(call), call.text, call.terminal)


def together(checked: Sequence[Checked], turn: int) -> float:
    """The share of the runs that still agree with the real world after ``turn`` turns, of those that are as long."""
    long = [one for one in checked if len(one.turns) >= turn]
    return sum(one.first is None or one.first >= turn for one in long) / len(long) if long else float("nan")


def half_life(checked: Sequence[Checked]) -> int | None:
    """The first turn after which at most half of the runs still agree; None where more do as far as they go."""
    longest = max((len(one.turns) for one in checked), default=0)
    return next((t for t in range(1, longest + 1) if together(checked, t) <= 0.5), None)

"""A taskset that a user keeps in a file: the household, with a judge that two of three runs please."""

from __future__ import annotations

from collections.abc import Mapping

from clew.core.protocols import World
from clew.core.reading import Record
from clew.core.values import Task
from clew.harness import LiveRun
from clew.worlds.household import Household


class Lenient(Household):
    """Small, with a signal for training whatever an untrained model does."""

    def __init__(self) -> None:
        super().__init__(rooms=2, receptacles=2, objects=2, closed=1, steps=4)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        return {"reward": float(run.row.seed % 3 > 0)}


async def rememberer(run: LiveRun) -> None:
    """Asks the memory, which no worker can reach."""
    await run.memory("facts").recall("anything")

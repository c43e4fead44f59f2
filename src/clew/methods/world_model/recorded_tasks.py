"""The tasks of recorded runs, for a simulated world that is given nothing else to do: each run's first message.

``simulated(demos=...)`` makes it where no world is named. Nothing here knows how well a task was done.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from clew.core.errors import BadInput, Undecided
from clew.core.keys import derive
from clew.core.protocols import World
from clew.core.reading import Record
from clew.core.values import Task
from clew.methods.world_model.prompting import Demonstration
from clew.worlds.seeds import SPLITS, split_of

REMEDY = (
    "Name a taskset that judges the runs: world='desk', or world=\"dataset(path='tasks.jsonl', reward='numeric')\"."
)


class RecordedTasks:
    """One task for each different first message of recorded runs; no judge."""

    ref = "recorded"

    def __init__(self, demonstrations: Sequence[Demonstration]) -> None:
        prompts = list(dict.fromkeys(one.task for one in demonstrations if one.task.strip()))
        if not prompts:
            raise BadInput("no recorded run begins with a message that says its task", remedy=REMEDY)
        self._prompts = {f"recorded-{i}": prompt for i, prompt in enumerate(prompts)}

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        if split not in SPLITS or n < 0:
            raise BadInput(f"cannot sample {n} tasks of {split!r}", remedy=f"Known splits: {', '.join(SPLITS)}.")
        ids = [name for name, prompt in self._prompts.items() if split_of(prompt) == split]
        if n > len(ids):
            told = f"only {len(ids)} of {n} {split} tasks: the recorded runs have no more"
            raise BadInput(told, remedy="Ask for fewer, export more runs, or name a world.")
        return [self.find(name) for name in random.Random(derive(seed, split)).sample(ids, n)]

    def find(self, task_id: str) -> Task:
        if task_id not in self._prompts:
            raise BadInput(f"{task_id!r} is not a task of this set", remedy=f"Its ids go to {list(self._prompts)[-1]}.")
        return Task(task_id, self._prompts[task_id])

    def open(self, task: Task) -> World:
        raise BadInput("recorded tasks have no world of their own", remedy=REMEDY)

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]:
        raise Undecided("nothing judges a simulated run whose tasks come from recorded runs")

"""The cells of tier store: the same streams recorded, with the memory in a store, and bare; they must come to the same.

``store`` is the loop as a user of Clew has it: runs of a Runner, judged, recalled from by ``run.memory(...).recall``,
items written with where they come from. ``bare`` writes nothing down and is what the other tiers are played with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from clew.harness import Runner
from clew.harness.memory import Memory
from clew.harness.run.live import LiveRun
from papers.E168_metis.errands import Played, bare, recorded
from papers.E168_metis.mind import Mind, Way
from papers.E168_metis.shelf import NAME, BareShelf, StoreShelf
from papers.E168_metis.stream import METIS, STREAMS, tasks, told
from papers.experiment import Line, each, grid

SEEDS, TASKS = range(3), 100
WAYS: dict[str, Way] = {"none": Way(text=False), "text": Way(), "metis 3": METIS}
FAMILIES = 40
cost = 4.0


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(condition=list(WAYS), calls=60 if quick else TASKS, seed=list(SEEDS)[: 1 if quick else None])


def pair(way: Way, seed: int, n: int) -> tuple[list[Line], list[list[Played]], list[float]]:
    """A stream both ways: what is counted, the tasks as played, CPU-seconds. The first is the recorded one."""
    taskset, drawn = tasks(FAMILIES, STREAMS[FAMILIES], seed, n)
    minds: list[Mind] = []

    async def attend(run: LiveRun) -> None:
        await minds[0].attend(run)

    runner = Runner(attend, taskset, None)
    minds += [Mind(way, taskset, StoreShelf(Memory(runner.store, NAME)), seed), Mind(way, taskset, BareShelf(), seed)]
    found: list[list[Played]] = [[], []]
    spent = []
    for at, mind in enumerate(minds):
        start = time.process_time()
        for task in drawn:
            played = bare(taskset, task, mind.attend, seed) if at else recorded(runner, taskset, task, seed)
            found[at].append(played)
            mind.learn(played)
        spent.append(time.process_time() - start)
    return [told(mind, played) for mind, played in zip(minds, found, strict=True)], found, spent


def _stream(setting: Line, seed: int) -> Line:
    """same: whether all that is counted is equal, and every step of every run. seconds: CPU, of the store and bare."""
    lines, played, spent = pair(WAYS[setting["condition"]], seed, setting["calls"])
    steps = [[one.steps for one in each_] for each_ in played]
    same = json.dumps(lines[0]) == json.dumps(lines[1]) and steps[0] == steps[1]
    return {"same": same, "success": lines[0]["success"], "seconds": [round(s, 3) for s in spent]}


run = each(_stream)

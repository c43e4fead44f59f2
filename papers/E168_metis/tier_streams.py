"""The cells of tier streams: P1 to P5 and P9 of specs/E168, and improvements 2 to 5, on both streams.

Improvements one by one are tried on the head-heavy stream, a codifier that errs too. A cell is a
condition at one seed: a world, and a stream of 200 tasks in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from papers.E168_metis.mind import Way
from papers.E168_metis.stream import METIS, STREAMS, TASKS, WAYS, lived, told
from papers.experiment import Line, each, grid

SEEDS = range(20)
TRAJECTORY = WAYS["metis 3, trajectory codifier"]
MORE: dict[str, Way] = {  # ours, or not measured in the paper
    "metis 3, distinct": METIS._replace(distinct=True),
    "metis 3, a task late": METIS._replace(late=1),
    "text, a task late": Way(late=1),
    "trajectory codifier, replay": TRAJECTORY._replace(check="replay"),
    "trajectory codifier, shadow": TRAJECTORY._replace(check="shadow"),
    "trajectory codifier, demotion": TRAJECTORY._replace(demote=True),
    "ours": METIS._replace(ski=True, distinct=True, check="shadow", demote=True, invalidate=True),
}
BUGGED: dict[str, Way] = {
    "metis 0": WAYS["metis 0"],
    "metis 3": METIS,
    "metis 3, replay": METIS._replace(check="replay"),
    "metis 3, shadow": METIS._replace(check="shadow"),
    "metis 3, demotion": METIS._replace(demote=True),
}
BUGS = (0.1, 0.2)  # chance of a flaw in a tool built from one query; an assumption, not a measurement
cost = 0.5


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 2 if quick else None]
    yield from grid(families=list(STREAMS), condition=[*WAYS, "ours"], seed=seeds)
    yield from grid(families=40, condition=[name for name in MORE if name != "ours"], seed=seeds)
    yield from grid(families=40, condition=list(BUGGED), bug=BUGS, seed=seeds)


def way(setting: Line) -> Way:
    """The condition of a cell."""
    found = BUGGED[setting["condition"]] if "bug" in setting else (WAYS | MORE)[setting["condition"]]
    return found._replace(bug=setting.get("bug", 0.0))


def _stream(setting: Line, seed: int, tasks: int = TASKS) -> Line:
    families = setting["families"]
    return told(*lived(way(setting), families, STREAMS[families], seed, tasks))


run = each(_stream)

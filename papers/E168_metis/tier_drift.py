"""The cells of tier drift: P8 of specs/E168. From task 100 on the app that is asked most reads at another endpoint."""

from __future__ import annotations

from collections.abc import Iterator

from clew.worlds.apps.app_goals import families as families_of
from papers.E168_metis.mind import Way
from papers.E168_metis.reading import read
from papers.E168_metis.stream import METIS, STREAMS, TASKS, lived, tasks, told
from papers.experiment import Line, each, grid

SEEDS, DRIFT = range(20), 100
COMPILED = METIS._replace(codifier="compiled")
WAYS: dict[str, Way] = {
    "text": Way(),
    "tool that reads facts": METIS,
    "tool": COMPILED,
    "tool, demotion": COMPILED._replace(demote=True),
    "tool, invalidation": COMPILED._replace(invalidate=True),
    "tool, both": COMPILED._replace(demote=True, invalidate=True),
}
cost = 0.5


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(families=40, condition=list(WAYS), seed=list(SEEDS)[: 2 if quick else None])


def _stream(setting: Line, seed: int, n: int = TASKS, drift: int = DRIFT) -> Line:
    """As ``told``. hit: a digit a task, whether it is of the app that changes; each: turns of each task."""
    families, zipf = setting["families"], STREAMS[setting["families"]]
    _, drawn = tasks(families, zipf, seed, n, drift)
    app = families_of(seed, families)[0].app
    mind, played = lived(WAYS[setting["condition"]], families, zipf, seed, n, drift)
    hit = "".join(str(int(getattr(read(task.prompt), "app", "") == app)) for task in drawn)
    return told(mind, played) | {"hit": hit, "each": [one.outcome.turns for one in played]}


run = each(_stream)

"""The cells of tier S: learning from rollouts alone, marks S1 to S4 of specs/E163."""

from collections.abc import Iterator
from typing import Any

from papers.E163_backtrack.chain import Graph
from papers.E163_backtrack.walk import learn
from papers.experiment import Line, each, grid

ARMS: dict[str, dict[str, Any]] = {
    "S1": {"w": 3, "k": 3, "l": 2, "iterations": 300},
    "S2": {"w": 5, "k": 5, "l": 3, "iterations": 400},
    "S2 per state": {"w": 5, "k": 5, "l": 3, "iterations": 400, "estimator": "togo-state"},
    "S3": {"w": 5, "k": 5, "l": 3, "iterations": 150, "batch": 128, "estimator": "trajectory", "sign": True},
    "S3 to go": {"w": 5, "k": 5, "l": 3, "iterations": 150, "batch": 128, "sign": True},
    "S4": {"w": 3, "k": 3, "l": 2, "iterations": 300, "horizon": 180, "bare": True},
}
SEEDS = {"S1": 10, "S2": 10, "S2 per state": 10, "S3": 5, "S3 to go": 5, "S4": 10}
QUICK = {"S1": 3, "S2": 3, "S3": 2, "S3 to go": 2, "S4": 3}


def cells(quick: bool) -> Iterator[Line]:
    """``quick``: fewer seeds."""
    for arm, seeds in (QUICK if quick else SEEDS).items():
        yield from grid(kind=arm, seed=range(seeds))


def cost(cell: Line) -> float:
    return {"S1": 2.5, "S2": 11.0, "S2 per state": 11.0, "S4": 0.8}.get(cell["kind"], 6.0)


def _learnt(setting: Line, seed: int) -> Line:
    """H along the iterations, steps walked, and how often all 64 walks of a batch had one outcome."""
    options = dict(ARMS[setting["kind"]])
    graph = Graph(options.pop("w"), options.pop("k"), options.pop("l"))
    found = learn(graph, seed, **options)
    near = [i for i, h in enumerate(found.h) if h <= 1.1 * graph.best]
    return {
        "best": graph.best,
        "h": [round(h, 3) for h in found.h[::10]],
        "final": found.h[-1],
        "within a tenth at": near[0] if near else None,
        "steps": found.steps[-1],
        "silent": sum(found.silent) / len(found.silent),
        "late silent": sum(found.silent[-100:]) / 100,
    }


run = each(_learnt)

"""The cells of tier cost: R10. Checkpoints at doubling outcomes, or after each outcome."""

from __future__ import annotations

from collections.abc import Iterator

from papers.E178_redqueen.searching import search
from papers.experiment import Line, apart, each, grid

SEEDS, BUDGETS, REACH = range(20), (256, 512, 1024, 2048), 0.5
SCHEDULES = {"doubling": 2.0, "every": 1.0}
portions = apart


def cost(cell: Line) -> float:
    return float(cell["budget"]) / 2000 * (4 if cell["schedule"] == "every" else 1)


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 2 if quick else 10]
    yield from grid(mode="rqgm", schedule=SCHEDULES, budget=BUDGETS[: 3 if quick else None], seed=seeds)


run = each(lambda setting, seed: search(setting, seed, REACH, ratio=SCHEDULES[setting["schedule"]]))

"""The cells of tier cost: P6 of specs/E168 and ski rental (8.1), over thresholds, prices of building, Zipf exponents.

With a fixed threshold nothing depends on the price, so that the report multiplies; ski rental has cells of its own. It
has four forms, which differ in what a tool is thought to save: learnt from the tools that were used, with a prior of
half a run that counts as one tool (what ships), or of .26 (the paper's table A.1); or a prior alone until a tool was
used and then what was measured: of .26 (what shipped before), or of .85, which this world shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from papers.E168_metis.mind import NEVER
from papers.E168_metis.stream import METIS, TASKS, lived, told
from papers.experiment import Line, each, grid

SEEDS = range(20)
FAMILIES, EXPONENTS, PRICES = 40, (0.6, 1.1, 1.6), (0.25, 1.0, 4.0, 16.0)
DEAR = (4.0, 16.0)  # where ski rental has a choice: below, one use pays for a tool
THETAS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, NEVER)
SKIS: dict[str, dict[str, Any]] = {
    "ski": {},
    "ski, as before": {"prior": 0.26, "learnt": False},
    "ski, learnt from .26": {"prior": 0.26},
    "ski, saving known": {"prior": 0.85, "learnt": False},  # as two streams of --quick had it
}
SHIPPED = ("ski", "ski, as before")  # tried at every price, the others where ski rental has a choice
cost = 0.6


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 1 if quick else None]
    yield from grid(condition=[f"{theta:g}" for theta in THETAS], zipf=EXPONENTS, seed=seeds)
    for name in SKIS:
        yield from grid(condition=name, zipf=EXPONENTS, price=prices(name), seed=seeds)


def prices(name: str) -> tuple[float, ...]:
    """Those at which a form of ski rental is tried."""
    return PRICES if name in SHIPPED else DEAR


def _stream(setting: Line, seed: int, tasks: int = TASKS) -> Line:
    if setting["condition"] in SKIS:
        way = METIS._replace(ski=True, price=setting["price"], **SKIS[setting["condition"]])
    else:
        way = METIS._replace(theta=float(setting["condition"]))
    return told(*lived(way, FAMILIES, setting["zipf"], seed, tasks))


run = each(_stream)

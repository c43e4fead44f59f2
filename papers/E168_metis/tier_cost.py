"""The cells of tier cost: P6 of specs/E168 and ski rental (8.1), over thresholds, prices of building, Zipf exponents.

With a fixed threshold nothing depends on the price, so that the report multiplies; ski rental has cells of its own, at
the first ten seeds.
"""

from __future__ import annotations

from collections.abc import Iterator

from papers.E168_metis.mind import NEVER
from papers.E168_metis.stream import METIS, TASKS, lived, told
from papers.experiment import Line, each, grid

SEEDS = range(20)
FAMILIES, EXPONENTS, PRICES = 40, (0.6, 1.1, 1.6), (0.25, 1.0, 4.0, 16.0)
DEAR = (4.0, 16.0)  # where ski rental has a choice: below, one use pays for a tool
THETAS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, NEVER)
SKIS = {"ski": 0.0, "ski, saving known": 0.85}  # .85: as two streams of --quick had it
cost = 0.6


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 1 if quick else None]
    yield from grid(condition=[f"{theta:g}" for theta in THETAS], zipf=EXPONENTS, seed=seeds)
    yield from grid(condition="ski", zipf=EXPONENTS, price=PRICES, seed=seeds[:10])
    yield from grid(condition="ski, saving known", zipf=EXPONENTS, price=DEAR, seed=seeds[:10])


def _stream(setting: Line, seed: int, tasks: int = TASKS) -> Line:
    if setting["condition"] in SKIS:
        way = METIS._replace(ski=True, price=setting["price"], known=SKIS[setting["condition"]])
    else:
        way = METIS._replace(theta=float(setting["condition"]))
    return told(*lived(way, FAMILIES, setting["zipf"], seed, tasks))


run = each(_stream)

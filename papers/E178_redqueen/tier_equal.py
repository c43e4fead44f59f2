"""The cells of tier equal: R9 and bar 3. Judges of one quality, and judges that are one judge under many names.

``independent``: at each of 10 checkpoints fresh challengers, each right on an item with chance .75 like the incumbent.
``twins``: whole searches in which each challenger answers as the incumbent does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clew.core.keys import derive
from clew.methods.coevolve import Challenge, rule
from papers.E178_redqueen.searching import search
from papers.experiment import Line, grid

SEEDS, SEARCHES, CHECKPOINTS, RIGHT, OPEN = range(20), 25, 10, 0.75, 20
GATES, ANCHORS, CHALLENGERS = ("bb", "paired", "confirm", "half confirm"), (20, 100, 400), (1, 5, 20, 100)


def cost(cell: Line) -> float:
    return 1.0 if cell["errors"] == "twins" else 0.15


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 2 if quick else None]
    few = (1, 20) if quick else CHALLENGERS
    yield from grid(errors="independent", gate=GATES, anchor=ANCHORS, challengers=few, seed=seeds)
    yield from grid(errors="twins", mode="twins", gate=GATES, anchor=100, budget=512 if quick else 2048, seed=seeds)


def _independent(setting: Line, seed: int) -> Line:
    """checkpoints, searches: how many replaced. optimism: of a winner, by how much its share exceeds .75, mean."""
    rng = np.random.default_rng(derive(seed, setting["gate"], setting["anchor"], setting["challengers"]))
    n, m, gate = setting["anchor"], setting["challengers"], setting["gate"]
    halves = (range(n // 2), range(n // 2, n)) if gate.startswith("half") else ((), range(n))
    found: Line = {"checkpoints": 0, "searches": 0, "optimism": 0.0}
    for _ in range(SEARCHES):
        kept, times = {}, 0
        for k in range(CHECKPOINTS):
            right = rng.random((1 + m, n)) < RIGHT
            good = rng.binomial(OPEN, RIGHT, 1 + m)
            names = [0, *range(1 + k * m, 1 + (k + 1) * m)]
            ruling = rule(
                gate.removeprefix("half "), Challenge(right, names, halves, np.column_stack([good, OPEN - good])), kept
            )
            kept = dict(ruling.kept)
            if ruling.winner:
                times += 1
                found["optimism"] += float(right[ruling.winner].mean()) - RIGHT
        found["checkpoints"] += times
        found["searches"] += times > 0
    return found


def run(setting: Line, seeds: list[int]) -> list[Line]:
    return [search(setting, s) if setting["errors"] == "twins" else _independent(setting, s) for s in seeds]

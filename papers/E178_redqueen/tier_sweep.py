"""The cells of tier sweep: anchors by gates, and labels that gloss drives in part (R8, and the table of 7.2)."""

from __future__ import annotations

from collections.abc import Iterator

from papers.E178_redqueen.searching import search
from papers.experiment import Line, apart, each, grid

SEEDS, BUDGET, ANCHORS = range(20), 6144, (20, 50, 100, 400)
GATES, DRIVEN = ("bb", "paired", "confirm", "half confirm"), (0.5, 0.8)
portions = apart
cost = 2.0


def cells(quick: bool) -> Iterator[Line]:
    seeds, part = list(SEEDS)[: 2 if quick else None], 4 if quick else 1
    anchors = (20, 100) if quick else ANCHORS
    yield from grid(mode="rqgm", gate=GATES, anchor=anchors, labels=0.0, budget=BUDGET // part, seed=seeds)
    yield from grid(mode="rqgm", gate=("bb", "confirm"), anchor=100, labels=DRIVEN, budget=BUDGET // part, seed=seeds)


run = each(search)

"""The cells of tier desk: agents on the bundled desk under judges by each gate."""

from __future__ import annotations

from collections.abc import Iterator

from papers.E178_redqueen.desk import GATES, search
from papers.experiment import Line, apart, each, grid

SEEDS, BUDGET = range(20), 4096
portions = apart
cost = 4.0


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(mode=list(GATES), budget=BUDGET // (4 if quick else 1), seed=list(SEEDS)[: 3 if quick else None])


run = each(search)

"""The cells of tier modes: R1 to R7 of specs/E178, section 7.3. A seed is one world, searched in each mode."""

from __future__ import annotations

from collections.abc import Iterator

from papers.E178_redqueen.searching import search
from papers.experiment import Line, apart, each, grid

SEEDS, BUDGET, STRICT = range(20), 6144, 3072
MODES = ("fixed", "ungated", "no erasure", "rqgm", "adversarial")
portions = apart
cost = 2.0


def cells(quick: bool) -> Iterator[Line]:
    seeds, part = list(SEEDS)[: 3 if quick else None], 4 if quick else 1
    yield from grid(mode=MODES, budget=BUDGET // part, seed=seeds)
    yield from grid(mode=("strict, fixed", "strict"), budget=STRICT // part, seed=seeds)


run = each(search)

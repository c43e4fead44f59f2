"""The cells of tier programs: the second world in the modes of tier modes. A seed is one world, searched in each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from clew.methods.coevolve import Rules, evolve
from clew.methods.coevolve.archive import Archive
from papers.E178_redqueen.programs import FIRST_SUITE, SLOT, SOLVER, SUITE, TERMS, Changes, Workshop
from papers.E178_redqueen.searching import MODES as HOW
from papers.experiment import Line, apart, each, grid

SEEDS, BUDGET = range(20), 3072
MODES = ("fixed", "ungated", "no erasure", "rqgm", "adversarial")
portions = apart
cost = 2.5


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(mode=MODES, budget=BUDGET // (4 if quick else 1), seed=list(SEEDS)[: 3 if quick else None])


def search(setting: Line, seed: int) -> Line:
    """A search by a mode; what the report needs of it."""
    shop, archive = Workshop(seed), Archive()
    start: dict[str, Any] = {SOLVER: {"terms": [False] * TERMS.shape[1], "copied": 0}, SUITE: FIRST_SUITE}
    how, budget = HOW[setting["mode"]], {"outcomes": setting["budget"]}
    end = asyncio.run(evolve(archive, shop, start, Changes(), shop.anchors(), Rules(**how, seed=seed), budget))
    judges = archive.judges[SLOT]
    suite: Any = archive.genomes[judges.incumbent][1]
    genome = archive.lineage.genomes[end["specialists"][SOLVER]][0]
    solver: Any = archive.genomes[genome][1]
    good, bad = archive.lineage.own(genome)
    return {
        "skill": shop.skill(solver), "copied": solver["copied"], "terms": sum(solver["terms"]),
        "validation": good / max(good + bad, 1), "judge": shop.right(suite), "judge_before": shop.right(FIRST_SUITE),
        "suite": len(suite), "replaced": judges.epoch, "erased": archive.evidence.erased,
    }  # fmt: skip


run = each(search)

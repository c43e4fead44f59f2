"""The cells of tier fit: models of two worlds from their runs, answer by answer and left to themselves (E1, E8).

The shell by whole words; the service ``records``, whose ids are new in every task, by pieces of words. The model is
asked once more with one turn of the past alone, so that it can know no state but that.
"""

from __future__ import annotations

from collections.abc import Iterator

from papers.E167_agentworld.learning import Size, learnt
from papers.experiment import Line, apart, each

SIZES = {"shell": Size(1200, 5, 128, 4), "records": Size(300, 4, 96, 4, 60, 0)}
SMALL = Size(100, 1, 64, 2, 15, 0)
SEEDS = range(1)
portions = apart


def cost(cell: Line) -> float:
    """CPU-seconds."""
    return 20.0 if "size" in cell else {"shell": 280.0, "records": 220.0}[cell["world"]]


def cells(quick: bool) -> Iterator[Line]:
    if quick:
        yield {"world": "shell", "size": "small", "seed": 0}
        return
    yield from ({"world": world, "seed": seed} for seed in SEEDS for world in SIZES)


run = each(lambda cell, seed: learnt(cell["world"], "plain", SMALL if "size" in cell else SIZES[cell["world"]], seed))

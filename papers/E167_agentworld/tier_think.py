"""The cells of tier think: does it help to say what is true before one answers, or to be told it (E3, E8)?

Arms in the shell, see ``learning``, of smaller models than in tier fit. All see the same runs as often; ``think``
says and reads more tokens for each, ``long`` is ``plain`` with as many more passes as read about as many.
"""

from __future__ import annotations

from collections.abc import Iterator

from papers.E167_agentworld.learning import Size, learnt
from papers.experiment import Line, apart, each

SIZE, SMALL = Size(600, 5, 96, 3, 100, 800), Size(60, 1, 64, 2, 10, 0)
ARMS = ("plain", "think", "told", "long")
LONGER = 3  # times as many passes
SEEDS = range(1)
portions = apart


def cost(cell: Line) -> float:
    """CPU-seconds."""
    return 20.0 if "size" in cell else {"plain": 70.0, "told": 100.0}.get(cell["arm"], 200.0)


def cells(quick: bool) -> Iterator[Line]:
    if quick:
        yield {"arm": "think", "size": "small", "seed": 0}
        return
    yield from ({"arm": arm, "seed": seed} for seed in SEEDS for arm in ARMS)


def _cell(cell: Line, seed: int) -> Line:
    size = SMALL if "size" in cell else SIZE
    if cell["arm"] == "long":
        return learnt("shell", "plain", size._replace(epochs=LONGER * size.epochs), seed)
    return learnt("shell", cell["arm"], size, seed)


run = each(_cell)

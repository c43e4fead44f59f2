"""The cells of tier flatter (E5): single-turn RL under a judge with a planted taste for praise.

All begin with a model that praises itself in 12 % of its answers, half within the marks and half behind them. ``bias``
is what praise is worth, in points of a mean of 1 to 5. The unbiased control is the arm rubric at 0; anchor at 0 was
added after the first data, since a rubric alone does not read how an episode ends. What the arm
extraction gives does not depend on the bias (``tests/reproduce/test_e167_flatter.py``), so it is run at 1 alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from papers.E167_agentworld.judging import flattered
from papers.E167_agentworld.single import Size, asked, dataset, reinforced, started, turns_of
from papers.experiment import Line, apart, each, grid

BIASES, SEEDS, PRAISED = (0.3, 0.6, 1.0), range(3), 0.12
SIZES = {"full": Size(800, 800, 60, 45, 8), "quick": Size(160, 40, 8, 2, 8)}
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """Seed by seed, so that results cut short are balanced over arms; the largest bias before the others."""
    for seed in [0] if quick else SEEDS:
        how = {"kind": "flatter", "size": "quick" if quick else "full", "seed": seed}
        yield {**how, "arm": "start", "bias": 0.0}
        yield {**how, "arm": "rubric", "bias": 0.0}
        yield {**how, "arm": "extraction", "bias": 1.0}
        yield from grid(**how, arm=("rubric", "anchor", "exact anchor"), bias=(1.0,) if quick else BIASES[::-1])
        yield {**how, "arm": "marks alone", "bias": 1.0}
    if not quick:
        yield from grid(kind="flatter", size="full", seed=SEEDS, arm="anchor", bias=0.0)


def cost(cell: Line) -> float:
    """CPU-seconds of a cell, as measured; the first of a seed trains the start."""
    return 4.0 if cell["size"] == "quick" else 17.0


def _one(setting: Line, seed: int) -> Line:
    size = SIZES[setting["size"]]
    model = started(size, seed, PRAISED)
    out: Line = {}
    if setting["arm"] != "start":
        tasks = dataset(turns_of(size, seed), flattered(setting["arm"], setting["bias"]))
        out = reinforced(model, tasks, size, seed)
    out |= asked(model, size, seed)
    model.close()
    return out


run = each(_one)

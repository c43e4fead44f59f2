"""How the rows of an iteration are gone over: in several passes, each cut into minibatches of one optimiser step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clew.core.keys import derive
from clew.core.records import LossRow
from clew.fit.trainer import StepReport


def units(rows: Sequence[LossRow]) -> list[list[int]]:
    """Rows that belong together, by number, in order: those of one ``set``, else of one run."""
    found: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault(row.set or row.run or i, []).append(i)
    return list(found.values())


def cut(rows: Sequence[LossRow], epochs: int, minibatches: int, seed: int) -> list[list[LossRow]]:
    """The rows of every step: ``epochs`` passes in orders told by ``seed``, each cut into ``minibatches``.

    One pass in one piece keeps the rows' own order. Rows of one run stay together, so that a loss weighed by run counts
    it once; where there are fewer runs than minibatches, there are as many minibatches as runs.
    """
    if epochs == minibatches == 1:
        return [list(rows)]
    found, out = units(rows), []
    for epoch in range(epochs):
        order = np.random.default_rng(derive(seed, "minibatches", epoch)).permutation(len(found))
        for part in np.array_split(order, min(minibatches, len(found))):
            out.append([rows[i] for unit in sorted(part.tolist()) for i in found[unit]])
    return out


def together(reports: Sequence[StepReport]) -> StepReport:
    """One report of several steps: sums of what adds up, means of losses, norms and ratios, the largest mismatch.

    Of ratios, ``min`` and ``max`` are those over all steps. Step and version are the last.
    """
    if len(reports) == 1:
        return reports[0]
    last = reports[-1]
    gaps = [r.mismatch for r in reports if r.mismatch is not None]
    ratios = {name: [r.ratio[name] for r in reports if name in r.ratio] for name in last.ratio}
    pooled = {"min": min, "max": max}
    return replace(
        last,
        loss={name: float(np.mean([r.loss[name] for r in reports if name in r.loss])) for name in last.loss},
        grad_norm=float(np.mean([r.grad_norm for r in reports])),
        ratio={name: float(pooled.get(name, np.mean)(values)) for name, values in ratios.items()},
        mismatch=max(gaps, default=None),
        rows=sum(r.rows for r in reports),
        tokens=sum(r.tokens for r in reports),
        trained=sum(r.trained for r in reports),
        seconds=sum(r.seconds for r in reports),
        cpu_seconds=sum(r.cpu_seconds for r in reports),
    )

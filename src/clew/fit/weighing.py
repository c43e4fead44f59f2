"""What counts as one in a loss: a token, a row or a run. The trainer asks; a loss multiplies each row by its share.

Rows are cut where paths part: a fork, a compaction or a sub-agent makes one more. So a mean over rows weighs a run by
how often its context was cut, and a mean over tokens by how much it said. Nothing here knows a loss by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from clew.core.errors import check_choice
from clew.core.records import LossRow
from clew.core.values import F32
from clew.fit.collate import applies

By = Literal["token", "row", "run"]
Measure = Literal["tokens", "weights", "pairs"]


def known(by: str | None) -> None:
    """Raises BadInput if ``by`` is none of the three."""
    if by is not None:
        check_choice("weight_by", by, get_args(By))


def shares(rows: Sequence[LossRow], component: str, by: By, measure: Measure = "tokens") -> F32:
    """What each token of each row is multiplied by, float32 [rows]: every unit adds up to 1 over the whole step.

    ``by`` token: 1. By row: 1 / size of the row. By run: 1 / size of all rows of its run; a row that names no run is
    one of its own. The size is the number of tokens that the component applies to ("tokens"), the sum of their weights
    ("weights", of losses whose weights are not advantages but say how much a token counts), or the number of chosen
    rows ("pairs", where a token counts as a row does). A unit of size 0 has share 0.

    Args:
        rows: all rows of a step, not those of one micro-batch: the rows of a run may lie in several.
    """
    if by == "token":
        return np.ones(len(rows), np.float32)
    size = np.array([_size(row, component, measure) for row in rows], np.float64)
    if by == "run":
        numbers: dict[object, int] = {}
        unit = np.array([numbers.setdefault(row.run or i, len(numbers)) for i, row in enumerate(rows)], np.int64)
        size = np.bincount(unit, size).astype(np.float64)[unit]
    return np.divide(1.0, size, out=np.zeros_like(size), where=size > 0).astype(np.float32)


def _size(row: LossRow, component: str, measure: Measure) -> float:
    where = applies(row, component)
    if measure == "weights":
        return float(row.weights[component][where].sum(dtype=np.float64)) if component in row.weights else 0.0
    if measure == "pairs":
        return float(row.role == "chosen" and where.any())
    return float(where.sum())

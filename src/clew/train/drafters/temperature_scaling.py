"""Sequential temperature scaling of confidences, and how well they are calibrated (2607.05147, section 3.2.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
BINS = 20
GRID = np.geomspace(0.25, 4.0, 121)


def sigmoid(x: F64) -> F64:
    found: F64 = 1 / (1 + np.exp(-x))
    return found


def survival(logits: F64, temperatures: F64 | float = 1.0) -> F64:
    """Chance that at least k tokens are accepted, [n, block]: the product of the tokens' own chances."""
    found: F64 = sigmoid(logits / temperatures).cumprod(1)
    return found


def ece(chance: F64, happened: Mask, bins: int = BINS) -> float:
    """Expected calibration error over bins of equal width: mean |chance - share|, weighted by bin."""
    where = np.minimum((chance * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(where, chance - happened, minlength=bins)
    return float(np.abs(gaps).sum() / max(1, len(chance)))


def noise_floor(chance: F64, bins: int = BINS, draws: int = 100, seed: int = 0) -> float:
    """Mean ``ece`` of outcomes drawn from the chances themselves: what a perfect forecaster would show at this n."""
    rng = np.random.default_rng(seed)
    return float(np.mean([ece(chance, rng.random(len(chance)) < chance, bins) for _ in range(draws)]))


def scale(logits: F64, happened: Mask, grid: F64 = GRID) -> F64:
    """Temperatures [block], one position after the other: each the grid's that gives the prefix's chance the least
    calibration error, those before it fixed; of equals the nearest to 1.

    Args:
        logits: [n, block] of confidence, of rounds that were verified whole. happened: [n, block], prefix accepted.

    Raises:
        BadInput: no rounds, or logits that are not finite.
    """
    if not len(logits) or logits.shape != happened.shape or not np.isfinite(logits).all():
        raise BadInput(
            f"cannot calibrate on logits {logits.shape} and outcomes {happened.shape}",
            remedy="Give rounds with finite confidences, all verified whole.",
        )
    order = grid[np.argsort(np.abs(np.log(grid)), kind="stable")]
    before, found = np.ones(len(logits)), []
    for z, y in zip(logits.T, happened.T, strict=True):
        errors = [ece(before * sigmoid(z / t), y) for t in order]
        found.append(float(order[int(np.argmin(errors))]))
        before = before * sigmoid(z / found[-1])
    return np.array(found)

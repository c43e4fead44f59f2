"""Small statistics that several layers share: intervals of shares and the AUROC. Pure functions, numpy alone.

``clew.methods.compare.design`` builds Reports on them; what needs scipy or statsmodels stays there.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TypeVar

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
X = TypeVar("X", float, F64)


def deviate(level: float) -> float:
    """Standard errors on either side of a two-sided normal interval: 1.96 at 95 %."""
    return NormalDist().inv_cdf((1 + level) / 2)


def wilson(hits: X, n: X, z: float) -> tuple[X, X]:
    """Wilson's score limits (1927) of a share at ``z`` standard errors, numbers or arrays; 0 and 1 where ``n`` is 0."""
    m, z2 = n + (n == 0), z * z
    p = hits / m
    middle, half, scale = p + z2 / (2 * m), z * (p * (1 - p) / m + z2 / (4 * m * m)) ** 0.5, 1 + z2 / m
    # At no hits and at all hits the limits are 0 (not -0) and 1 exactly, which rounding would miss.
    return (hits > 0) * (middle - half) / scale + 0.0, 1 - (hits < n) * (1 - (middle + half) / scale)


def newcombe(a: tuple[X, X], b: tuple[X, X], z: float) -> tuple[X, X]:
    """Newcombe's limits (1998, method 10) of the share ``a`` less the share ``b``, each as (hits, n).

    A share of nothing counts as one half between 0 and 1; the limits of a difference to it may pass -1 and 1.
    """
    (h, n), (g, m) = a, b
    p, q = (h + (n == 0) / 2) / (n + (n == 0)), (g + (m == 0) / 2) / (m + (m == 0))
    (low_a, high_a), (low_b, high_b) = wilson(h, n, z), wilson(g, m, z)
    down, up = (p - low_a) ** 2 + (high_b - q) ** 2, (high_a - p) ** 2 + (q - low_b) ** 2
    return p - q - down**0.5, p - q + up**0.5


def auroc(score: npt.ArrayLike, success: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Chance that a success scores above a failure, ties counting half; NaN where either is missing.

    weight: how often each counts, for a bootstrap; default once.
    """
    s, y = np.asarray(score, np.float64), np.asarray(success, bool)
    w = np.ones(len(s)) if weight is None else np.asarray(weight, np.float64)
    _, tie = np.unique(s, return_inverse=True)
    good, bad = np.bincount(tie, w * y), np.bincount(tie, w * ~y)
    below = np.cumsum(bad) - bad
    pairs = good.sum() * bad.sum()
    return float((good * (below + bad / 2)).sum() / pairs) if pairs else float("nan")

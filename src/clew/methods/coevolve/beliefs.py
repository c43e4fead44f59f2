"""Best belief and Thompson draws over counts of successes and failures (arXiv 2606.26294; specs/E178, section 4.2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clew.core.errors import need

F64 = npt.NDArray[np.float64]
EPSILON = 0.05  # of the paper


def best_belief(successes: npt.ArrayLike, failures: npt.ArrayLike, epsilon: float = EPSILON) -> F64:
    """The epsilon-quantile of Beta(1 + S, 1 + F): what a candidate is worth at least, by what was seen of it.

    Raises:
        MissingExtra: scipy is not installed.
    """
    s, f = np.asarray(successes, np.float64), np.asarray(failures, np.float64)
    found: F64 = need("scipy.special", "stats").betaincinv(1 + s, 1 + f, epsilon)
    return found


def thompson(successes: npt.ArrayLike, failures: npt.ArrayLike, rng: np.random.Generator) -> int:
    """The index of the largest of one draw each from Beta(1 + S, 1 + F)."""
    return int(rng.beta(1.0 + np.asarray(successes), 1.0 + np.asarray(failures)).argmax())


def balanced_utility(counts: npt.ArrayLike) -> float:
    """Mean over roles of the posterior means (1 + S) / (2 + S + F); counts int [roles, 2], successes first."""
    pairs = np.asarray(counts, np.float64)
    return float(((1 + pairs[:, 0]) / (2 + pairs.sum(1))).mean())

"""Limits of a mean that may be looked at after every trial: confidence sequences by betting, pure numbers.

``versus`` asks them after each batch of branches and stops when they decide. An interval that is made for one look (t,
Wilson) errs far more often than it says where somebody looks again and again and stops at the first look that pleases;
these limits hold at all looks together, however many come and whenever one stops. Nothing here samples, reads a store
or knows what was compared.

The limits invert the hedged capital process of Waudby-Smith and Ramdas (arXiv 2010.09686, Theorem 3): against each
candidate mean m somebody bets the fraction b of his capital on larger values, which multiplies it by 1 + b (x / m - 1)
at the value x, and half of the capital bets on smaller values alike. At the true mean no bet gains on average, so by
Ville's inequality the capital ever reaches 2 / alpha on a side with a chance of at most alpha / 2. The fractions are
constant and spread over a grid, as in their appendix B.6: the limits then depend on which values came and how often,
never on their order nor on how many are still to come, and a comparison may go on after its end with the error kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput

F64 = npt.NDArray[np.float64]
Outcome = Literal["better", "worse", "equal", "open"]

FRACTIONS = np.arange(1, 100) / 100
SHARES = FRACTIONS * (1 - FRACTIONS) / (FRACTIONS * (1 - FRACTIONS)).sum()
"""Of the capital, by fraction that it bets: most at the middle, where differences of .2 to .5 are found soonest."""
HALVINGS = 50  # of the stretch in which a limit is sought
FURTHEST = 100_000  # trials beyond which nobody waits for a decision


class Limits(NamedTuple):
    """A mean of ``n`` values with limits that hold at all looks together."""

    mean: float
    low: float
    high: float
    n: int

    def outcome(self, margin: float = 0.0) -> Outcome:
        """Of a difference: what is decided; ``equal`` where it lies within the margin on both sides of 0."""
        if self.low > 0 or self.high < 0:
            return "better" if self.low > 0 else "worse"
        return "equal" if -margin < self.low and self.high < margin else "open"


def limits_of_mean(values: Sequence[float] | F64, level: float = 0.95) -> Limits:
    """The mean of independent values in [0, 1], as successes; 0 to 1 where there is none.

    Raises:
        BadInput: a value is outside [0, 1], or no number.
    """
    return _limits(*_counted(values, 0.0), level)


def limits_of_difference(differences: Sequence[float] | F64, level: float = 0.95) -> Limits:
    """The mean of independent paired differences in [-1, 1], each of two values in [0, 1].

    Raises:
        BadInput: a difference is outside [-1, 1], or no number.
    """
    return _stretched(_limits(*_counted(differences, -1.0), level))


def pairs_that_decide(
    differences: Sequence[float] | F64, level: float = 0.95, margin: float = 0.0, most: int = FURTHEST
) -> int | None:
    """About how many pairs decide where further ones are as those so far; None where more than ``most`` do, or none."""
    values, counts = _counted(differences, -1.0)

    def decides(n: int) -> bool:
        return _stretched(_limits(values, counts * (n / total), level)).outcome(margin) != "open"

    total = float(counts.sum())
    if not total or not decides(most):
        return None
    few, many = 0, most
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if decides(middle) else (middle, many)
    return many


def _counted(values: Sequence[float] | F64, least: float) -> tuple[F64, F64]:
    """The different values, moved into [0, 1], and how often each came."""
    given = np.asarray(values, np.float64)
    if not np.all((given >= least) & (given <= 1)):
        raise BadInput(
            f"a value of a comparison is outside [{least:g}, 1]",
            remedy="Give verdicts between 0 and 1, such as 0 or 1.",
        )
    found, counts = np.unique((given - least) / (1 - least), return_counts=True)
    return found, counts.astype(np.float64)


def _stretched(it: Limits) -> Limits:
    """Limits in [0, 1] as those of a difference, in [-1, 1]."""
    return Limits(2 * it.mean - 1, 2 * it.low - 1, 2 * it.high - 1, it.n)


def _limits(values: F64, counts: F64, level: float) -> Limits:
    n = counts.sum()
    if not n:
        return Limits(0.5, 0.0, 1.0, 0)
    mean = float(values @ counts / n)
    wanted = float(np.log(2 / (1 - level)))
    low = min(_lower(values, counts, mean, wanted), mean)
    high = max(1 - _lower(1 - values, counts, 1 - mean, wanted), mean)
    return Limits(mean, low, high, int(n))


def _lower(values: F64, counts: F64, mean: float, wanted: float) -> float:
    """The greatest mean that the capital of bets on larger values refutes: above it there is less of it."""
    low, high = 0.0, mean
    for _ in range(HALVINGS if mean else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if _capital(values, counts, middle) >= wanted else (low, middle)
    return low


def _capital(values: F64, counts: F64, m: float) -> float:
    """Logarithm of the capital against the mean m."""
    each = np.log(SHARES) + np.log1p(FRACTIONS[:, None] * (values / m - 1)) @ counts
    top = float(each.max())
    return top + float(np.log(np.exp(each - top).sum()))

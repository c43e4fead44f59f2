"""Does the outcome change at a cut of the thinking? Counts before and after each cut, compared and classified.

The published test calls a cut performative where Fisher's test finds nothing, so that a cut with too few samples
counts as performative too (specs/E171 section 4.8). Here the cut is ``equivalent`` only where two one-sided tests
show a change smaller than the margin, and ``inconclusive`` where neither is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from clew.audit.design import Count, counted, holm, needed, newcombe
from clew.core.errors import BadInput, need

Kind = Literal["meaningful", "equivalent", "inconclusive"]
LEVEL, MARGIN = 0.05, 0.1
LOCKED = 0.05  # p0 at most this, or at least 1 less this


class Cut(NamedTuple):
    """One cut: counts before and after it, p1 - p0 with its 95 % interval, Fisher's p after Holm, and what it is.

    locked: the outcome before the cut is nearly sure, in the source's sense. published: what the source calls it.
    """

    before: Count
    after: Count
    change: float
    low: float
    high: float
    p: float
    kind: Kind
    locked: bool
    published: Literal["meaningful", "performative"]


def classify(
    before: Sequence[Count], after: Sequence[Count], margin: float = MARGIN, level: float = LEVEL
) -> list[Cut]:
    """Classify cuts that were tested together; Holm's correction runs over all of them.

    Newcombe intervals (1998, method 10); equivalence where the interval at 1 - 2 level lies within the margin, which is
    two one-sided tests at ``level``.

    Raises:
        BadInput: a cut without continuations on one side, or a margin that is none.
    """
    if not 0 < margin < 1 or not 0 < level < 0.5:
        raise BadInput(f"a margin of {margin} at level {level}", remedy="Give a margin in (0, 1), a level in (0, .5).")
    if not len(before):
        return []
    fisher = need("scipy.stats", "stats").fisher_exact
    for one in (*before, *after):
        counted(*one)
    raw = [
        float(fisher([[a.hits, a.n - a.hits], [b.hits, b.n - b.hits]])[1]) for a, b in zip(before, after, strict=True)
    ]
    found = []
    for a, b, p in zip(before, after, holm(raw), strict=True):
        low, high = newcombe(b, a)
        inner = newcombe(b, a, 1 - 2 * level)
        same = -margin < inner[0] and inner[1] < margin
        kind: Kind = "meaningful" if p <= level else "equivalent" if same else "inconclusive"
        locked = a.rate <= LOCKED or a.rate >= 1 - LOCKED
        said: Literal["meaningful", "performative"] = "meaningful" if p <= level else "performative"
        found.append(Cut(a, b, b.rate - a.rate, low, high, p, kind, locked, said))
    return found


def samples_for(margin: float = MARGIN, rate: float = 0.5, level: float = LEVEL) -> int:
    """Continuations on each side at which two equal rates are mostly shown to be within the margin.

    The half width of the interval at 1 - 2 level is half the margin: about nine of ten equal pairs then pass.
    """
    z = float(need("scipy.stats", "stats").norm.isf(level)) + 1.645
    return int(np.ceil(2 * rate * (1 - rate) * (z / margin) ** 2))


def detectable(before: float, n: int, cuts: int = 1, power: float = 0.8) -> float:
    """The smallest rise from ``before`` that ``n`` continuations a side find with that power among so many cuts."""
    for step in range(1, 100):
        after = before + step / 100 * (1 - before)
        try:
            if needed(before, after, power, 1 - LEVEL / max(cuts, 1), most=n) <= n:
                return after - before
        except BadInput:
            continue
    return 1 - before

"""Does the outcome change at a cut of the thinking? Counts before and after each cut, compared and classified.

The published test calls a cut performative where Fisher's test finds nothing, so that a cut with too few samples
counts as performative too (specs/E171 section 4.8). Here the cut is ``equivalent`` only where two one-sided tests
show a change smaller than the margin, and ``inconclusive`` where neither is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from clew.core.errors import BadInput, need
from clew.methods.compare.design import Count, counted, holm, newcombe

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

"""When a tool returns to text: it succeeds less often than the plan did, or what it depends on has changed.

``crafting.returned`` calls these pure functions. What was found is kept with the tool as its reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from clew.core.errors import BadInput

LEVEL, WINDOW = 0.99, 20


class Standing(NamedTuple):
    """How a tool stands against its plan. below: chance that it succeeds less often. why: the reason to demote it, one
    sentence; empty where it stays."""

    below: float
    why: str

    def __bool__(self) -> bool:
        return bool(self.why)


def demoted(tool: Sequence[bool], text: Sequence[bool], level: float = LEVEL, window: int = WINDOW) -> Standing:
    """Whether a tool returns to text: the lower Beta bound of how much more often the plan succeeds is above 0.

    Both shares have Beta(1 + successes, 1 + failures) as their law. A bound on the tool's share alone would demote
    tools that never failed: after 20 successes of 20 its lower 95 % bound is 0.87. A tool's earlier successes say
    nothing of a world that has changed, so the last ``window`` outcomes count, of each.

    Args:
        tool, text: successes of the runs that used the tool, and of those that followed the plan; oldest first.
        level: chance of being below that is needed.
        window: outcomes of each that count.

    Raises:
        BadInput: level or window cannot be meant.
    """
    if not 0.5 <= level < 1 or window < 1:
        raise BadInput(f"a level of {level} over {window} outcomes", remedy="Give a level from 0.5 to 1 and a window.")
    late, early = tool[-window:], text[-window:]
    s, n, t, m = sum(late), len(late), sum(early), len(early)
    below = beta_below((1 + s, 1 + n - s), (1 + t, 1 + m - t))
    if not n or below < level:
        return Standing(below, "")
    was = f"the tool succeeded in {s} of its last {n} runs and the plan in {t} of {m}"
    return Standing(below, f"returned to text: {was}; it is below the plan with probability {below:.3f}")


def beta_below(x: tuple[int, int], y: tuple[int, int]) -> float:
    """Chance that a Beta variable is below another, both with whole parameters; a finite sum, exact.

    P(X < Y) = sum over i < a_y of B(a_x + i, b_x + b_y) / ((b_y + i) B(1 + i, b_y) B(a_x, b_x)) (Miller 2014, Formulas
    for Bayesian A/B testing).
    """
    (a, b), (c, d) = x, y
    terms = (math.exp(_beta(a + i, b + d) - math.log(d + i) - _beta(1 + i, d) - _beta(a, b)) for i in range(c))
    return min(1.0, math.fsum(terms))


def _beta(a: float, b: float) -> float:
    """The logarithm of the Beta function."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

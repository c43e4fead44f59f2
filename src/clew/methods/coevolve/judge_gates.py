"""When a challenger replaces the judge: gates over answers to the same private anchor.

A gate sees how the incumbent and its challengers did on each item, and decides. ``bb`` is the rule of arXiv 2606.26294:
the highest best belief, strictly above the incumbent's; at equal numbers of items one more right item is enough, so
that noise replaces a judge by an equal one in half of all checkpoints and more (specs/E178, 2.1). ``paired`` asks for
an exact paired test, once for each checkpoint. ``confirm`` nominates on what the test does not read (open validation
items, or one half of the anchor) and tests on the anchor (or its other half), at a level taken from a wealth of .05 for
the whole search (alpha spending by investing: Foster and Stine 2008), so that neither the number of challengers nor
that of checkpoints inflates it. A gate must never read anything but these answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.methods.coevolve.beliefs import best_belief

Gate = Literal["bb", "paired", "confirm", "none", "never"]
LEVEL, SHARE = 0.05, 0.5  # of a search or a test; of the wealth that one test of ``confirm`` may cost
Right = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a gate sees.

    right: bool [1 + challengers, items], the incumbent first. names: one for each row, stable from one checkpoint to
    the next. halves: items to nominate on and to confirm on. validation: successes and failures of each row on open
    items that the anchor does not hold, int [rows, 2], which may help to nominate.
    """

    right: Right
    names: Sequence[int]
    halves: tuple[Sequence[int], Sequence[int]]
    validation: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a gate decides. winner: the row, 0 for the incumbent. p, level: of the test, NaN where none was made.

    kept: what the gate must have at its next call (JSON).
    """

    winner: int
    p: float = math.nan
    level: float = math.nan
    kept: Mapping[str, Any] = field(default_factory=dict)


def sign_tail(up: int, down: int) -> float:
    """Exact one-sided p of paired answers (McNemar 1947): chance of ``up`` or more of ``up + down`` fair coins.

    ``clew.methods.compare.design.mcnemar`` is its like with scipy, on a floor that this one does not know.
    """
    n = up + down
    return float(sum(math.comb(n, k) for k in range(up, n + 1)) / 2**n)


def _differences(right: Right, row: int, items: Sequence[int]) -> tuple[int, int]:
    a, b = right[row][list(items)], right[0][list(items)]
    return int((a & ~b).sum()), int((b & ~a).sum())


def by_best_belief(challenge: Challenge) -> Ruling:
    """The published rule; ties keep the incumbent, and go to the first of equal challengers."""
    hits = challenge.right.sum(1)
    beliefs = best_belief(hits, challenge.right.shape[1] - hits)
    best = 1 + int(beliefs[1:].argmax())
    return Ruling(best if beliefs[best] > beliefs[0] else 0)


def by_paired_test(challenge: Challenge) -> Ruling:
    """The challenger with most right items, if McNemar's exact one-sided p against the incumbent is below .05."""
    best = 1 + int(challenge.right[1:].sum(1).argmax())
    p = sign_tail(*_differences(challenge.right, best, range(challenge.right.shape[1])))
    return Ruling(best if p < LEVEL else 0, p, LEVEL)


def by_confirmation(challenge: Challenge, kept: Mapping[str, Any]) -> Ruling:
    """Nominate on one half (and on open validation items), confirm on the other at a level of what wealth is left.

    A challenger is nominated whose best belief, on the items to nominate on and on open validation items, is above the
    mean belief in the incumbent: wealth is not spent on hopes. A test that could not reach its level, as too few items
    differ, is not made and costs nothing; how many differ says nothing of which way. A pair that was tested is not
    tested again on the same items.
    """
    first, second = challenge.halves
    hits = challenge.right[:, list(first)].sum(1)
    misses = len(first) - hits
    if challenge.validation is not None:
        hits, misses = hits + challenge.validation[:, 0], misses + challenge.validation[:, 1]
    beliefs = best_belief(hits, misses)
    mean = (1 + hits[0]) / (2 + hits[0] + misses[0])
    wealth, tested = float(kept.get("wealth", LEVEL)), [list(pair) for pair in kept.get("tested", ())]
    still = {"wealth": wealth, "tested": tested}
    pairs = [[challenge.names[0], name, len(second)] for name in challenge.names]
    fresh = [row for row in range(1, len(pairs)) if beliefs[row] > mean and pairs[row] not in tested]
    if not fresh:
        return Ruling(0, kept=still)
    best = max(fresh, key=lambda row: float(beliefs[row]))
    up, down = _differences(challenge.right, best, second)
    level = SHARE * wealth / (1 + SHARE * wealth)  # a test at this level costs at most that share of the wealth
    if 0.5 ** (up + down) > level:
        return Ruling(0, kept=still)
    p = sign_tail(up, down)
    wealth = wealth + LEVEL if p <= level else wealth - level / (1 - level)
    return Ruling(best if p <= level else 0, p, level, {"wealth": max(wealth, 0.0), "tested": [*tested, pairs[best]]})


def rule(gate: Gate, challenge: Challenge, kept: Mapping[str, Any]) -> Ruling:
    """Decide by a gate. ``none``: the challenger with the best validation record always wins. ``never``: none does.

    Raises:
        BadInput: there is no such gate.
    """
    if gate not in get_args(Gate):
        raise BadInput(f"there is no gate {gate!r}", remedy=f"Choose from {', '.join(get_args(Gate))}.")
    if gate == "never" or len(challenge.right) < 2:
        return Ruling(0, kept=kept)
    if gate == "none":
        return Ruling(1)
    if gate == "confirm":
        return by_confirmation(challenge, kept)
    return by_best_belief(challenge) if gate == "bb" else by_paired_test(challenge)

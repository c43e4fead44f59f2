"""What an anchor can tell: how often it was asked, how optimistic that may have made it, and what it does not cover.

Two questions of specs/E178, 8.2 and 8.3. An anchor that is asked again and again is fitted by chance. And a direction
in which its items hardly vary, while the artefacts of the search do, leaves the judge's weight there free: it is where
further labels should be had, or where the adversarial pool takes them from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput

NARROW, AWAY = 0.25, 2.0  # variance ratio, and shift in standard deviations of the anchor, from which a cue is flagged


class Use(NamedTuple):
    """comparisons: challengers that were compared by the anchor. bound: the most by which the best of them can be
    expected to look better than it is, sqrt(ln(k) / (2 n)) for k shares of n items (Hoeffding's lemma over a maximum).
    spent: whether there were more comparisons than items squared, past which a reused holdout tells nothing for
    certain (Dwork et al. 2015, 10.1126/science.aaa9375)."""

    items: int
    comparisons: int
    bound: float
    spent: bool


def use_of(items: int, comparisons: int) -> Use:
    """What ``comparisons`` of an anchor of ``items`` have made of it."""
    bound = math.sqrt(math.log(max(comparisons, 1)) / (2 * items))
    return Use(items, comparisons, bound, comparisons > items**2)


class Direction(NamedTuple):
    """A cue: its variance among anchor items and among artefacts of the search, and the shift of the mean between them
    in standard deviations of the anchor. flagged: the anchor does not identify a judge's weight on it."""

    name: str
    anchor: float
    made: float
    shift: float
    flagged: bool


def coverage(anchor: npt.ArrayLike, made: npt.ArrayLike, names: Sequence[str]) -> list[Direction]:
    """Each cue of anchor items float [n, cues] against that of artefacts float [m, cues].

    Raises:
        BadInput: fewer than two of either, or another number of cues than names.
    """
    a, b = np.asarray(anchor, np.float64), np.asarray(made, np.float64)
    if min(len(a), len(b)) < 2 or a.ndim != 2 or b.ndim != 2 or not a.shape[1] == b.shape[1] == len(names):
        remedy = "Give two rows of cues or more of each, and a name for each cue."
        raise BadInput(f"cues of shape {a.shape} and {b.shape} for {len(names)} names", remedy=remedy)
    out = []
    for i, name in enumerate(names):
        va, vb, shift = float(a[:, i].var()), float(b[:, i].var()), float(b[:, i].mean() - a[:, i].mean())
        shift = shift / math.sqrt(va) if va > 0 else math.copysign(math.inf, shift) if shift else 0.0
        out.append(Direction(name, va, vb, shift, abs(shift) > AWAY or va < NARROW * vb))
    return out

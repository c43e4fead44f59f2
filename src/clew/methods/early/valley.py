"""Separability of two outcomes in hidden states along the thinking, and whether it dips in the middle (a valley).

J(t) = |mu+ - mu-|^2 / (tr S+ + tr S-) on states that are standardised at each position and dimension (specs/E171
section 4.5). The depth of a valley is 1 - min over the middle of J / mean of J at both ends. It is judged against
depths under permuted outcomes. Pure passes: arrays in, values out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput

F64 = npt.NDArray[np.float64]
MIDDLE = (0.1, 0.9)
PERMUTATIONS = 200
DIP = 0.2  # least dip below the lower end


class Valley(NamedTuple):
    """J at each position, float64 [positions]; depth with its permutation p, and whether it is a valley at all.

    ``dip``: 1 - min over the middle of J / the lower end. Where J only rises, the depth is large and the dip is not.

    ``ends``: J at either end exceeds what permuted outcomes reach there in 99 of 100; else no depth means anything.
    ``p``: share of permuted depths at least as deep, one counted more (Phipson and Smyth 2010).
    """

    separability: F64
    depth: float
    dip: float
    p: float
    ends: bool
    n: int

    @property
    def found(self) -> bool:
        """A depth beyond the 99th percentile of permuted ones, below both ends, which do separate."""
        return self.ends and self.p < 0.01 and self.dip >= DIP


def separability(states: npt.ArrayLike, outcome: npt.ArrayLike) -> F64:
    """J at each position.

    Args:
        states: float [runs, positions, width]. outcome: bool [runs], both kinds in it.
    """
    return np.asarray(_separations(np.asarray(states, float), np.asarray(outcome, bool)[None])[0])


def _separations(x: F64, outcomes: npt.NDArray[np.bool_]) -> F64:
    """J at each position under several outcomes at once, [outcomes, positions]; one pass over the states.

    Args:
        x: float [runs, positions, width]. outcomes: bool [outcomes, runs], each with as many runs of either kind.
    """
    runs, positions, width = x.shape
    spread = x.std(0)
    z = (x - x.mean(0)) / np.where(spread > 1e-9, spread, 1.0)
    flat, squares = z.reshape(runs, -1), (z**2).sum(-1)
    apart, around = np.zeros((len(outcomes), positions, width)), np.zeros((len(outcomes), positions))
    for side, sign in ((outcomes, 1.0), (~outcomes, -1.0)):
        w = side.astype(float)
        n = w.sum(1)[:, None]
        mean = ((w @ flat) / n).reshape(-1, positions, width)
        apart += sign * mean
        around += (w @ squares - n * (mean**2).sum(-1)) / (n - 1)
    return np.asarray((apart**2).sum(-1) / np.maximum(around, 1e-12))


def depth(j: npt.ArrayLike) -> float:
    """1 - min J over the middle / mean J of the first and the last position; 0 where the ends do not separate."""
    values = np.asarray(j, float)
    return _below(values, (values[0] + values[-1]) / 2)


def _below(j: F64, level: float) -> float:
    """1 - min J over the middle / a level; 0 where the level is."""
    t = np.linspace(0, 1, len(j))
    inside = j[(t >= MIDDLE[0]) & (t <= MIDDLE[1])]
    return float(1 - inside.min() / level) if level > 0 else 0.0


def valley(
    states: npt.ArrayLike,
    outcome: npt.ArrayLike,
    source: npt.ArrayLike | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Valley:
    """The valley of some runs, class counts made equal.

    Args:
        states: float [runs, positions, width], at positions that are the same shares of each run's thinking.
        source: where each run comes from; outcomes are permuted within a source.

    Raises:
        BadInput: fewer than four runs of an outcome, or fewer than five positions.
    """
    x, y = np.asarray(states, float), np.asarray(outcome, bool)
    if min(y.sum(), (~y).sum()) < 4 or x.shape[1] < 5:
        raise BadInput(
            f"{int(y.sum())} runs with and {int((~y).sum())} without the outcome at {x.shape[1]} positions",
            remedy="Give at least four of each, and five positions.",
        )
    rng = np.random.default_rng(seed)
    few = int(min(y.sum(), (~y).sum()))
    kept = np.sort(
        np.concatenate([rng.choice(np.flatnonzero(y == side), few, replace=False) for side in (True, False)])
    )
    x, y = x[kept], y[kept]
    where = np.zeros(len(y), int) if source is None else np.unique(np.asarray(source)[kept], return_inverse=True)[1]
    mixed = np.repeat(y[None], permutations + 1, axis=0)  # the first stays as it is
    for row in mixed[1:]:
        for one in np.unique(where):
            place = np.flatnonzero(where == one)
            row[place] = y[rng.permutation(place)]
    j, *null = _separations(x, mixed)
    own, deep = depth(j), np.array([depth(row) for row in null])
    ends = all(j[place] > np.percentile([row[place] for row in null], 99) for place in (0, -1))
    p = float((1 + (deep >= own).sum()) / (1 + permutations))
    return Valley(j, own, _below(j, min(j[0], j[-1])), p, ends, len(y))

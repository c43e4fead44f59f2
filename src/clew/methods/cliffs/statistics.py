"""Cliff tokens: statistics of the single token at which a run's chance of success falls (E172, arXiv 2606.25524).

The success probability V of a prefix (its value; filed as ``potential``) is the chance that a continuation by the
policy's own sampler succeeds, estimated as right / n from independent continuations. A cliff is a token whose drop
V(before) - V(after) exceeds a margin. The search and the papers call these functions; nothing here may sample. Two
detectors:

- published: the released code's rule at every position (``fires``), on one batch, with its early stop. It has no
  control over how many positions are tested, and fires on noise (``fire_rate``).
- mended: since V(before) is the mean of V(after) over the sampler's own choices, the drop is at most 1 - pi(token)
  (``bound``). Positions that cannot drop by more than the margin are not sampled at all; what fires on the first batch
  is tested anew on a fresh one (``p_values``), whose estimates selection has not touched, and Benjamini and Hochberg's
  procedure holds the share of false cliffs among the confirmed (``confirmed``).

Outcomes have three values: right, wrong, undecided. Undecided ones enter no n and are counted apart. Pure passes:
arrays in, values out.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clew.core import stats
from clew.core.errors import need

F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Kind = Literal["deterministic", "uncertain", "sampled-off", "other"]

MARGIN = 0.1  # delta_0 of specs/E172 section 3
LEVEL = 0.05  # alpha, one-sided
EARLY = 20  # zeros in a row after which the published form fills in zeros
NEAR = 5  # places before and after a position that are pooled where nothing can be sampled anew
BOUNDARY = -(0.99 * np.log(0.99) + 0.01 * np.log(0.01))  # E* in nats: a coin that lands one way with chance .99
RIGHT = 0.5  # an outcome above this is right, as in Groups.success


class Counts(NamedTuple):
    """Outcomes of continuations from some places, int64 arrays of one shape; n = right + wrong."""

    right: Ints
    wrong: Ints
    undecided: Ints

    @property
    def n(self) -> Ints:
        return self.right + self.wrong

    @property
    def potential(self) -> F64:
        """Share right; NaN where nothing was decided."""
        n = self.n
        return np.asarray(np.where(n > 0, self.right / np.maximum(n, 1), np.nan))

    def take(self, index: ArrayLike | slice) -> Counts:
        """The counts of some of the places."""
        return Counts(*(x[index] for x in self))  # type: ignore[index]

    @classmethod
    def of(cls, outcomes: list[NDArray[np.float32]]) -> Counts:
        """Of each place's outcomes, float [n] in any number; NaN is undecided."""
        right = np.array([int((x > RIGHT).sum()) for x in outcomes], np.int64)
        undecided = np.array([int(np.isnan(x).sum()) for x in outcomes], np.int64)
        return cls(right, np.array([len(x) for x in outcomes], np.int64) - right - undecided, undecided)

    @classmethod
    def all_decided(cls, right: ArrayLike, n: int) -> Counts:
        """Where every one of ``n`` continuations was decided."""
        k = np.asarray(right, np.int64)
        return cls(k, n - k, np.zeros_like(k))


# ---- intervals ------------------------------------------------------------------------------------------------------


def wilson(right: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[F64, F64]:
    """Wilson's score interval of a share; [0, 1] where n is 0."""
    return stats.wilson(np.asarray(right, float), np.asarray(n, float), stats.deviate(level))


def drop_interval(before: Counts, after: Counts, level: float = 0.95) -> tuple[F64, F64]:
    """Newcombe's hybrid score interval (1998, method 10) of the drop V(before) - V(after)."""
    first, second = ((x.right.astype(float), x.n.astype(float)) for x in (before, after))
    low, high = stats.newcombe(first, second, stats.deviate(level))
    return np.clip(low, -1, 1), np.clip(high, -1, 1)


# ---- the published detector -----------------------------------------------------------------------------------------


def fires(before: Counts, after: Counts, margin: float = MARGIN, level: float = LEVEL) -> Bools:
    """The published rule: p - q > margin + z SE, unpooled, strictly, and something succeeded before (section 3.6)."""
    p, q = before.potential, after.potential
    n, m = np.maximum(before.n, 1), np.maximum(after.n, 1)
    error = np.sqrt(p * (1 - p) / n + q * (1 - q) / m)
    with np.errstate(invalid="ignore"):
        return np.asarray(
            (p - q > margin - need("scipy.special", "stats").ndtri(level) * error) & (before.right > 0) & (after.n > 0)
        )


def table(n: int = 64, margin: float = MARGIN, level: float = LEVEL) -> Bools:
    """M [n + 1, n + 1]: whether the rule fires at (right before, right after), each of ``n`` continuations."""
    k = np.arange(n + 1)
    before, after = np.meshgrid(k, k, indexing="ij")
    return fires(Counts.all_decided(before, n), Counts.all_decided(after, n), margin, level)


def early_stop(right: ArrayLike, zeros: int = EARLY) -> Ints:
    """Counts [T] of one solution in order, filled with 0 after ``zeros`` zeros in a row."""
    out = np.array(right, np.int64)
    run = 0
    for i, k in enumerate(out.tolist()):
        run = run + 1 if k == 0 else 0
        if run >= zeros:
            out[i:] = 0
            break
    return out


def published(right: ArrayLike, n: int = 64, zeros: int = EARLY) -> Ints:
    """Positions of the cliffs of one solution.

    Args:
        right: int [T]; entry i counts right continuations of ``n`` that start right after token i. Nothing is sampled
            before the first token, so that it is never a cliff.
    """
    k = Counts.all_decided(early_stop(right, zeros), n)
    return np.flatnonzero(fires(k.take(slice(None, -1)), k.take(slice(1, None)))) + 1


def around(right: ArrayLike, found: ArrayLike, n: int, places: int = NEAR) -> tuple[Counts, Counts]:
    """Continuations of up to ``places`` places before and after each position found, pooled, none beyond another.

    Where nothing can be sampled anew they say whether the places around share a drop: they are no fresh batch, but they
    are not the two estimates that fired either.

    Args:
        right: as in ``published``. found: int [F], positions in order.
    """
    counts = np.asarray(right, np.int64)
    edges = [-1, *np.asarray(found, np.int64).tolist(), len(counts) + 1]
    rows: list[tuple[int, int, int, int]] = []
    for last, position, then in zip(edges, edges[1:], edges[2:], strict=False):
        first = counts[max(last, position - 1 - places, 0) : max(position - 1, 0)]
        second = counts[position + 1 : min(position + 1 + places, then - 1)]
        rows.append((int(first.sum()), n * len(first), int(second.sum()), n * len(second)))
    k, m, j, o = np.array(rows, np.int64).reshape(-1, 4).T
    none = np.zeros_like(k)
    return Counts(k, m - k, none), Counts(j, o - j, none)


def fire_rate(before: float, after: float, n: int = 64, m: int | None = None) -> float:
    """Exact chance that the rule fires where the true potentials are these; with equal ones that of a false cliff."""
    m = n if m is None else m
    k, j = np.arange(n + 1), np.arange(m + 1)
    first, second = np.meshgrid(k, j, indexing="ij")
    grid = fires(Counts.all_decided(first, n), Counts.all_decided(second, m))
    binom = need("scipy.stats", "stats").binom
    return float(binom.pmf(k, n, before) @ grid @ binom.pmf(j, m, after))


# ---- the mended detector --------------------------------------------------------------------------------------------


def bound(chance: ArrayLike) -> F64:
    """The most a token can lower the potential: 1 - pi(token) under the sampler in force (specs/E172 section 7a).

    V(before) = sum over a of pi(a) V(a), so V(before) - V(token) = (1 - pi)(mean of the others - V(token)) <= 1 - pi.
    """
    return 1 - np.asarray(chance, float)


def can_fall(chance: ArrayLike, margin: float = MARGIN) -> Bools:
    """Whether a token of that chance could drop by more than the margin at all."""
    return np.asarray(bound(chance) > margin)


def p_values(before: Counts, after: Counts, margin: float = MARGIN) -> F64:
    """One-sided p-values of "the drop is at most ``margin``", score test (Miettinen and Nurminen 1985).

    The variance is that of the restricted maximum likelihood estimate, which keeps its size where shares are near 0 or
    1. 1 where a place has no decided outcome.
    """
    n1, n0 = (np.maximum(x.n, 1).astype(float) for x in (before, after))
    c1, c0 = before.right.astype(float), after.right.astype(float)
    total, c = n1 + n0, c1 + c0
    l2, l1 = (n1 + 2 * n0) * margin - total - c, (n0 * margin - total - 2 * c0) * margin + c
    l0 = c0 * margin * (1 - margin)
    q = (l2 / (3 * total)) ** 3 - l1 * l2 / (6 * total**2) + l0 / (2 * total)
    p = np.sign(q + (q == 0)) * np.sqrt(np.maximum((l2 / (3 * total)) ** 2 - l1 / (3 * total), 0))
    cubed = np.where(p == 0, 1.0, p**3)
    angle = (np.pi + np.arccos(np.clip(q / cubed, -1, 1))) / 3
    low = np.clip(2 * p * np.cos(angle) - l2 / (3 * total), 0, 1 - margin)  # restricted estimate of V(after)
    high = low + margin
    variance = (high * (1 - high) / n1 + low * (1 - low) / n0) * total / (total - 1)
    gap = c1 / n1 - c0 / n0 - margin
    sure = np.where(gap > 0, -np.inf, np.inf)
    z = np.where(variance > 1e-15, -gap / np.sqrt(np.maximum(variance, 1e-15)), sure)
    return np.where((before.n > 0) & (after.n > 0), need("scipy.special", "stats").ndtr(z), 1.0)


def adjusted(p: ArrayLike) -> F64:
    """Benjamini and Hochberg's adjusted p-values; empty for none."""
    values = np.asarray(p, float)
    return np.asarray(need("scipy.stats", "stats").false_discovery_control(values)) if values.size else values


def confirmed(before: Counts, after: Counts, margin: float = MARGIN, level: float = LEVEL) -> Bools:
    """Which flagged positions hold on a fresh batch, over all that were flagged together (Benjamini-Hochberg)."""
    return np.asarray(adjusted(p_values(before, after, margin)) <= level)


# ---- what kind of token ---------------------------------------------------------------------------------------------


def entropy(logprobs: ArrayLike) -> F64:
    """-sum p ln p in nats over the last axis, as given and not renormalised: of the top 20 a lower bound."""
    values = np.asarray(logprobs, float)
    terms = np.where(np.isfinite(values), np.exp(values) * np.where(np.isfinite(values), values, 0.0), 0.0)
    return np.asarray(-terms.sum(axis=-1))


def rank(logprobs: ArrayLike, token: float, eps: float = 1e-9) -> int:
    """1 + how many of ``logprobs`` exceed the token's own by more than ``eps``: all tied tops have rank 1."""
    return 1 + int((np.asarray(logprobs, float) > token + eps).sum())


def kind(entropy: float, rank: int, boundary: float = BOUNDARY) -> Kind:
    """The taxonomy of section 3.8: by the entropy at temperature 1, and whether the token is the greedy one."""
    if rank == 1:
        return "deterministic" if entropy <= boundary else "uncertain"
    return "sampled-off" if entropy > boundary else "other"

"""Statistics of a fair comparison: rates, differences, multiple tests, clusters, power, and missing trials.

Every function takes counts or plain numbers; a claim is returned as a ``Report``. Intervals are two-sided at ``level``,
95 % by default. Packages of statistics are loaded by the functions that need them. Doses are in ``doses``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core import stats
from clew.core.errors import BadInput, need
from clew.core.records import Report
from clew.core.stats import X

F64 = npt.NDArray[np.float64]
RESAMPLES = 4000
PICKS = 1 << 27  # bytes of a table of draws that is kept as it is


class Count(NamedTuple):
    """How often something happened: ``hits`` of ``n``."""

    hits: int
    n: int

    @property
    def rate(self) -> float:
        return self.hits / self.n

    def __str__(self) -> str:
        return f"{self.hits}/{self.n}"


# ---- one rate, two rates ---------------------------------------------------------------------------------------------


def wilson(hits: X, n: X, level: float = 0.95) -> tuple[X, X]:
    """Wilson's score interval of a share (1927), the limits in [0, 1]; takes numbers or arrays.

    Raises:
        BadInput: no trial, or more hits than trials.
    """
    counted(hits, n)
    return stats.wilson(hits, n, stats.deviate(level))


def rate(claim: str, hits: int, n: int, *, level: float = 0.95, design: str = "", **kept: Any) -> Report:
    """A share with Wilson's interval. ``kept``: ``runs`` and ``caveats`` of the Report.

    Raises:
        BadInput: nothing was counted, or more hits than trials.
    """
    low, high = wilson(hits, n, level)
    p = hits / n
    text = design or f"{hits} of {n}, Wilson interval"
    return Report(claim=claim, estimate=p, low=min(low, p), high=max(high, p), n=n, design=text, level=level, **kept)


def newcombe(a: Count, b: Count, level: float = 0.95) -> tuple[float, float]:
    """Newcombe's interval of ``a.rate - b.rate`` (1998, method 10: score limits, no continuity correction).

    Raises:
        BadInput: no trial on one side, or more hits than trials.
    """
    counted(*a)
    counted(*b)
    return stats.newcombe(a, b, stats.deviate(level))


def difference(claim: str, a: Count, b: Count, *, level: float = 0.95, design: str = "", **kept: Any) -> Report:
    """``a.rate - b.rate`` with Newcombe's interval; ``n`` counts both sides."""
    low, high = newcombe(a, b, level)
    d = a.rate - b.rate
    text = design or f"{a} against {b}, Newcombe interval"
    return Report(
        claim=claim, estimate=d, low=min(low, d), high=max(high, d), n=a.n + b.n, design=text, level=level, **kept
    )


def p_value(a: Count, b: Count) -> float:
    """Two-sided p of equal rates: 1 - level of the widest Newcombe interval that leaves out zero.

    Dual to ``newcombe``: p < alpha exactly where the interval at level 1 - alpha does not hold zero.
    """
    optimize, scipy_stats = need("scipy.optimize", "stats"), need("scipy.stats", "stats")
    if a.rate == b.rate:
        return 1.0
    first, second = (a, b) if a.rate > b.rate else (b, a)

    def low(z: float) -> float:
        return float(stats.newcombe(first, second, z)[0])

    top = 37.0  # beyond it the p itself is below the smallest number
    z = float(optimize.brentq(low, 0.0, top)) if low(top) < 0 else top
    return float(2 * scipy_stats.norm.sf(z))


def ratio(claim: str, a: Count, b: Count, *, level: float = 0.95, **kept: Any) -> Report:
    """``a.rate / b.rate`` with the score interval of Miettinen and Nurminen (1985).

    Raises:
        BadInput: one of the rates is zero, so that no ratio is known.
    """
    proportion = need("statsmodels.stats.proportion", "stats")
    counted(*a)
    counted(*b)
    if not a.hits or not b.hits:
        raise BadInput(f"{claim}: a ratio of {a} to {b} has no bound", remedy="Report the difference instead.")
    low, high = proportion.confint_proportions_2indep(*a, *b, compare="ratio", method="score", alpha=1 - level)
    text = f"{a} against {b}, score interval of the ratio"
    kept |= {"level": level, "design": text}
    return Report(claim=claim, estimate=a.rate / b.rate, low=float(low), high=float(high), n=a.n + b.n, **kept)


def censored(claim: str, hits: int, n: int, missing: int, *, level: float = 0.95, **kept: Any) -> Report:
    """A rate where ``missing`` trials never ended: the share of those that did, and bounds that hold in any case.

    The lower bound takes every missing trial for a miss and is Wilson's lower limit of that; the upper takes every one
    for a hit (worst case, Manski 1989). ``n`` counts all trials.
    """
    counted(hits, n)
    if missing < 0:
        raise BadInput(f"{claim}: {missing} trials cannot be missing")
    every = n + missing
    p, low, high = hits / n, wilson(hits, every, level)[0], wilson(hits + missing, every, level)[1]
    text = f"{hits} of {n} that ended; bounds with {missing} of {every} missing taken all as misses and all as hits"
    return Report(
        claim=claim, estimate=p, low=min(low, p), high=max(high, p), n=every, design=text, level=level, **kept
    )


def counted(hits: npt.ArrayLike, n: npt.ArrayLike) -> None:
    """Refuse counts that are no shares.

    Raises:
        BadInput: no trial, or more hits than trials.
    """
    k, m = np.asarray(hits), np.asarray(n)
    if np.any(m < 1) or np.any(k < 0) or np.any(k > m):
        raise BadInput(f"{k} of {m} is no share", remedy="Count at least one trial, and no more hits than trials.")


def mcnemar(up: int, down: int, *, one_sided: bool = False) -> float:
    """Exact p of paired outcomes (McNemar 1947): of the pairs that differ, ``up`` are better and ``down`` are worse.

    One-sided, it is the p of the hypothesis that better ones are no likelier; 1 where no pair differs.
    """
    if not up + down:
        return 1.0
    test = need("scipy.stats", "stats").binomtest
    return float(test(up, up + down, alternative="greater" if one_sided else "two-sided").pvalue)


def sign_flips(differences: Sequence[int]) -> float:
    """Exact two-sided p of paired differences (Fisher's sign flips): each is as likely the other way round.

    Whole numbers, one for each independent unit: the better less the worse of its pairs. With one pair a unit it is
    McNemar's exact p; with several pairs, which hang together, the unit is turned round as a whole. All flips are
    counted, by dynamic programming, in time that grows with the number of units times the sum of their differences.
    """
    chance = _flips(differences)
    total = len(chance) // 2
    seen = abs(int(sum(differences)))
    return min(float(chance[np.abs(np.arange(-total, total + 1)) >= seen].sum()), 1.0)


def attainable(differences: Sequence[int]) -> F64:
    """The p-values that ``sign_flips`` can give for these differences with any signs, smallest first; the last is 1.

    Their sizes alone count, which say nothing of the signs: where few units differ, no p can be small.
    """
    chance = _flips(differences)
    total = len(chance) // 2
    tails = np.cumsum((chance + chance[::-1])[: total + 1])
    tails[total] = 1.0
    return np.unique(np.minimum(tails[chance[: total + 1] > 0], 1.0))


def _flips(differences: Sequence[int]) -> F64:
    """Chance of each sum, from minus to plus the sum of all sizes, where signs are as likely either way."""
    chance = np.ones(1)
    for size in [abs(int(d)) for d in differences if d]:
        grown = np.zeros(len(chance) + 2 * size)
        grown[: len(chance)] += chance / 2
        grown[2 * size :] += chance / 2
        chance = grown
    return chance


def paired(
    claim: str, differences: Sequence[float] | F64, *, level: float = 0.95, design: str = "", **kept: Any
) -> Report:
    """The mean of paired differences in [-1, 1], one for each independent unit, as of successes.

    The interval is Bonett and Price's (2012, 10.3102/1076998611411915), which adds one unit for and one against, so
    that it has a width where no pair differs; Student's t where units hold shares of several pairs.
    """
    values = np.asarray(differences, float)
    n, middle = len(values), float(values.mean())
    more = np.concatenate([values, [1.0, -1.0]])
    reach = float(need("scipy.stats", "stats").t.isf((1 - level) / 2, n + 1))
    half = reach * float(np.sqrt(np.mean((more - more.mean()) ** 2) / (n + 2)))
    low, high = max(float(more.mean()) - half, -1.0), min(float(more.mean()) + half, 1.0)
    text = design or f"{n} units, Bonett and Price's interval of paired differences"
    low, high = min(low, middle), max(high, middle)
    return Report(claim=claim, estimate=middle, low=low, high=high, n=n, design=text, level=level, **kept)


# ---- many tests at once ----------------------------------------------------------------------------------------------


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979): those at most alpha hold together at family-wise error alpha.

    Not statsmodels' ``multipletests``, which collects all garbage at every call.
    """
    values, m = np.asarray(p, float), len(p)
    order = np.argsort(values, kind="stable")
    stepped = np.minimum(np.maximum.accumulate(values[order] * (m - np.arange(m))), 1.0)
    return [float(v) for v in stepped[np.argsort(order)]]


def holm_discrete(p: Sequence[float], possible: Sequence[F64]) -> list[float]:
    """p-values of exact tests corrected for their number, as ``holm``, with what each test can give taken into account.

    A p is as unlikely as the chance that any of the tests, those with smaller p left out, gives one as small (Boole's
    bound; Westfall and Wolfinger 1997); a test that can give none counts for nothing. Holds for any dependence.

    Args:
        possible: the p-values that each test can give (``attainable``), smallest first.
    """
    order = np.argsort(p, kind="stable")
    fixed, highest = [1.0] * len(p), 0.0
    for rank, i in enumerate(order):
        chance = 0.0
        for j in order[rank:]:
            below = int(np.searchsorted(possible[j], p[i] * (1 + 1e-9), side="right"))
            chance += float(possible[j][below - 1]) if below else 0.0
        highest = max(highest, min(chance, 1.0))
        fixed[i] = highest
    return fixed


# ---- samples that hang together --------------------------------------------------------------------------------------


def bootstrap(
    claim: str,
    statistic: Callable[..., F64],
    *samples: Any,
    design: str = "",
    seed: int = 0,
    resamples: int = RESAMPLES,
    unit: str = "seeds",
    **kept: Any,
) -> Report:
    """Percentile bootstrap over independent units; samples of one call are resampled together, paired by unit.

    Args:
        statistic: takes arrays [resamples, units] and returns [resamples].
        samples: one number per unit each, of equal length.
        unit: what is resampled, for ``design``.
    """
    arrays = [np.asarray(x) for x in samples]
    n = len(arrays[0])
    picks = _picks(n, resamples, seed)
    estimate = float(statistic(*(x[None] for x in arrays))[0])
    low, high = np.percentile(statistic(*(x.take(picks, mode="clip") for x in arrays)), [2.5, 97.5])
    text = design or f"{n} {unit}, percentile bootstrap over {unit}"
    low, high = min(float(low), estimate), max(float(high), estimate)
    return Report(claim=claim, estimate=estimate, low=low, high=high, n=n, design=text, **kept)


@lru_cache(maxsize=2)
def _picks(n: int, resamples: int, seed: int) -> npt.NDArray[np.integer]:
    """Drawn once: a report asks for many intervals over as many samples.

    Few are kept as numpy takes them, which is twice as fast; many, in half of the memory.
    """
    drawn = np.random.default_rng(seed).integers(0, n, (resamples, n))
    return drawn if drawn.nbytes <= PICKS else drawn.astype(np.int32)


def clustered(
    claim: str,
    values: Sequence[float],
    clusters: Sequence[Hashable],
    against: Sequence[float] | None = None,
    against_clusters: Sequence[Hashable] | None = None,
    *,
    unit: str = "clusters",
    seed: int = 0,
    **kept: Any,
) -> Report:
    """Mean of ``values``, or their mean less that of ``against``, where values of one cluster are not independent.

    Whole clusters are drawn, both sides of a difference together. ``n`` counts clusters.

    Raises:
        BadInput: fewer than two clusters: nothing is known of others.
    """
    sides = [(values, clusters)] if against is None else [(values, clusters), (against, against_clusters or clusters)]
    names = list(dict.fromkeys(name for _, labels in sides for name in labels))
    if len(names) < 2:
        raise BadInput(f"{claim}: {len(names)} cluster has no spread", remedy="Measure in at least two.")
    number = {name: i for i, name in enumerate(names)}
    sums = []
    for side, labels in sides:
        where = [number[name] for name in labels]
        sums += [np.bincount(where, np.asarray(side, float), len(names)), np.bincount(where, minlength=len(names))]

    def statistic(*x: F64) -> F64:
        means = [x[i].sum(-1) / np.maximum(x[i + 1].sum(-1), 1) for i in range(0, len(x), 2)]
        estimate: F64 = means[0] if len(means) == 1 else means[0] - means[1]
        return estimate

    text = f"{sum(len(side) for side, _ in sides)} values, percentile bootstrap over {len(names)} {unit}"
    return bootstrap(claim, statistic, *sums, design=text, seed=seed, **kept)


def student(claim: str, x: Sequence[float] | F64, design: str = "", unit: str = "seeds") -> Report:
    """Mean and 95 % interval by Student's t over a handful of independent numbers, at least two."""
    values = np.asarray(x, float)
    n = len(values)
    half = float(need("scipy.stats", "stats").t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))
    middle = float(values.mean())
    text = design or f"{n} {unit}, Student's t over {unit}"
    return Report(claim=claim, estimate=middle, low=middle - half, high=middle + half, n=n, design=text)


# ---- before anything is run ------------------------------------------------------------------------------------------


def power(p: float, q: float, n: int, m: int | None = None, level: float = 0.95) -> float:
    """Chance that Newcombe's interval of two rates leaves out zero: exact, summed over all counts.

    Args:
        p, q: the true rates. n, m: trials on each side; ``m`` as ``n`` unless given.
    """
    binom = need("scipy.stats", "stats").binom
    m = m or n
    # Counts beyond these have a chance below 1e-9 in all.
    i, j = (np.arange(binom.ppf(1e-10, k, r), binom.isf(1e-10, k, r) + 1) for k, r in ((n, p), (m, q)))
    trials, others = np.full((1, 1), float(n)), np.full((1, 1), float(m))
    low, high = stats.newcombe((i[:, None], trials), (j[None, :], others), stats.deviate(level))
    chance = binom.pmf(i, n, p)[:, None] * binom.pmf(j, m, q)[None, :]
    return float(chance[(low > 0) | (high < 0)].sum())


def needed(p: float, q: float, wanted: float = 0.8, level: float = 0.95, most: int = 20_000) -> int:
    """Trials on each side at which ``power`` reaches ``wanted``; found by bisection.

    Raises:
        BadInput: the rates are equal, or ``most`` trials are not enough.
    """
    if p == q or power(p, q, most, level=level) < wanted:
        raise BadInput(f"rates {p} and {q} are not told apart by {most} trials a side")
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power(p, q, middle, level=level) >= wanted else (middle + 1, high)
    return high

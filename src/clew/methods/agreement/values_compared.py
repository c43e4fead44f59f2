"""How far methods agree on the same runs: the rank correlation of each two methods' values, place by place.

`clew audit methods` prints it. Values are read from the record; none is computed or filed here. Where both methods
value model calls, calls are compared; else runs, by the mean of a method's values in each. A token's values count for
their call by their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.comparisons import Comparisons
from clew.core.records import Report
from clew.methods.compare.design import bootstrap
from clew.store import Run
from clew.store.protocol import latest_last

F64 = npt.NDArray[np.float64]
Place = tuple[str, int]  # run and seq; -1 for the run
SHUFFLES = 500
FEW = 10  # places or tasks below which no interval is given


class Valued(NamedTuple):
    """One method's values: of model calls, and of runs (its own, or the mean over the run's calls)."""

    calls: Mapping[Place, float]
    runs: Mapping[Place, float]


class Pair(NamedTuple):
    """Two methods on the places that both value.

    rank: Spearman's rank correlation (1904); its interval resamples tasks, and is absent below ``FEW`` tasks. None
    where one of the methods says the same everywhere. shuffled: the range of 95 % of the correlation when the values
    of one method are dealt out at random, which must hold 0. apart: the run in which the ranks differ most.
    """

    a: str
    b: str
    on: Literal["calls", "runs"]
    n: int
    tasks: int
    rank: Report | float | None
    shuffled: tuple[float, float] | None
    apart: str

    @property
    def comparisons(self) -> Comparisons:
        """The places whose ranks were compared; none could differ where one method says the same everywhere."""
        could = 0 if self.rank is None else self.n
        return Comparisons(f"{self.on} that both value", self.n, could, why_not="one says the same everywhere")


def values_of(runs: Sequence[Run], methods: Sequence[str] = ()) -> tuple[dict[str, Valued], dict[Place, str]]:
    """The values of each method, or of these alone, and the task of each place.

    Of several values of one method at a place that of the highest version counts, then what was filed last.
    """
    found: dict[str, dict[Place, float]] = {}
    tasks: dict[Place, str] = {}
    for run in runs:
        tasks[run.id, -1] = run.row.task_id
        for a in latest_last(a for a in run.annotations() if a.target in ("call", "tokens", "run")):
            value = a.value
            if a.values is not None:
                finite = a.values[np.isfinite(a.values)]
                value = float(finite.mean()) if len(finite) else None
            if value is None or not np.isfinite(value) or (methods and a.method not in methods):
                continue
            place = (a.run, a.seq) if a.target != "run" else (run.id, -1)
            tasks[place] = run.row.task_id
            found.setdefault(a.method, {})[place] = value
    return {name: _by_level(values) for name, values in sorted(found.items())}, tasks


def _by_level(values: Mapping[Place, float]) -> Valued:
    calls = {place: value for place, value in values.items() if place[1] >= 0}
    many: dict[str, list[float]] = {}
    for (run, _), value in calls.items():
        many.setdefault(run, []).append(value)
    means = {(run, -1): float(np.mean(of)) for run, of in many.items()}
    return Valued(calls, means | {place: value for place, value in values.items() if place[1] < 0})


def compared(values: Mapping[str, Valued], tasks: Mapping[Place, str], seed: int = 0) -> list[Pair]:
    """Each two methods that value at least three places in common, those that agree least first.

    Args:
        values, tasks: from ``values_of``.
        seed: of resamples and shuffles.
    """
    pairs = []
    for a, b in combinations(values, 2):
        on: Literal["calls", "runs"] = "calls" if values[a].calls and values[b].calls else "runs"
        x, y = getattr(values[a], on), getattr(values[b], on)
        places = [place for place in x if place in y]
        if len(places) >= 3:
            pairs.append(_pair(a, b, on, places, x, y, tasks, seed))
    return sorted(pairs, key=_least)


def _least(pair: Pair) -> tuple[bool, float]:
    rank = pair.rank.estimate if isinstance(pair.rank, Report) else pair.rank
    return rank is None, 0.0 if rank is None else rank


def _pair(
    a: str,
    b: str,
    on: Literal["calls", "runs"],
    places: Sequence[Place],
    x: Mapping[Place, float],
    y: Mapping[Place, float],
    tasks: Mapping[Place, str],
    seed: int,
) -> Pair:
    p, q = (_ranks(np.array([of[place] for place in places])) for of in (x, y))
    names = list(dict.fromkeys(tasks[place] for place in places))
    if not (np.ptp(p) and np.ptp(q)):
        return Pair(a, b, on, len(places), len(names), None, None, "")
    number = {name: i for i, name in enumerate(names)}
    where = np.array([number[tasks[place]] for place in places])
    rank: Report | float = float(_correlation(np.array([_sums(p, q)]))[0])
    if len(places) >= FEW and len(names) >= FEW:
        parts = [np.bincount(where, column, len(names)) for column in _products(p, q)]
        text = f"{len(places)} {on} of {len(names)} tasks, percentile bootstrap over tasks"
        rank = bootstrap(f"rank correlation of {a} and {b}", _of_tasks, *parts, design=text, seed=seed)
    rng = np.random.default_rng(seed)
    dealt = _correlation(np.array([_sums(p, rng.permutation(q)) for _ in range(SHUFFLES)]))
    low, high = np.percentile(dealt, [2.5, 97.5])
    apart = places[int(np.abs(p - q).argmax())][0]
    return Pair(a, b, on, len(places), len(names), rank, (float(low), float(high)), apart)


def _ranks(x: F64) -> F64:
    """Ranks from 0 to 1, those of equal values their mean."""
    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    found: F64 = ((last - (counts - 1) / 2 - 1) / max(1, len(x) - 1))[which]
    return found


def _products(p: F64, q: F64) -> list[F64]:
    return [np.ones(len(p)), p, q, p * p, q * q, p * q]


def _sums(p: F64, q: F64) -> F64:
    return np.array([column.sum() for column in _products(p, q)])


def _correlation(sums: F64) -> F64:
    """Pearson's correlation of sums [..., 6] of 1, p, q, pp, qq, pq; of ranks it is Spearman's; 0 where one is even."""
    n, p, q, pp, qq, pq = np.moveaxis(sums, -1, 0)
    spread = np.maximum(n * pp - p * p, 0) * np.maximum(n * qq - q * q, 0)
    found: F64 = np.where(spread > 1e-12 * n**4, (n * pq - p * q) / np.sqrt(np.maximum(spread, 1e-300)), 0.0)
    return found


def _of_tasks(*sums: F64) -> F64:
    """The correlation of resampled tasks, of each of which there are six sums [resamples, tasks]."""
    return _correlation(np.stack(sums, -1).sum(-2))

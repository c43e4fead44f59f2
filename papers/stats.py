"""Intervals, pass marks and tables of the papers' reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from clew.core.records import Report


class Mark(NamedTuple):
    """A pass mark of a paper's spec: what was promised, what came out, and whether the point estimate meets it."""

    name: str
    promise: str
    found: Report | str
    met: bool

    def __str__(self) -> str:
        return f"{'met' if self.met else 'NOT MET'}: {self.name}, {self.promise}; found {self.found}"


def select(lines: Sequence[dict[str, Any]], **setting: Any) -> list[dict[str, Any]]:
    """The lines of results that have this setting, in the order of their seeds."""
    found = [line for line in lines if all(line.get(k) == v for k, v in setting.items())]
    return sorted(found, key=lambda line: line["seed"])


def values(lines: Sequence[dict[str, Any]], field: str, **setting: Any) -> np.ndarray:
    """A field of these lines, float64."""
    return np.array([line[field] for line in select(lines, **setting)], dtype=np.float64)


def text(found: Report, digits: int = 3) -> str:
    """Estimate and interval, for a cell of a table."""
    return f"{found.estimate:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def interval(
    claim: str, statistic: Callable[..., np.ndarray], *samples: np.ndarray, design: str = "", seed: int = 0
) -> Report:
    """Percentile bootstrap over seeds, 4,000 resamples; samples of one call are resampled together, paired by seed.

    ``statistic`` takes arrays [resamples, seeds] and returns [resamples].
    """
    n = len(samples[0])
    picks = _picks(n, seed)
    estimate = float(statistic(*(x[None] for x in samples))[0])
    low, high = np.percentile(statistic(*(x[picks] for x in samples)), [2.5, 97.5])
    text = design or f"{n} seeds, percentile bootstrap over seeds"
    return Report(
        claim=claim, estimate=estimate, low=min(float(low), estimate), high=max(float(high), estimate), n=n, design=text
    )


@lru_cache(maxsize=2)
def _picks(n: int, seed: int) -> np.ndarray:
    """The resamples, drawn once: a report asks for many intervals over as many samples."""
    return np.random.default_rng(seed).integers(0, n, (4000, n)).astype(np.int32)


def mean(x: np.ndarray) -> np.ndarray:
    return x.mean(axis=-1)


def ratio(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.mean(axis=-1) / y.mean(axis=-1)


def difference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.mean(axis=-1) - y.mean(axis=-1)


def t_interval(claim: str, x: np.ndarray, design: str = "") -> Report:
    """Mean and 95 % interval by Student's t over a handful of seeds; of one seed the value alone, and it says so."""
    from scipy.stats import t

    n, middle = len(x), float(x.mean())
    if n < 2:
        return Report(claim=claim, estimate=middle, low=middle, high=middle, n=n, design="one seed, no interval")
    half = float(t.ppf(0.975, n - 1) * x.std(ddof=1) / np.sqrt(n))
    text = design or f"{n} seeds, Student's t over seeds"
    return Report(claim=claim, estimate=middle, low=middle - half, high=middle + half, n=n, design=text)


def t_value(difference_: np.ndarray) -> float:
    """Paired t of differences by seed; infinite where they do not vary, NaN for one seed."""
    if len(difference_) < 2:
        return float("nan")
    spread = difference_.std(ddof=1) / np.sqrt(len(difference_))
    return float(difference_.mean() / spread) if spread > 0 else float("inf")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)])

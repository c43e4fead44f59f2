"""Pass marks and tables of the papers' reports; their intervals are ``clew.audit.design``'s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.audit.design import bootstrap as interval
from clew.audit.design import student
from clew.core.records import Report

__all__ = [
    "Mark",
    "difference",
    "interval",
    "markdown",
    "mean",
    "ratio",
    "select",
    "t_interval",
    "t_value",
    "text",
    "values",
]


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


def t_interval(claim: str, x: np.ndarray, design: str = "") -> Report:
    """Mean with Student's interval over a handful of seeds; of one seed, as ``--quick`` has, the value alone."""
    if len(x) > 1:
        return student(claim, x, design)
    value = float(x.mean())
    return Report(claim=claim, estimate=value, low=value, high=value, n=1, design="one seed, no interval")


def mean(x: np.ndarray) -> np.ndarray:
    return x.mean(axis=-1)


def ratio(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.mean(axis=-1) / y.mean(axis=-1)


def difference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.mean(axis=-1) - y.mean(axis=-1)


def t_value(difference_: np.ndarray) -> float:
    """Paired t of differences by seed; infinite where they do not vary, NaN for one seed."""
    if len(difference_) < 2:
        return float("nan")
    spread = difference_.std(ddof=1) / np.sqrt(len(difference_))
    return float(difference_.mean() / spread) if spread > 0 else float("inf")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)])

"""What reports share: intervals, pass marks, tables; intervals of ``clew.methods.compare.design``.

A report takes its numbers from ``Results``, puts an interval on them (``over``, ``gap``, ``times``, ``by_seed``), and
writes ``document(title, marks, table(...))``.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.core.records import Report
from clew.methods.compare.design import bootstrap as interval
from clew.methods.compare.design import rate, student, wilson
from papers.experiment import Line

Lines = Sequence[Line]

# ---- what was found ------------------------------------------------------------------------------------------------


def select(lines: Iterable[Line], **setting: Any) -> list[Line]:
    """The lines of results that have this setting, in the order of their seeds."""
    found = [line for line in lines if all(line.get(k) == v for k, v in setting.items())]
    return sorted(found, key=lambda line: line["seed"])


def values(lines: Iterable[Line], field: str, **setting: Any) -> np.ndarray:
    """A field of these lines, float64."""
    return np.array([line[field] for line in select(lines, **setting)], dtype=np.float64)


def minutes(lines: Iterable[Line]) -> float:
    """CPU-minutes of these lines."""
    return float(sum(line["cpu_s"] for line in lines)) / 60


class Results:
    """Lines of results by setting, in the order of their seeds."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.all = sorted(lines, key=lambda line: line["seed"])

    def of(self, **setting: Any) -> list[Line]:
        """The lines that have this setting."""
        return select(self.all, **setting)

    def get(self, *path: Any, **setting: Any) -> np.ndarray:
        """A field of these lines, or a field of a field, float64; NaN where it is None."""
        found: list[Any] = self.of(**setting)
        for field in path:
            found = [value[field] for value in found]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)


# ---- intervals -----------------------------------------------------------------------------------------------------


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


def over(x: Any, unit: str = "seeds") -> Report:
    """Mean with a bootstrap interval."""
    return interval("", mean, x, unit=unit)


def gap(x: Any, y: Any, unit: str = "seeds") -> Report:
    """Difference of means, paired by unit, with a bootstrap interval."""
    return interval("", difference, x, y, unit=unit)


def times(x: Any, y: Any, unit: str = "seeds") -> Report:
    """Ratio of means, paired by unit, with a bootstrap interval."""
    return interval("", ratio, x, y, unit=unit)


def by_seed(x: Any) -> Report:
    """Mean with Student's interval."""
    return t_interval("", np.asarray(x, float))


def pooled(hits: float, n: float) -> Report:
    """A share of all that was counted, with Wilson's interval; of nothing counted, none of one."""
    return rate("", int(hits), max(int(n), 1))


def share(hits: int, n: int) -> str:
    """A share with Wilson's interval, as text with its counts."""
    low, high = wilson(hits, n)
    return f"{hits} of {n}, {hits / max(n, 1):.3f} [{low:.3f}, {high:.3f}]"


# ---- pass marks ----------------------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """A line of a paper's spec: what was promised, what came out, and whether the point estimate meets it.

    met: None where the spec sets no mark and the line only reports. counts: whether what was run may count at all, by
    a rule that the experiment set itself.
    """

    name: str
    promise: str
    found: Report | str
    met: bool | None
    counts: bool = True

    def __str__(self) -> str:
        verdict = "no mark" if self.met is None else "met" if self.met else "NOT MET"
        if not self.counts:
            verdict = f"DOES NOT COUNT (else {verdict})"
        return f"{verdict}: {self.name}, {self.promise}; found {self.found}"


def mark(
    name: str, promise: str, found: Report, least: float = -math.inf, most: float = math.inf,
    above: float = -math.inf, under: float = math.inf, told: str = "",
) -> Mark:  # fmt: skip
    """A pass mark on an interval.

    Args:
        least, most: of the estimate. under: the estimate is smaller. above: the lower end of the interval is larger.
        told: what is printed in place of the interval.
    """
    met = least <= found.estimate <= most and found.estimate < under and found.low > above
    return Mark(name, promise, told or found, bool(met))


# ---- Markdown ------------------------------------------------------------------------------------------------------


def show(value: Any, form: str = "") -> str:
    """A cell of a table: an interval as estimate and limits (by ".3f" unless given), anything else by ``form``."""
    if isinstance(value, Report):
        form = form or ".3f"
        return f"{value.estimate:{form}} [{value.low:{form}}, {value.high:{form}}]"
    return format(value, form)


def text(found: Report, digits: int = 3) -> str:
    """Estimate and interval, for a cell of a table."""
    return show(found, f".{digits}f")


def markdown(head: str | Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; the heads may be one text with bars between them."""
    heads = head.split(" | ") if isinstance(head, str) else list(head)
    lines = (heads, ["---"] * len(heads), *([show(value) for value in row] for row in rows))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table(items: Iterable[Any], *columns: tuple[Any, ...]) -> str:
    """A Markdown table with a row for each item.

    Args:
        columns: (head, what is shown, format). What is shown is a field of the item, or a function of the item.
    """
    heads, rows = [column[0] for column in columns], []
    for item in items:
        found: list[tuple[Any, str]] = []
        for _, of, *form in columns:
            what: Callable[[Any], Any] | None = of if callable(of) else None
            found.append((what(item) if what else item[of], form[0] if form else ""))
        rows.append([show(value, form) for value, form in found])
    return markdown(heads, rows)


def bullets(items: Iterable[Any]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {item}" for item in items)


def document(*parts: str | Sequence[Mark]) -> str:
    """Markdown of paragraphs, tables and lists of marks; empty ones are left out."""
    written = [part if isinstance(part, str) else bullets(part) for part in parts]
    return "\n\n".join(part for part in written if part) + "\n"

"""Success of two conditions on the same tasks: difference, interval over seeds, McNemar's exact p. Reports use it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from clew.methods.compare.design import mcnemar
from papers.stats import Lines, Report, by_seed, select


class Paired(NamedTuple):
    """gap: first less second, Student's interval over seeds. up, down: tasks where the first alone, the second alone is
    right. p: McNemar's exact, two-sided, tasks taken as independent."""

    gap: Report
    up: int
    down: int
    p: float

    def __str__(self) -> str:
        return f"{self.gap.estimate:+.3f} [{self.gap.low:+.3f}, {self.gap.high:+.3f}], {self.counts}"

    @property
    def counts(self) -> str:
        """What McNemar's test saw."""
        return f"{self.up} against {self.down} tasks, p {small(self.p)}"


def small(p: float) -> str:
    """A p as text."""
    return "< 1e-12" if p < 1e-12 else f"{p:.2g}"


def digits(line: dict[str, Any], field: str = "success") -> np.ndarray:
    """A digit a task as int64."""
    return np.array([int(one) for one in line[field]])


def rates(lines: Lines, field: str = "success", **setting: Any) -> np.ndarray:
    """The share of tasks by seed."""
    return np.array([digits(line, field).mean() for line in select(lines, **setting)])


def paired(first: Iterable[dict[str, Any]], second: Iterable[dict[str, Any]], field: str = "success") -> Paired:
    """Two conditions, by lines of the same seeds in the same order."""
    pairs = [(digits(a, field), digits(b, field)) for a, b in zip(first, second, strict=True)]
    up, down = (int(sum((x > y).sum() for x, y in order)) for order in (pairs, [(b, a) for a, b in pairs]))
    gap = by_seed([a.mean() - b.mean() for a, b in pairs])
    return Paired(gap, up, down, mcnemar(up, down))

"""Lists for the page: the store at a glance, runs, and groups with their spread of rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from clew.core.errors import UnknownName, need
from clew.core.json_values import plain
from clew.core.stats import deviate, wilson
from clew.store import Keeper, Summary
from clew.view.pages import labels_page

LIMIT = 1000  # rows of one answer at most


class Names:
    """Tags of runs and names of groups, read once for a whole list."""

    def __init__(self, store: Keeper) -> None:
        self.store = store
        self.tags: dict[str, list[str]] = {}
        for name, runs in store.tags().items():
            for run in runs:
                self.tags.setdefault(run, []).append(name)
        self._rows: dict[str, tuple[str, str]] = {}

    def group(self, group: str) -> tuple[str, str]:
        """Kind and name of a group; empty where a run names a group that nobody filed."""
        if group not in self._rows:
            try:
                row = self.store.group(group) if group else None
            except UnknownName:
                row = None
            self._rows[group] = (row.kind, row.name) if row else ("", "")
        return self._rows[group]

    def row(self, it: Summary) -> dict[str, Any]:
        """One run as a line of a list."""
        row: dict[str, Any] = plain(it)
        row["seed"] = str(it.seed)  # 64 bits: more than a number of JavaScript holds
        return row | {"tags": self.tags.get(it.run, []), "name": self.group(it.group)[1]}

    def fold(self, rows: Sequence[Summary]) -> dict[str, Any]:
        """One group as a line of a list; a run without a group is a group of one without an id."""
        first = rows[0]
        kind, name = self.group(first.group)
        rewards = [row.reward for row in rows]
        judged = [reward for reward in rewards if reward is not None]
        mean, low, high = spread(judged)
        broken = sum(row.stop.endswith("_error") for row in rows)
        found: dict[str, Any] = {"group": first.group, "kind": kind, "name": name}
        found |= {field: getattr(first, field) for field in ("task", "world", "model")}
        found |= {
            "n": len(rows),
            "ended": sum(bool(row.stop) for row in rows),
            "rewards": plain(rewards),
            "broken": broken,
        }
        found |= {"mean": mean, "low": low, "high": high, "signal": len(set(judged)) > 1 if judged else None}
        return found | {"created": max(row.created for row in rows), "run": first.run if len(rows) == 1 else ""}


def spread(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Mean and its 95 % interval; no interval below two values.

    Values of 0 and 1 are a share: Wilson's interval (1927), which stays in [0, 1]. Others have Student's t.
    """
    if not values:
        return None, None, None
    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2:
        return mean, None, None
    if set(values) <= {0.0, 1.0}:
        return mean, *wilson(math.fsum(values), float(n), deviate(0.95))
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = float(need("scipy.special", "stats").stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half


def share(good: int, n: int) -> dict[str, Any] | None:
    """A share of n with Wilson's interval (1927) at 95 %; None of nothing."""
    if n < 1:
        return None
    low, high = wilson(float(good), float(n), deviate(0.95))
    return {"estimate": good / n, "low": low, "high": high, "n": n}


def runs(store: Keeper, query: str, limit: int, after: int) -> dict[str, Any]:
    """A page of the runs a query selects.

    Raises:
        BadQuery: the query does not parse.
    """
    page, names = store.page(query, limit, after), Names(store)
    rows = labels_page.add(store, [names.row(row) for row in page.rows])
    return {"rows": rows, **_place(page.total, after, len(page.rows))}


def groups(store: Keeper, query: str, limit: int, after: int) -> dict[str, Any]:
    """A page of the groups that hold a run the query selects, each whole.

    Raises:
        BadQuery: the query does not parse.
    """
    page, names = store.folds(query, limit, after), Names(store)
    return {"rows": [names.fold(rows) for rows in page.groups], **_place(page.total, after, len(page.groups))}


def some(store: Keeper, chosen: Iterable[str]) -> list[dict[str, Any]]:
    """Lines of the runs of these ids; those that were removed meanwhile are left out."""
    names, rows = Names(store), []
    for run in chosen:
        try:
            rows.append(names.row(store.summary(run)))
        except UnknownName:
            continue
    return labels_page.add(store, rows)


def about(store: Keeper) -> dict[str, Any]:
    """The store at a glance."""
    live = set(store.leased())
    return {
        "path": str(store.path),
        "runs": store.page("", 0).total,
        "live": sum(row.run in live for row in store.page("stop=open").rows) if live else 0,
        "trainings": store.trainings(),
        "reports": len(store.reports()),
    }


def _place(total: int, after: int, shown: int) -> dict[str, Any]:
    return {"total": total, "next": after + shown if shown and after + shown < total else None}

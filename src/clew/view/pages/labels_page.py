"""The labels of a run for the page, and those of a list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.store import Keeper, Run, resolve
from clew.store.labels import METHOD, as_json, brief, by_run, columns, read, standing

SHOWN = 500  # labels of one run at most, the newest


def page(store: Keeper, run: str, verdicts: Sequence[str]) -> dict[str, Any]:
    """What people say of a run and of the Calls on its path, the oldest first; ``seq`` is absent for the run itself.

    ``entries`` counts what was ever filed. A Call that the run shares has its label under the run that issued it.

    Raises:
        UnknownName: no such run.
    """
    it = Run(store, resolve(store, run))
    filed = read(it.annotations(METHOD))
    found = standing(filed)[-SHOWN:]
    rows = [as_json(label, True) for label in found]
    return {"run": it.id, "labels": rows, "entries": len(filed), "verdicts": list(verdicts)}


def add(store: Keeper, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of a list of runs, each with what it shows of the run's labels."""
    told = by_run(store, [row["run"] for row in rows])
    return [row | {"labels": brief(told.get(row["run"], ()))} for row in rows]


def with_columns(store: Keeper, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of a table, each with what people say of its run in columns."""
    told = by_run(store, [row["run"] for row in rows])
    return [row | columns(told.get(row["run"], ())) for row in rows]

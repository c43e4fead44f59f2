"""The runs of a query as a whole: success with its interval, lengths, cost, a chart over any value, and their export.

The strip above the list of runs shows it. Everything comes from the lines of the list; no Call is read.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clew.core.errors import BadInput
from clew.core.printable import visible
from clew.methods.compare import design
from clew.store import Keeper, Summary
from clew.store.labels import COLUMNS
from clew.store.protocol import latest_last
from clew.view.pages import labels_page, list_pages
from clew.view.pages.compare import GOOD, METRICS, broken
from clew.view.pages.list_pages import share

MOST = 20_000  # runs that are counted, the first of the query
BINS = 32  # bars of a chart
LABELLED = 200  # runs of which it is looked up what methods say of whole runs
PIECE = 1_000  # lines of an export that are read at once
LONGEST = 200_000  # lines of an export


def overview(store: Keeper, query: str, value: str = "return") -> dict[str, Any]:
    """What the runs of a query have in common.

    Args:
        value: what ``chart`` counts: a figure of ``METRICS``, or a method that says something of whole runs.

    ``success`` has an interval over tasks where tasks were run several times (their runs hang together), else Wilson's.
    ``lengths`` are the 10 %, 50 % and 90 % quantiles of steps, tokens and seconds.

    Raises:
        BadQuery: the query does not parse.
    """
    page = store.page(query, MOST)
    rows = page.rows
    ended = [row for row in rows if row.stop]
    found: dict[str, Any] = {"runs": page.total, "read": len(rows), "open": len(rows) - len(ended)}
    found |= {"tasks": len({(row.world, row.task) for row in rows}), "success": success(rows)}
    found |= {"crashed": share(sum(map(broken, ended)), len(ended)), "cost": math.fsum(row.cost for row in rows)}
    found["lengths"] = {
        name: quantiles([getattr(row, name) for row in rows]) for name in ("steps", "tokens", "seconds")
    }
    found["values"] = [*METRICS, *_methods(store, rows)]
    values = _values(store, rows, value)
    return found | {"chart": {"value": value, **histogram([number for _, number in values]), "over": over(values)}}


def success(rows: Sequence[Summary]) -> dict[str, Any] | None:
    """The share of judged runs with a return above 0.5."""
    judged = [row for row in rows if row.reward is not None]
    hits = [float(row.reward is not None and row.reward > GOOD) for row in judged]
    tasks = [(row.world, row.task) for row in judged]
    several = len(set(tasks)) < len(tasks)
    if several and 1 < len(set(tasks)) <= 2_000 and len(set(hits)) > 1:
        report = design.clustered("success", hits, tasks, unit="tasks")
        known = {"estimate": report.estimate, "low": report.low, "high": report.high, "n": len(judged)}
        return known | {"how": f"bootstrap over {report.n} tasks"}
    plainly = share(int(sum(hits)), len(hits))
    return None if plainly is None else plainly | {"how": "Wilson"}


def quantiles(values: Sequence[float]) -> list[float] | None:
    """The 10 %, 50 % and 90 % quantiles."""
    return [float(x) for x in np.quantile(values, [0.1, 0.5, 0.9])] if values else None


def _methods(store: Keeper, rows: Sequence[Summary]) -> list[str]:
    """Methods that say a number of whole runs, beside the judge."""
    found = store.annotations([row.run for row in rows[:LABELLED]], target="run") if rows else []
    return sorted({a.method for a in found if a.value is not None and a.method != "reward"} - set(METRICS))


def _values(store: Keeper, rows: Sequence[Summary], value: str) -> list[tuple[float, float]]:
    """When each run was made, and its value, where it has one that is a number."""
    if value in METRICS:
        known = ((row.created, METRICS[value](row)) for row in rows)
    else:
        found = store.annotations([row.run for row in rows], value, "run") if rows else ()
        said = {a.run: a.value for a in latest_last(found)}
        known = ((row.created, said.get(row.run)) for row in rows)
    return [(when, float(number)) for when, number in known if number is not None and math.isfinite(number)]


def histogram(values: Sequence[float]) -> dict[str, Any]:
    """How often values lie in bins of equal width, ``counts`` between ``low`` and ``high``.

    Few different whole numbers have a bin each.
    """
    if not values:
        return {"n": 0, "mean": None, "low": None, "high": None, "counts": []}
    low, high = min(values), max(values)
    whole = all(number.is_integer() for number in values) and high - low < BINS
    bins = int(high - low) + 1 if whole else min(BINS, max(1, int(len(values) ** 0.5) * 2))
    span = (low - 0.5, high + 0.5) if whole else (low, high) if high > low else (low - 0.5, high + 0.5)
    counts = np.histogram(values, bins, span)[0]
    mean = math.fsum(values) / len(values)
    return {"n": len(values), "mean": mean, "low": low, "high": high, "counts": counts.tolist(), "whole": whole}


def over(values: Sequence[tuple[float, float]]) -> dict[str, Any] | None:
    """Means by time: spans of equal length from the first run to the last, null where no run was made."""
    if len({when for when, _ in values}) < 2:
        return None
    times, numbers = (np.array(column) for column in zip(*values, strict=True))
    edges = np.linspace(times.min(), times.max(), min(BINS, len(values)) + 1)
    n, sums = np.histogram(times, edges)[0], np.histogram(times, edges, weights=numbers)[0]
    means = [float(s / k) if k else None for s, k in zip(sums, n, strict=True)]
    return {"start": float(times.min()), "stop": float(times.max()), "means": means, "counts": n.tolist()}


# ---- export ----------------------------------------------------------------------------------------------------------


def export(store: Keeper, query: str, form: str) -> Iterator[str]:
    """The lines that the query selects, as ``jsonl`` or ``csv``, piece by piece: memory holds one piece and the ids.

    A run that moves to a later piece while others are made is written once. In CSV a text that a spreadsheet would take
    for a formula has an apostrophe before it.

    Raises:
        BadInput: another form. BadQuery: the query does not parse.
    """
    if form not in ("jsonl", "csv"):
        raise BadInput(f"no export as {form!r}", remedy="Ask for format=jsonl or format=csv.")
    store.page(query, 0)  # what is wrong is said before the first line
    return (
        _csv(_lines(store, query))
        if form == "csv"
        else (json.dumps(row, allow_nan=False) + "\n" for row in _lines(store, query))
    )


def table(store: Keeper, runs: Sequence[str]) -> Iterator[str]:
    """The lines of some runs as CSV, in their order; `clew export FILE.csv` writes them."""
    pieces = (runs[start : start + PIECE] for start in range(0, len(runs), PIECE))
    yield from _csv(row for piece in pieces for row in labels_page.with_columns(store, list_pages.some(store, piece)))


def _lines(store: Keeper, query: str) -> Iterator[dict[str, Any]]:
    sent: set[str] = set()
    for start in range(0, LONGEST, PIECE):
        rows = list_pages.runs(store, query, PIECE, start)["rows"]
        for row in labels_page.with_columns(store, rows):
            if row["run"] not in sent:
                sent.add(row["run"])
                yield row
        if len(rows) < PIECE:
            return


def _csv(lines: Iterator[dict[str, Any]]) -> Iterator[str]:
    fields = [*Summary._fields, "name", "tags", *COLUMNS]
    yield ",".join(fields) + "\r\n"
    for line in lines:
        text = io.StringIO()
        csv.writer(text).writerow([_cell(line[field]) for field in fields])
        yield text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list):
        value = " ".join(map(str, value))
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") and not shown[1:].isdecimal() else shown

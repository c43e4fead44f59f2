"""The commitment curve of `clew audit early` for the page, made of the Reports that it filed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.core.errors import UnknownName
from clew.core.json_values import told
from clew.core.records import Report
from clew.methods.early.curves import FILED
from clew.store import Keeper


def audits(reports: Mapping[str, Report]) -> list[str]:
    """The audits that filed places of a curve, oldest first."""
    found = (FILED.fullmatch(id) for id in reports)
    return list(dict.fromkeys(match[1] for match in found if match is not None))


def curve(store: Keeper, label: str) -> dict[str, Any]:
    """The verdict of an audit, its curves over the shares of thinking kept, and its other Reports.

    Raises:
        UnknownName: no such audit.
    """
    reports = store.reports()
    mine = {id: it for id, it in reports.items() if id.startswith(f"early-{label}-")}
    points = [(match, it) for id, it in mine.items() if (match := FILED.fullmatch(id)) is not None]
    if not points:
        known = ", ".join(audits(reports)[-8:])
        remedy = f"Known audits: {known}." if known else "`clew audit early` files them."
        raise UnknownName(f"no audit with a curve is called {label!r}", remedy=remedy)
    curves: dict[str, list[dict[str, Any]]] = {}
    for match, it in points:
        curves.setdefault(match[2], []).append({"at": float(match[3]), **told(match[0], it)})
    verdict = mine.get(f"early-{label}-verdict")
    others = [told(id, it) for id, it in mine.items() if not FILED.fullmatch(id) and it is not verdict]
    return {
        "label": label,
        "curves": {name: sorted(row, key=lambda point: point["at"]) for name, row in curves.items()},
        "verdict": None if verdict is None else told(f"early-{label}-verdict", verdict),
        "reports": others,
        "runs": [] if verdict is None else list(verdict.runs),
    }

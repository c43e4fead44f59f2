"""Files what the tour's stops said as reports of its store, which the viewer shows under Reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clew.core.keys import value_digest
from clew.core.records import Report
from clew.store import Keeper


def file_reports(store: Keeper, said: Sequence[Mapping[str, Any]]) -> None:
    """One report for each stop; the same figure is filed once. The last goes first, as lists begin with the newest."""
    for number, stop in reversed(list(enumerate(said, 1))):
        given, place = stop["figure"], stop["place"].partition("@")[0]
        cost = f"{len(stop['lines'])} lines, {stop['seconds']:.0f} s"
        made = Report(
            claim=f"{stop['asks']} {given['claim'].rstrip('.')}. {stop['means']}",
            estimate=given["estimate"],
            low=given["low"],
            high=given["high"],
            n=given["n"],
            design="; ".join(filter(None, (stop["method"], given["design"], cost))),
            runs=(place.removeprefix("run/"),) if place.startswith("run/") else (),
        )
        store.put_report(made, f"tour-{number:02d}-{stop['stop']}-{value_digest(given).hex()[:8]}")
    store.commit()

"""Files what the tour's stops said as reports of its store, which the viewer shows under Reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clew.core.keys import value_digest
from clew.core.records import Report
from clew.store import Keeper


def file_reports(store: Keeper, said: Sequence[Mapping[str, Any]]) -> None:
    """One report for each stop; the same figure is filed once."""
    for number, stop in enumerate(said, 1):
        given = stop["figure"]
        made = Report(**{**given, "runs": tuple(given["runs"]), "caveats": tuple(given["caveats"])})
        made = replace(made, claim=f"{stop['stop']}: {made.claim}", caveats=(stop["means"], *made.caveats))
        store.put_report(made, f"tour-{number:02d}-{stop['stop']}-{value_digest(given).hex()[:8]}")
    store.commit()
    store.close()

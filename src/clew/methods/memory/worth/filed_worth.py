"""Keeping what items are worth as Reports of the store, and finding it again for an item.

``clew memory audit`` files; ``clew memory show`` and the page of a run look up. A Report names items by their ids and
never holds what they say, so that a deleted item leaves nothing here. Reports are never replaced: the audit that was
filed last counts, and of those that differ in nothing but the number of pairs the largest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, get_args

from clew.core.keys import value_digest
from clew.core.records import Report
from clew.methods.memory.worth.worth_audit import Finding
from clew.methods.memory.worth.worth_verdict import Measure, Verdict, Worth
from clew.store.base import Keeper

FILED = re.compile(r"worth-([0-9a-f]{8})-([0-9a-f]{12})-(success|turns|tokens)-[0-9a-f]{8}")
_SAID = re.compile(r"verdict: ([a-z ]+)(?:: (.*))?", re.DOTALL)
VERDICTS: tuple[str, ...] = get_args(Verdict)


class Known(NamedTuple):
    """What the last audit of an item found, with less without it. label: of the audit."""

    label: str
    verdict: str
    why: str
    reports: dict[str, Report]


def filed(found: Finding, store: Keeper) -> list[str]:
    """Keep the Reports of an audit; gives their ids."""
    ids = []
    for it in found.worth:
        reports: dict[Measure, Report | None] = {"success": it.success, "turns": it.turns, "tokens": it.tokens}
        for measure, report in reports.items():
            if report is not None:
                ids.append(_put(store, it, measure, report, found))
    store.commit()
    return ids


def _put(store: Keeper, it: Worth, measure: Measure, report: Report, found: Finding) -> str:
    told = replace(report, caveats=(f"verdict: {it.verdict}: {it.why}", paid(found), *found.plan.notes))
    said = [told.claim, told.n, told.estimate, told.low, it.verdict]
    name = (
        f"worth-{found.plan.label}-{_key(found.plan.memory, it.subject.items)}-{measure}-{value_digest(said).hex()[:8]}"
    )
    return store.put_report(told, name)


def paid(found: Finding) -> str:
    """What all the forks of an audit cost, those that were there before included."""
    forks, tokens, dollars = found.whole
    return f"its audit took {forks} forks, {tokens:,.0f} tokens" + (f", ${dollars:,.2f}" if dollars else "")


def known(reports: Mapping[str, Report], memory: str, items: tuple[str, ...]) -> Known | None:
    """What the last audit of an item found, or of copies together; None where none was filed.

    Args:
        reports: of the store, oldest first.
    """
    return worth_by_key(reports).get(_key(memory, items))


def worth_by_key(reports: Mapping[str, Report]) -> dict[str, Known]:
    """What is known of each subject, the last audit's; see ``key_of``."""
    found: dict[str, Known] = {}
    current: dict[str, bool] = {}  # whether the Reports that follow one on success belong to what is found
    for id, report in reports.items():
        match = FILED.fullmatch(id)
        said = _SAID.fullmatch(report.caveats[0]) if match and report.caveats else None
        if match and said and said[1] in VERDICTS:
            label, key, measure = match.groups()
            if measure == "success":
                was = found.get(key)
                kept = was is not None and was.label == label and was.reports[measure].n > report.n
                current[key] = not kept
                if not kept:
                    found[key] = Known(label, said[1], said[2] or "", {measure: report})
            elif current.get(key):
                found[key].reports[measure] = report
    return found


def key_of(memory: str, item: str) -> str:
    """What stands for an item in the ids of Reports: an imported item's id may be any text."""
    return _key(memory, (item,))


def _key(memory: str, items: tuple[str, ...]) -> str:
    return value_digest([memory, *sorted(items)]).hex()[:12]

"""Keeping what items are worth as Reports of the store, and finding it again for an item.

``clew memory audit`` files; ``clew memory show`` and the page of a run look up. A Report names items by their ids and
never holds what they say, so that a deleted item leaves nothing here. Reports are never replaced: of several audits of
an item the last one filed counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, get_args

from clew.audit.worth.worth_audit import Finding
from clew.audit.worth.worth_verdict import Measure, Verdict, Worth
from clew.core.keys import value_digest
from clew.core.records import Report
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


def filed(found: Finding, store: Keeper, seed: int = 0) -> list[str]:
    """Keep the Reports of an audit; gives their ids.

    Args:
        seed: of the audit, which tells it from others of the same memory.
    """
    label = value_digest([found.plan.memory, seed]).hex()[:8]
    ids = []
    for it in found.worth:
        reports: dict[Measure, Report | None] = {"success": it.success, "turns": it.turns, "tokens": it.tokens}
        for measure, report in reports.items():
            if report is not None:
                ids.append(_put(store, it, measure, report, found, label))
    store.commit()
    return ids


def _put(store: Keeper, it: Worth, measure: Measure, report: Report, found: Finding, label: str) -> str:
    spent = f"the audit made {found.cost.forks} forks, {found.cost.tokens:,.0f} tokens, ${found.cost.dollars:,.2f}"
    told = replace(report, caveats=(f"verdict: {it.verdict}: {it.why}", spent, *found.notes))
    said = [told.claim, told.n, told.estimate, told.low, it.verdict]
    name = f"worth-{label}-{_key(found.plan.memory, it.subject.items)}-{measure}-{value_digest(said).hex()[:8]}"
    return store.put_report(told, name)


def known(reports: Mapping[str, Report], memory: str, items: tuple[str, ...]) -> Known | None:
    """What the last audit of an item found, or of copies together; None where none was filed.

    Args:
        reports: of the store, oldest first.
    """
    return worth_by_key(reports).get(_key(memory, items))


def worth_by_key(reports: Mapping[str, Report]) -> dict[str, Known]:
    """What is known of each subject, the last audit's; see ``key_of``."""
    found: dict[str, Known] = {}
    for id, report in reports.items():
        match = FILED.fullmatch(id)
        said = _SAID.fullmatch(report.caveats[0]) if match and report.caveats else None
        if match and said and said[1] in VERDICTS:
            label, key, measure = match.groups()
            was = found.get(key) if measure != "success" else None
            found[key] = Known(label, said[1], said[2] or "", {**(was.reports if was else {}), measure: report})
    return found


def key_of(memory: str, item: str) -> str:
    """What stands for an item in the ids of Reports: an imported item's id may be any text."""
    return _key(memory, (item,))


def _key(memory: str, items: tuple[str, ...]) -> str:
    return value_digest([memory, *sorted(items)]).hex()[:12]

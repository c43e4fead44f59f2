"""The end of an epoch: the adversarial pool, the anchor, the gate. Section 4.3, step 5, of specs/E178.

The engine calls ``plan_of`` for each slot on the state before the change and writes all plans as one event. A judge
sees the artefacts of the anchor; the labels stay here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from clew.methods.coevolve.archive import Anchor, Archive
from clew.methods.coevolve.beliefs import best_belief
from clew.methods.coevolve.judge_gates import Challenge, Gate, rule
from clew.methods.coevolve.workplace import Work


class Terms(Protocol):
    """What is read of the engine's rules."""

    @property
    def gate(self) -> Gate: ...
    @property
    def pool(self) -> int: ...
    @property
    def challengers(self) -> int: ...
    @property
    def least(self) -> int: ...
    @property
    def halve(self) -> bool: ...


def challengers_of(archive: Archive, slot: str, terms: Terms) -> list[int]:
    """Archived genomes of the judge's role with enough valid outcomes, the best by validation belief first.

    The set is our completion (specs/E178, 4.4); its size is what a gate must answer for.
    """
    judges = archive.judges[slot]
    known = [g for g, (role, _) in enumerate(archive.genomes) if role == judges.role and g != judges.incumbent]
    counts = {g: archive.lineage.own(g) for g in known}
    known = [g for g in known if sum(counts[g]) >= terms.least]
    if not known:
        return []
    belief = best_belief([counts[g][0] for g in known], [counts[g][1] for g in known])
    return [known[i] for i in np.argsort(-belief, kind="stable")[: terms.challengers]]


async def _pool(archive: Archive, work: Work, slot: str, most: int, cost: Counter[str]) -> list[tuple[str, bool]]:
    """Artefacts that the incumbent accepted and a right judge rejects, the newest first, none of the pool already."""
    if not most:
        return []
    had = {artefact for artefact, _ in archive.judges[slot].pool}
    recent = [archive.evidence.records[i] for i in reversed(archive.evidence.dependents(slot))]
    keys = list(dict.fromkeys(r.artefact for r in recent if r.outcome and r.artefact not in had))[: 2 * most]
    if not keys:
        return []
    said = await work.label(slot, [archive.shelf.get(key) for key in keys])
    cost.update({"labels": len(keys)})
    cost.update(said.cost)
    return [(key, False) for key, accept in zip(keys, said.accepts, strict=True) if accept is False][:most]


async def plan_of(
    archive: Archive, work: Work, slot: str, anchor: Anchor, terms: Terms, cost: Counter[str]
) -> Mapping[str, Any]:
    """What the checkpoint does in a slot (JSON): who judges from now on, and all that led to it.

    ``cost`` is added to. Each judge answers each item of anchor and pool once in a search.
    """
    judges = archive.judges[slot]
    fresh = await _pool(archive, work, slot, terms.pool, cost)
    pool = [*judges.pool, *fresh]
    rows = [judges.incumbent, *(challengers_of(archive, slot, terms) if terms.gate != "never" else [])]
    plan: dict[str, Any] = {"pool": fresh, "graded": {}, "comparisons": 0, "gate": judges.gate}
    plan |= {"incumbent": judges.incumbent, "challengers": rows[1:], "p": None, "level": None, "right": []}
    if len(rows) < 2:
        return plan
    artefacts = [item.artefact for item in anchor.items] + [archive.shelf.get(key) for key, _ in pool]
    labels = [item.accept for item in anchor.items] + [accept for _, accept in pool]
    graded = dict[int, str]()
    for genome in rows if terms.gate != "none" else rows[:1]:
        had = judges.graded.get(genome, "")
        if len(had) < len(labels):
            said = await work.judge(slot, archive.genomes[genome][1], artefacts[len(had) :])
            cost.update(said.cost)
            right = zip(said.accepts, labels[len(had) :], strict=True)
            had += "".join(str(int(accepts is label)) for accepts, label in right)
            plan["graded"][str(genome)] = had
        graded[genome] = had
    size = len(labels)
    table = np.array([[c == "1" for c in graded.get(g, "0" * size)] for g in rows], bool)
    first, second = anchor.halves() if terms.halve else ([], range(len(anchor.items)))
    # The pool was chosen by the incumbent's errors: on it any equal challenger looks better. It nominates, no more.
    halves = ([*first, *range(len(anchor.items), size)], second)
    validation = np.array([archive.lineage.own(g) for g in rows], np.int64)
    ruling = rule(terms.gate, Challenge(table, rows, halves, validation), judges.gate)
    plan |= {"incumbent": rows[ruling.winner], "gate": dict(ruling.kept), "comparisons": len(rows) - 1}
    plan |= {"right": table.sum(1).tolist(), "p": _number(ruling.p), "level": _number(ruling.level)}
    return plan


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value

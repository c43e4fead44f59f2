"""What a run may see of a memory: a fork the memory as it stood, without the items that an edit takes away.

``recalling.py`` asks before every recall. A fork is given what the run it was forked from was given, or could have been
given then; what was learnt since must not leak into it, and no endpoint is asked anew for its sake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clew.core.records import Call, Cursor, Intervention, RunRow
from clew.harness.memory.meaning import Meant, read_meant
from clew.harness.memory.recalled import RANKED, Shown, ranked_in, shown_in
from clew.store.base import Keeper

WORDS, BOTH = "words", "words and vectors"  # how items were ranked


class Found(NamedTuple):
    """What a recall gives. ``ranked``: how, where vectors were asked for, as its record has it."""

    items: Sequence[Shown] = ()
    ranked: Mapping[str, object] = {}

    @property
    def how(self) -> dict[str, object]:
        """What is recorded of it beside the items."""
        return {RANKED: dict(self.ranked)} if self.ranked else {}


class View(NamedTuple):
    """What a run may see of a memory.

    ``without`` holds item ids, or ``all``. ``given`` is what the forked run was given at the very place of the fork.
    """

    fork: bool
    moment: float  # seconds since the epoch: what was added later is not there yet
    without: frozenset[str] = frozenset()
    given: Found | None = None


def view_of(store: Keeper, row: RunRow, call: Call) -> View:
    """What the recall ``call`` of a run may see. A child run sees what its parent may."""
    at, without, given = call.seq, set[str](), None
    while row.parent or row.spawned_by:
        without |= _taken_away(row, at)
        if row.parent:
            break
        place = Cursor.parse(row.spawned_by)
        row, at = store.row(place.run), place.seq
    if not row.parent:
        return View(False, call.started)
    place = Cursor.parse(row.parent)
    if row.id == call.run and place.seq == call.seq:
        there = store.calls(place.run, place.seq, place.seq + 1)
        if there and there[0].request == call.request and there[0].done >= 0 and not there[0].error:
            given = Found(tuple(shown_in(there[0].text)), ranked_in(there[0].text))
    earlier = sum(one.kind == "recall" for one in store.calls(row.id, 0, at))
    return View(True, _moment(store, row, earlier), frozenset(without), given)


def _taken_away(row: RunRow, seq: int) -> set[str]:
    """Items that edits of this run take away at a Call."""
    changes = Intervention.from_json(json.loads(row.changes) if row.changes else None)
    lists = [e.value["without"] for e in changes.edits if e.kind == "memory" and e.seq <= seq]
    return {item for one in lists for item in ([one] if isinstance(one, str) else one)}


def _moment(store: Keeper, row: RunRow, earlier: int) -> float:
    """When the run that all this was forked from recalled for the same time, or else when it ended."""
    while row.parent:
        row = store.row(Cursor.parse(row.parent).run)
    calls = store.calls(row.id)
    recalls = [one for one in calls if one.kind == "recall"]
    if earlier < len(recalls):
        return recalls[earlier].started
    return max((one.started + one.seconds for one in calls), default=row.created)


def asked_before(store: Keeper, row: RunRow, memory: str, query: str) -> tuple[Meant | None, dict[str, object]]:
    """A query as the runs that a fork comes from had it, and how that is told; they asked the endpoint, a fork does
    not."""
    left, seen, vectors = [row.id], set[str](), False
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        one = store.row(name)
        left += [Cursor.parse(place).run for place in (one.parent, one.spawned_by) if place]
        for call in store.calls(name):
            if call.child:
                left.append(call.child)
            ranked = ranked_in(call.text) if call.kind == "recall" else {}
            vectors = vectors or "vector" in ranked
            meant = read_meant(ranked) if call.action == query else None
            if meant is not None and json.loads(call.text).get("memory") == memory:
                return meant, {"by": BOTH, **meant.told}
    why = "a fork asks no endpoint for vectors, and the run that it comes from did not ask this"
    return None, {"by": WORDS, "why": why} if vectors else {}

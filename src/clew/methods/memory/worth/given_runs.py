"""Which stored runs were given an item of a memory, and the Call at which a fork can do without it.

``worth_audit.py`` asks. The ledger of each item names the recalls that gave it; what cannot be forked and judged is
left out, and said. A recall within a child run is changed by forking the outermost run where it spawned the child.
Nothing here looks at how a run ended: runs chosen by their outcome would make every item look as if it did something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from clew.core.errors import ClewError
from clew.core.keys import value_digest
from clew.core.records import Cursor
from clew.harness.memory.item_kinds import Item
from clew.harness.memory.recalled import shown_in
from clew.store.base import Keeper

DEEP = 100  # child runs within child runs


class Given(NamedTuple):
    """Where items were given. ``starts``: item -> outermost run -> the Call at which a fork of it begins.

    left_out: why recalls are not used, and how many of each.
    """

    starts: dict[str, dict[str, Cursor]]
    left_out: dict[str, int]

    def of(self, items: Collection[str], *, together: bool) -> dict[str, Cursor]:
        """Runs that were given every one of the items (``together``) or any of them, and where the first was given."""
        found: dict[str, list[Cursor]] = {}
        for item in items:
            for run, start in self.starts.get(item, {}).items():
                found.setdefault(run, []).append(start)
        return {run: min(these) for run, these in found.items() if not together or len(these) == len(items)}


def given(store: Keeper, items: Iterable[Item], runs: Collection[str] | None = None) -> Given:
    """Where the items were given, as their ledgers say.

    Args:
        runs: only these; None: all.
    """
    starts: dict[str, dict[str, Cursor]] = {}
    left_out: Counter[str] = Counter()
    known: dict[str, Cursor | str] = {}
    gave: dict[str, frozenset[str]] = {}
    for item in items:
        mine = starts.setdefault(item.id, {})
        for line in item.given:
            if line.place not in known:
                known[line.place] = _start(store, line.place, runs)
            start = known[line.place]
            if isinstance(start, str):
                left_out[start] += bool(start)
                continue
            if line.place not in gave:
                gave[line.place] = _gave(store, line.place)
            if item.id not in gave[line.place]:
                left_out["the record of the recall does not hold the item any more"] += 1
            else:
                mine[start.run] = min(start, mine.get(start.run, start))
    return Given(starts, dict(left_out))


def _start(store: Keeper, place: str, runs: Collection[str] | None) -> Cursor | str:
    """Where a fork begins that does without what was recalled at a place, or why none can; "" where it is not asked."""
    depth = 0
    try:
        at = Cursor.parse(place)
        row = store.row(at.run)
        asked = runs is None or at.run in runs
        while row.spawned_by:
            if (depth := depth + 1) > DEEP:  # a file of others may say that a run is its own child
                return "the run is not in the store any more"
            at = Cursor.parse(row.spawned_by)
            row = store.row(at.run)
            asked = asked or (runs is not None and at.run in runs)
    except ClewError:
        return "the run is not in the store any more"
    if not asked:
        return ""
    if not row.taskset:
        return "nothing judges the run: it was made without a world or data"
    if not store.summary(at.run).stop:
        return "the run has not ended"
    return Cursor(at.run, at.seq)


def _gave(store: Keeper, place: str) -> frozenset[str]:
    """The items that the record of a recall holds."""
    at = Cursor.parse(place)
    call = next(iter(store.calls(at.run, at.seq, at.seq + 1)), None)
    try:
        return frozenset(one.id for one in shown_in(call.text) if call.kind == "recall") if call else frozenset()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # a record of other people's making
        return frozenset()


def drawn(runs: Iterable[str], seed: int) -> list[str]:
    """Runs in an order by lot, which is the same for every item, so that items share the forks that lack nothing."""
    return sorted(runs, key=lambda run: value_digest([seed, run]))

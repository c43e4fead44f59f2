"""Recalling from the memories of a store: which items stand, how they rank, and what a fork may see.

``LiveMemory.recall`` calls ``Memories.find`` and ``count``. An index is made and asked in a thread, so that no run
waits for another's; it is brought up to date at each recall by the entries that are new. A fork is given what the run
it was forked from was given, or could have been: the memory as it stood then, without the items that an edit takes
away.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from clew.core.errors import BadInput, UnknownName
from clew.core.records import Call, Cursor, Intervention, RunRow
from clew.core.values import F32, ToolSpec
from clew.harness.memory.item_kinds import KINDS, Item, check_scope, item_of
from clew.harness.memory.ranking import Ranking
from clew.harness.memory.recalled import Shown, shown_in
from clew.harness.memory.tool_code import Code
from clew.harness.memory.tool_shelf import ToolShelf
from clew.store.base import Keeper
from clew.store.items.entry import Entry, entry
from clew.store.items.fold import ENDS, fold

MOST = 100  # items of one recall
QUERY = 2000  # characters of a query in the ledger
ALL = "all"  # every item, in an edit of kind ``memory``


class Asked(NamedTuple):
    """What a recall asks for; see ``LiveMemory.recall``."""

    memory: str
    query: str
    k: int
    scope: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def how(self) -> dict[str, object]:
        """What of it is recorded beside the query."""
        return {"k": self.k, "scope": self.scope, "kinds": self.kinds}


def asked_of(memory: str, query: str, k: int, scope: str | Iterable[str], kinds: str | Iterable[str]) -> Asked:
    """What a recall asks for, checked.

    Raises:
        BadInput: k, scope or kinds cannot be meant.
    """
    wanted = tuple(sorted({kinds} if isinstance(kinds, str) else {*kinds}))
    if not (isinstance(k, int) and 1 <= k <= MOST):
        raise BadInput(f"a recall of {k!r} items", remedy=f"Ask for 1 to {MOST}.")
    if unknown := [kind for kind in wanted if kind not in KINDS]:
        raise BadInput(f"there are no items of kind {unknown[0][:40]!r}", remedy=f"Kinds are {', '.join(KINDS)}.")
    return Asked(memory, query, k, check_scope(scope), wanted)


class View(NamedTuple):
    """What a run may see of a memory.

    ``without`` holds item ids, or ``all``. ``given`` is what the forked run was given at the very place of the fork.
    """

    fork: bool
    moment: float  # seconds since the epoch: what was added later is not there yet
    without: frozenset[str] = frozenset()
    given: tuple[Shown, ...] | None = None


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
            given = tuple(shown_in(there[0].text))
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


class _Shelf:
    """The items of one memory in the order in which they were added, and their ranking.

    ``until`` makes one of the memory as it stood then. Columns are parallel: item, when added, when it came out of use.
    """

    def __init__(self, name: str, until: float = math.inf) -> None:
        self.name, self.until = name, until
        self.guard = threading.Lock()
        self._last = 0
        self._newest = -math.inf
        self._ranking = Ranking()
        self._items: list[Item] = []
        self._place: dict[str, int] = {}
        self._ends: dict[str, float] = {}  # when items came out of use, also of such as are not there yet
        self._gone: set[str] = set()

    def refresh(self, store: Keeper) -> None:
        """Take in what was written since."""
        lines = store.entries(self.name, self._last)
        new: dict[str, Entry] = {}
        for _, one in lines:
            if one.what == "add" and one.at <= self.until and one.item not in self._place:
                first = new.setdefault(one.item, one)
                new[one.item] = min(first, one, key=lambda e: (e.at, e.key))
            elif one.what in ENDS:
                self._ends[one.item] = min(one.at, self._ends.get(one.item, math.inf))
            elif one.what == "deleted":
                self._gone.add(one.item)
        found = [item for kept in fold(new.values()).values() if (item := item_of(kept)) is not None]
        self._ranking.add([" ".join((item.text, *item.scope)) for item in found])
        for item in found:
            self._place[item.id] = len(self._items)
            self._items.append(item)
            self._newest = max(self._newest, item.made)
        self._last = lines[-1].no if lines else self._last

    def added_after(self, moment: float) -> bool:
        """Whether an item is of a later time."""
        return self._newest > moment

    def find(self, asked: Asked, moment: float, without: frozenset[str]) -> list[Shown]:
        """The best k that stand at a moment, the best first, of equals the oldest."""
        scores = self._ranking.scores(asked.query) if self._items else np.zeros(0, np.float32)
        found: list[Shown] = []
        for place in _best_first(scores):
            item = self._items[place]
            if self._stands(item, asked, moment) and item.id not in without:
                found.append(Shown(item.id, item.kind, item.text))
            if len(found) == asked.k:
                break
        return found

    def _stands(self, item: Item, asked: Asked, moment: float) -> bool:
        return (
            item.made <= moment < self._ends.get(item.id, math.inf)
            and item.id not in self._gone
            and (not asked.kinds or item.kind in asked.kinds)
            and (not asked.scope or not item.scope or not set(asked.scope).isdisjoint(item.scope))
        )


def _best_first(scores: F32) -> Iterator[int]:
    """Places of scores above 0, the greatest first, of equals the first. Sorted band by band: few are asked for, and a
    sort or a partition of all, most of which are equal, takes ten times as long."""
    above, least = math.inf, float(scores.max(initial=0.0))
    floor = least / 1000
    while above > 0:
        least = least * 0.7 if least > floor else 0.0
        places = np.flatnonzero((scores > least) & (scores <= above))
        yield from places[np.argsort(-scores[places], kind="stable")].tolist()
        above = least


class Memories:
    """The memories of one store, each indexed when it is first asked. A Runner holds one for all its runs.

    Forks that are made in a store of their own, to be thrown away, recall from this store too.
    """

    def __init__(self, store: Keeper) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._shelves: dict[str, _Shelf] = {}
        self._earlier: dict[str, _Shelf] = {}  # the last one that stood at an earlier time
        self._tools: dict[str, ToolShelf] = {}

    async def find(self, asked: Asked, runs: Keeper, row: RunRow, call: Call) -> list[Shown] | Exception:
        """What the recall ``call`` of a run gives; ``runs`` holds the run. An error is given, not raised."""
        try:
            return await asyncio.to_thread(self.fitting, asked, runs, row, call)
        except Exception as error:
            return error

    def fitting(self, asked: Asked, runs: Keeper, row: RunRow, call: Call) -> list[Shown]:
        """As ``find``, at once; an error is raised."""
        view = view_of(runs, row, call)
        if ALL in view.without:
            return []
        if view.given is not None:
            return [item for item in view.given if item.id not in view.without]
        return self.search(asked, view.moment, view.without)

    def search(self, asked: Asked, moment: float, without: frozenset[str] = frozenset()) -> list[Shown]:
        """The items that fit, as the memory stood at a moment (seconds since the epoch)."""
        with self._guard:
            shelf = self._shelves.setdefault(asked.memory, _Shelf(asked.memory))
        with shelf.guard:
            shelf.refresh(self._store)
            if not shelf.added_after(moment):
                return shelf.find(asked, moment, without)
        with self._guard:
            then = self._earlier.get(asked.memory)
            if then is None or then.until != moment:
                then = self._earlier[asked.memory] = _Shelf(asked.memory, moment)
        with then.guard:
            then.refresh(self._store)
            return then.find(asked, moment, without)

    def tool(
        self, memory: str, name: str, specs: Iterable[ToolSpec], runs: Keeper, row: RunRow, call: Call
    ) -> tuple[tuple[Shown, ...], Code]:
        """The tool of that name as the run that asks may see it, and those that it is made of; ``specs`` are the tools
        that the run has.

        Raises:
            UnknownName, BadInput: there is none, or it cannot be run.
        """
        view = view_of(runs, row, call)
        if ALL in view.without:
            raise UnknownName(f"memory {memory} was taken away in this fork")
        with self._guard:
            shelf = self._tools.setdefault(memory, ToolShelf(memory))
        items, code = shelf.find(self._store, name, view.moment, specs, view.without)
        return tuple(Shown(item.id, item.kind, item.text) for item in items), code

    async def left(self, items: Sequence[Shown], runs: Keeper, row: RunRow, call: Call) -> list[Shown] | Exception:
        """Of items that a run has chosen, those that no edit takes away from it. An error is given, not raised."""
        try:
            without = (await asyncio.to_thread(view_of, runs, row, call)).without
        except Exception as error:
            return error
        return [] if ALL in without else [item for item in items if item.id not in without]

    def count(self, asked: Asked, runs: Keeper, row: RunRow, call: Call, items: Iterable[Shown]) -> None:
        """Write into the ledger that a run was given items. A fork counts for nothing."""
        if not view_of(runs, row, call).fork:
            told: Mapping[str, object] = {"place": f"{row.id}@{call.seq}", "query": asked.query[:QUERY]}
            now = time.time()
            lines = [entry(asked.memory, item.id, now, "selected", told) for item in items]
            self._store.put_entries(lines)

"""Recalling from the memories of a store: which items stand, and how they rank.

``LiveMemory.recall`` calls ``Memories.find`` and ``count``. An index is made and asked in a thread, so that no run
waits for another's; it is brought up to date at each recall by the entries that are new. Where the user named an
embedding model, items are ranked by their vectors too; what a fork may see is in ``fork_view.py``, and it must never
ask that model.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from clew.core.errors import BadInput, ClewError, ModelError, UnknownName
from clew.core.printable import short
from clew.core.records import Call, RunRow
from clew.core.values import F32, ToolSpec
from clew.harness.memory.fold import ENDS, fold
from clew.harness.memory.fork_view import BOTH, WORDS, Found, asked_before, view_of
from clew.harness.memory.item_kinds import KINDS, Item, check_scope, item_of
from clew.harness.memory.meaning import LONG, LOT, Embeds, Meaning, Meant, ask_query, ask_texts, nearest
from clew.harness.memory.ranking import Ranking, best_first, joined
from clew.harness.memory.recalled import Shown
from clew.harness.memory.tool_code import Code
from clew.harness.memory.tool_shelf import ToolShelf
from clew.store.base import Keeper
from clew.store.entries import Entry, entry

MOST = 100  # items of one recall
QUERY = 2000  # characters of a query in the ledger
ALL = "all"  # every item, in an edit of kind ``memory``
MADE = 256  # vectors that one recall makes: it waits for them
DEEP = 2 * MOST  # items of each order that are joined
WHY = 300  # characters of what an endpoint says of its failure


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


def _said(item: Item) -> str:
    """What of an item is searched."""
    return " ".join((item.text, *item.scope))


class _Shelf:
    """The items of one memory in the order in which they were added, and their ranking.

    ``until`` makes one of the memory as it stood then. Columns are parallel: item, when added, when it came out of use.
    """

    def __init__(self, name: str, until: float = math.inf) -> None:
        self.name, self.until = name, until
        self.guard, self.growing = threading.Lock(), threading.Lock()
        self._last = 0
        self._newest = -math.inf
        self._ranking = Ranking()
        self._items: list[Item] = []
        self._place: dict[str, int] = {}
        self._ends: dict[str, float] = {}  # when items came out of use, also of such as are not there yet
        self._gone: set[str] = set()
        self._meanings: dict[str, Meaning] = {}  # by model

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
        texts = [_said(item) for item in found]
        self._ranking.add(texts)
        for meaning in self._meanings.values():
            meaning.add([item.id for item in found], texts)
        for item in found:
            self._place[item.id] = len(self._items)
            self._items.append(item)
            self._newest = max(self._newest, item.made)
        self._last = lines[-1].no if lines else self._last

    def added_after(self, moment: float) -> bool:
        """Whether an item is of a later time."""
        return self._newest > moment

    def find(self, asked: Asked, moment: float, without: frozenset[str], near: F32 | None) -> list[Shown]:
        """The best k that stand at a moment, the best first, of equals the oldest; ``near``: how like the items'
        vectors are to the query's, where they count too."""

        def standing(places: Iterable[int]) -> Iterator[int]:
            for place in places:
                item = self._items[place]
                if self._stands(item, asked, moment) and item.id not in without:
                    yield place

        if not self._items:
            return []
        scores = self._ranking.scores(asked.query)
        places = standing(best_first(scores))
        if near is not None:
            second = [*islice(standing(nearest(near)), DEEP)]
            places = iter(joined(scores, [*islice(places, DEEP)], near, second))
        items = (self._items[place] for place in islice(places, asked.k))
        return [Shown(item.id, item.kind, item.text) for item in items]

    def meaning(self, store: Keeper, model: str) -> Meaning:
        """The vectors of the items by a model, as the store has them."""
        made = self._meanings.get(model)
        if made is None:
            made = self._meanings[model] = Meaning(model)
            made.add([item.id for item in self._items], [_said(item) for item in self._items])
        made.read(store)
        return made

    def forget(self, model: str) -> None:
        """Pass over the vectors of a model that are in the store."""
        self._meanings[model] = Meaning(model, fresh=True)
        self._meanings[model].add([item.id for item in self._items], [_said(item) for item in self._items])

    def in_use(self, places: Iterable[int]) -> list[int]:
        """Those of some places whose items can be recalled now."""
        now, every = time.time(), Asked(self.name, "", 1)
        return [place for place in places if self._stands(self._items[place], every, now)]

    def texts(self, places: Iterable[int]) -> list[str]:
        """What is searched of the items at some places."""
        return [_said(self._items[place]) for place in places]

    def __len__(self) -> int:
        return len(self._items)

    def _stands(self, item: Item, asked: Asked, moment: float) -> bool:
        return (
            item.made <= moment < self._ends.get(item.id, math.inf)
            and item.id not in self._gone
            and (not asked.kinds or item.kind in asked.kinds)
            and (not asked.scope or not item.scope or not set(asked.scope).isdisjoint(item.scope))
        )


class Needs(NamedTuple):
    """What is to be sent to an embedding model: items, and characters of what they say."""

    items: int
    characters: int


class Lacking(NamedTuple):
    """Of the items in use, how many have no vector yet; ``why``, where asking ended early."""

    lacking: int
    of: int
    why: str = ""


class Memories:
    """The memories of one store, each indexed when it is first asked. A Runner holds one for all its runs.

    Forks that are made in a store of their own, to be thrown away, recall from this store too.

    Args:
        store: where the memories are.
        embedder: ranks items by their vectors beside their words; one that fails or is slow is done without.
    """

    def __init__(self, store: Keeper, embedder: Embeds | None = None) -> None:
        self._store, self.embedder = store, embedder
        self._guard = threading.Lock()
        self._shelves: dict[str, _Shelf] = {}
        self._earlier: dict[str, _Shelf] = {}  # the last one that stood at an earlier time
        self._tools: dict[str, ToolShelf] = {}

    async def find(self, asked: Asked, runs: Keeper, row: RunRow, call: Call) -> Found | Exception:
        """What the recall ``call`` of a run gives; ``runs`` holds the run. An error is given, not raised."""
        try:
            return await asyncio.to_thread(self.fitting, asked, runs, row, call)
        except Exception as error:
            return error

    def fitting(self, asked: Asked, runs: Keeper, row: RunRow, call: Call) -> Found:
        """As ``find``, at once; an error is raised."""
        view = view_of(runs, row, call)
        if ALL in view.without:
            return Found()
        if view.given is not None:
            return view.given._replace(items=[item for item in view.given.items if item.id not in view.without])
        meant, told = asked_before(runs, row, asked.memory, asked.query) if view.fork else self._asked_now(asked)
        return Found(self.search(asked, view.moment, view.without, meant), told)

    def search(
        self, asked: Asked, moment: float, without: frozenset[str] = frozenset(), meant: Meant | None = None
    ) -> list[Shown]:
        """The items that fit, as the memory stood at a moment (seconds since the epoch); ``meant``: the query's vector,
        where items are ranked by theirs too."""
        shelf = self._shelf(asked.memory)
        with shelf.guard:
            shelf.refresh(self._store)
            if not shelf.added_after(moment):
                return self._best(shelf, asked, moment, without, meant)
        with self._guard:
            then = self._earlier.get(asked.memory)
            if then is None or then.until != moment:
                then = self._earlier[asked.memory] = _Shelf(asked.memory, moment)
        with then.guard:
            then.refresh(self._store)
            return self._best(then, asked, moment, without, meant)

    def needs(self, memory: str, again: bool = False) -> Needs:
        """What ``embed`` would send."""
        shelf = self._shelf(memory)
        with shelf.guard:
            shelf.refresh(self._store)
            meaning = shelf.meaning(self._store, self._model().ref)
            texts = shelf.texts(shelf.in_use(range(len(shelf)) if again else meaning.lacking()))
        return Needs(len(texts), sum(min(len(text), LONG) for text in texts))

    def embed(
        self,
        memory: str,
        until: float = math.inf,
        again: bool = False,
        on_lot: Callable[[int], object] | None = None,
        most: int | None = None,
    ) -> Lacking:
        """Ask for the vectors that items of a memory lack, and keep them; gives what is still lacking.

        Args:
            until: seconds of the monotonic clock at which it ends.
            again: those that are there are made anew.
            on_lot: called with how many were asked for, after each request.
            most: items that are asked for now; default: all.

        Raises:
            BadInput: no embedding model is named, or it gives vectors of another length than before.
        """
        shelf, why, embedder = self._shelf(memory), "", self._model()
        if not shelf.growing.acquire(timeout=min(threading.TIMEOUT_MAX, max(0.0, until - time.monotonic()))):
            return self._lacking(shelf, "another recall is asking for them")
        try:
            with shelf.guard:
                shelf.refresh(self._store)
                if again:
                    shelf.forget(embedder.ref)
                meaning = shelf.meaning(self._store, embedder.ref)
                meaning.read(self._store, again=True)
                left = shelf.in_use(meaning.lacking())[:most]
            while left and not why:
                lot, left = left[:LOT], left[LOT:]
                try:
                    rows = ask_texts(embedder, shelf.texts(lot), until)
                except ModelError as error:
                    why = error.message
                    continue
                with shelf.guard:
                    meaning.take(self._store, lot, rows)
                if on_lot is not None:
                    on_lot(len(lot))
        finally:
            shelf.growing.release()
        return self._lacking(shelf, why)

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

    async def left(self, items: Sequence[Shown], runs: Keeper, row: RunRow, call: Call) -> Found | Exception:
        """Of items that a run has chosen, those that no edit takes away from it. An error is given, not raised."""
        try:
            without = (await asyncio.to_thread(view_of, runs, row, call)).without
        except Exception as error:
            return error
        return Found([] if ALL in without else [item for item in items if item.id not in without])

    def count(self, asked: Asked, runs: Keeper, row: RunRow, call: Call, items: Iterable[Shown]) -> None:
        """Write into the ledger that a run was given items. A fork counts for nothing."""
        if not view_of(runs, row, call).fork:
            told: Mapping[str, object] = {"place": f"{row.id}@{call.seq}", "query": asked.query[:QUERY]}
            now = time.time()
            lines = [entry(asked.memory, item.id, now, "selected", told) for item in items]
            self._store.put_entries(lines)

    def _shelf(self, memory: str) -> _Shelf:
        with self._guard:
            return self._shelves.setdefault(memory, _Shelf(memory))

    def _best(
        self, shelf: _Shelf, asked: Asked, moment: float, without: frozenset[str], meant: Meant | None
    ) -> list[Shown]:
        near = None
        if meant is not None:
            near = shelf.meaning(self._store, meant.model).likeness(meant.vector)
        return shelf.find(asked, moment, without, near)

    def _asked_now(self, asked: Asked) -> tuple[Meant | None, dict[str, object]]:
        """The query's vector, once items have theirs as far as time allows, and how that is told."""
        embedder, shelf = self.embedder, self._shelf(asked.memory)
        if embedder is None:
            return None, {}
        until = time.monotonic() + embedder.seconds
        with shelf.guard:
            shelf.refresh(self._store)
            if not len(shelf):
                return None, {}
        try:
            meant = ask_query(embedder, asked.query, embedder.seconds)
            with shelf.guard:
                shelf.meaning(self._store, embedder.ref).check(len(meant.vector))
            lacking, of, why = self.embed(asked.memory, until, most=MADE)
        except Exception as error:
            why = error.message if isinstance(error, ClewError) else f"{type(error).__name__}: {error}"
            return None, {"by": WORDS, "why": short(why, WHY)}
        told: dict[str, object] = {"by": BOTH, **meant.told}
        return meant, told | ({"lacking": lacking, "of": of} if lacking else {})

    def _model(self) -> Embeds:
        if self.embedder is None:
            raise BadInput("no embedding model is named", remedy="Name one, as in --embed http://host/v1#model.")
        return self.embedder

    def _lacking(self, shelf: _Shelf, why: str) -> Lacking:
        with shelf.guard:
            lacking = shelf.in_use(shelf.meaning(self._store, self._model().ref).lacking(refused=True))
            of = len(shelf.in_use(range(len(shelf)))) if lacking else len(shelf)
        return Lacking(len(lacking), of, short(why, WHY))

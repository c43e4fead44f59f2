"""``EntryList``: the entries of a store that lives in memory, a part of ``MemoryStore``."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import takewhile

from clew.store.entries import Entry, Numbered, Vector, check_entries, check_vectors, tombstone


class EntryList:
    """Entries in the order in which they came."""

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._entries: dict[bytes, Numbered] = {}
        self._gone: set[str] = set()
        self._vectors: dict[tuple[str, str], Vector] = {}  # by item and model
        self._last = 0

    def put_entries(self, entries: Iterable[Entry]) -> int:
        """Add entries, all or none; gives how many were new. What is said of a deleted item is passed over.

        Raises:
            BadInput: one cannot be kept.
        """
        found = check_entries(entries)
        with self._guard:
            new = [one for one in found if one.what != "deleted" and one.item not in self._gone]
            return sum(self._put(one) for one in new)

    def _put(self, one: Entry) -> bool:
        if one.key in self._entries:
            return False
        self._last += 1
        self._entries[one.key] = Numbered(self._last, one)
        return True

    def entries(self, memory: str | None = None, since: int = 0) -> list[Numbered]:
        """Entries with a greater number than ``since``, of one memory or of all, in the order in which they came."""
        with self._guard:
            newest_first = list(takewhile(lambda it: it.no > since, reversed(self._entries.values())))
        return [it for it in reversed(newest_first) if memory in (None, it.entry.memory)]

    def memories(self) -> list[str]:
        """Names of the memories that hold an item, in order."""
        return sorted({one.memory for _, one in self.entries() if one.what == "add"})

    def bury_entries(self, tombstones: Iterable[Entry]) -> list[str]:
        """Put tombstones and remove all else that was said of their items; gives the ids of those that were there."""
        found = check_entries(tombstones)
        with self._guard:
            items = {one.item for one in found if one.what == "deleted"}
            self._gone |= items
            lost = [key for key, (_, one) in self._entries.items() if one.item in items and one.what != "deleted"]
            gone = {self._entries.pop(key).entry.item for key in lost}
            self._vectors = {at: one for at, one in self._vectors.items() if one.item not in items}
            for one in found:
                self._put(one)
        return sorted(gone)

    def forget(self, items: Iterable[str]) -> list[str]:
        """Delete items for good: nothing of them is left but a tombstone. Gives the ids of those that were there."""
        wanted = set(items)
        held = {one.item: one.memory for _, one in self.entries() if one.item in wanted and one.what != "deleted"}
        return self.bury_entries(tombstone(memory, item, time.time()) for item, memory in held.items())

    def replace_entries(self, pairs: Iterable[tuple[Entry, Entry]]) -> None:
        """Put each second entry in the place of the first, under its number."""
        with self._guard:
            for was, now in pairs:
                if (held := self._entries.pop(was.key, None)) is not None:
                    self._entries[now.key] = Numbered(held.no, now)
            self._entries = dict(sorted(self._entries.items(), key=lambda pair: pair[1].no))

    def put_vectors(self, vectors: Iterable[Vector]) -> int:
        """Keep vectors, each in the place of what its model made of its item before; gives how many were kept. Those of
        items that are not there are passed over.

        Raises:
            BadInput: one cannot be kept; none is then.
        """
        found = check_vectors(vectors)
        with self._guard:
            there = {one.item for _, one in self._entries.values() if one.what == "add"}
            kept = [one for one in found if one.item in there]
            self._vectors |= {(one.item, one.model): one for one in kept}
        return len(kept)

    def vectors(self, model: str, items: Sequence[str]) -> list[Vector]:
        """What a model made of some items, as far as that is kept, in their order."""
        with self._guard:
            found = (self._vectors.get((item, model)) for item in items)
            return [one for one in found if one is not None]

"""Taking over the entries of another store. ``upkeep.merge`` calls it; a deleted item stays deleted in the union."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from clew.store.items.entry import Entry
from clew.store.items.fold import Lists


class Holds(Lists, Protocol):
    """A store, as far as entries go, to be written."""

    def put_entries(self, entries: Iterable[Entry]) -> int: ...
    def bury_entries(self, tombstones: Iterable[Entry]) -> list[str]: ...


def take_entries(store: Holds, other: Lists) -> int:
    """Take in what the other has; gives how many entries were new."""
    theirs = [one for _, one in other.entries()]
    store.bury_entries(one for one in theirs if one.what == "deleted")
    return store.put_entries(one for one in theirs if one.what != "deleted")

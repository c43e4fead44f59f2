"""One store opened several times, so that a long search does not delay other pages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from clew.store import Keeper, MemoryStore, open_store
from clew.store.address import place_of
from clew.store.slices import Unfinished, limited
from clew.store.sql.listing import Listing

SLICE = 0.3  # seconds for which one request does work that the next one can go on with
T = TypeVar("T")


class Stores:
    """Opens one store once per use; a store in memory is the same for all.

    Args:
        store: a path, or an open store; of one on disk only the path is taken.
        readonly: write nothing, not even the derived tables that make lists quick.
    """

    def __init__(self, store: str | Path | Keeper, readonly: bool = False) -> None:
        self.path = place_of(str(store if isinstance(store, str | Path) else store.path))
        self._shared = store if isinstance(store, MemoryStore) else MemoryStore() if self.path == ":memory:" else None
        self._open: dict[str, Keeper] = {}
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._behind = False  # whether runs wait to be summarised
        self._readonly = readonly

    def of(self, use: str) -> Keeper:
        """The store as opened for a use.

        Raises:
            StoreError, StoreBroken, StoreNewer: the file cannot be used.
        """
        return self._shared or self._opened(use)

    def _opened(self, use: str) -> Keeper:
        with self._lock:
            if use not in self._open:
                store = self._open[use] = self._connect(self._readonly)
                if not self._behind and (index := self._open.get("index")):
                    _adopt(store, index)
            return self._open[use]

    def reading(self, use: str, page: Callable[[Keeper], T]) -> T:
        """What a page says of the store as opened for a use.

        Raises:
            Unfinished: what the page needs is still being made; this call did a slice of it, the next goes on.
        """
        if self._shared is not None:
            return page(self._shared)
        store = self._opened(use)
        try:
            with limited(0.0 if self._behind else SLICE):  # pages that need no list do not wait for it
                return page(store)
        except Unfinished as late:
            if late.what != "list":
                raise
        self._behind = True
        index = self._opened("index")
        with limited(SLICE):
            with self._gate:  # one connection counts for all, or each would count the same runs
                index.changed()
            self._behind = False
            _adopt(store, index)
            return page(store)

    def fresh(self, readonly: bool | None = None) -> Keeper:
        """The store opened once more, to be closed by whoever asked; of a store in memory, that store."""
        return self._shared or self._connect(self._readonly if readonly is None else readonly)

    def _connect(self, readonly: bool) -> Keeper:
        return open_store(self.path, readonly=readonly)

    @property
    def readonly(self) -> bool:
        """Whether nothing can be written, because it was asked so or because the file cannot be."""
        return self._readonly or bool(getattr(self.of("runs"), "readonly", False))

    def close(self) -> None:
        """Let every opened file go."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()


def _adopt(store: Keeper, other: Keeper) -> None:
    """Give a connection what another to the same store counted, where stores of that kind count at all."""
    if isinstance(store, Listing) and isinstance(other, Listing):
        store.adopt(other)

"""One store opened several times, so that a long search does not delay other pages."""

from __future__ import annotations

import threading
from pathlib import Path

from clew.store import Keeper, MemoryStore


class Stores:
    """Opens one store once per use; a store in memory is the same for all.

    Args:
        store: a path, or an open store; of one on disk only the path is taken.
        readonly: write nothing, not even the derived tables that make lists quick.
    """

    def __init__(self, store: str | Path | Keeper, readonly: bool = False) -> None:
        self.path = str(store if isinstance(store, str | Path) else store.path)
        self._shared = store if isinstance(store, MemoryStore) else MemoryStore() if self.path == ":memory:" else None
        self._open: dict[str, Keeper] = {}
        self._lock = threading.Lock()
        self._readonly = readonly

    def of(self, use: str) -> Keeper:
        """The store as opened for a use.

        Raises:
            StoreError, StoreBroken, StoreNewer: the file cannot be used.
        """
        if self._shared is not None:
            return self._shared
        with self._lock:
            if use not in self._open:
                self._open[use] = self.fresh()
            return self._open[use]

    def fresh(self, readonly: bool | None = None) -> Keeper:
        """The store opened once more, to be closed by whoever asked; of a store in memory, that store."""
        if self._shared is not None:
            return self._shared
        from clew.store.sqlite.store import SQLiteStore

        return SQLiteStore(self.path, readonly=self._readonly if readonly is None else readonly)

    @property
    def readonly(self) -> bool:
        """Whether nothing can be written, because it was asked so or because the file cannot be."""
        return self._readonly or bool(getattr(self.of("runs"), "readonly", False))

    def close(self) -> None:
        """Let every opened file go."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

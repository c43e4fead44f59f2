"""The record's home: two stores under one contract, and read-only views of what they hold."""

from __future__ import annotations

from pathlib import Path

from clew.core.reading import Step
from clew.store.base import Keeper
from clew.store.groups import Group, Groups
from clew.store.memory import MemoryStore
from clew.store.names import new_id, resolve
from clew.store.protocol import Folds, Page, Summary
from clew.store.run import Run

__all__ = ["Folds", "Group", "Groups", "Keeper", "MemoryStore", "Page", "Run", "Step", "Summary", "new_id"]
__all__ += ["open_store", "resolve"]


def open_store(path: str | Path | Keeper) -> Keeper:
    """The store at ``path``, made if it is absent; ``":memory:"`` is one that is not kept; a store passes through.

    Raises:
        StoreNewer, StoreReadOnly, StoreBroken: the file cannot be used; the remedy says what to do.
    """
    if not isinstance(path, str | Path):
        return path
    if str(path) == ":memory:":
        return MemoryStore()
    from clew.store.sqlite.store import SQLiteStore

    return SQLiteStore(path)

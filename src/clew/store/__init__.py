"""The record's home: two stores under one contract, and read-only views of what they hold."""

from __future__ import annotations

from pathlib import Path

from clew.core import registry
from clew.core.doors import StoreOpener
from clew.core.errors import UnknownName
from clew.core.reading import Step
from clew.store.address import is_address, scheme_of
from clew.store.base import Keeper
from clew.store.groups import Group, Groups
from clew.store.memory import MemoryStore
from clew.store.names import NO_STORE, new_id, resolve
from clew.store.protocol import Folds, Page, Summary
from clew.store.run import Run

__all__ = ["Folds", "Group", "Groups", "Keeper", "MemoryStore", "Page", "Run", "Step", "Summary", "new_id"]
__all__ += ["open_store", "resolve"]


def open_store(path: str | Path | Keeper, *, create: bool = True, readonly: bool = False) -> Keeper:
    """The store at ``path``, made if it is absent; ``":memory:"`` is one that is not kept; a store passes through.

    Args:
        path: a file, or ``postgresql://USER@HOST:PORT/DATABASE`` for one in a PostgreSQL server (extra ``postgres``).
            The scheme of an address names who opens it (entry points ``clew.stores``).
        create: whether a store that is absent is made.
        readonly: never write.

    Raises:
        StoreNewer, StoreReadOnly, StoreBroken: the file cannot be used; the remedy says what to do.
        StoreError: no server answers, or it lets nobody in. MissingExtra: its driver is not installed.
        UnknownName: there is no store, and none is to be made; or nothing here opens an address of that scheme.
    """
    if not isinstance(path, str | Path):
        return path
    if isinstance(path, str) and is_address(path):
        opens: StoreOpener[Keeper] = registry.lookup("stores", scheme_of(path))
        return opens(path, create=create, readonly=readonly)
    if str(path) == ":memory:":
        return MemoryStore()
    if not create and not Path(path).exists():
        raise UnknownName(f"there is no store at {path}", remedy=NO_STORE)
    from clew.store.sqlite.store import SQLiteStore

    return SQLiteStore(path, readonly=readonly)

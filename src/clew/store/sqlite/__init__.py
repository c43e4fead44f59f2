"""The store in one SQLite file."""

from clew.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]

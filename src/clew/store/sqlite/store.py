"""SQLiteStore: one file in WAL mode, written in short immediate transactions by any number of local processes.

Built in eight storeys, each one file: ``database`` (the file and its errors), ``records`` (what every effect writes),
``ranges`` (reads of parts), ``leases``, ``shelf`` (tags, reports, small tables), ``scrub`` (tombstones, removal),
``listing`` (summaries, queries), ``derived`` (search).
"""

from __future__ import annotations

from clew.store.sqlite.derived import Derived


class SQLiteStore(Derived):
    """A store in one file. Threads may share it; each process opens its own.

    Writes wait in memory until ``commit`` and are seen by this store's own reads at once. A commit is atomic and
    survives the death of the process. What could not be written is kept, so that a later commit can succeed.

    Args:
        path: made, with its folder, if absent.
        readonly: never write; also so where the file or its medium cannot be written.

    Raises:
        StoreNewer, StoreReadOnly, StoreBroken, StoreFull, StoreError: never an error of sqlite3.
    """

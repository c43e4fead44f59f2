"""``SQLiteStore``: one file in WAL mode, written in short immediate transactions by any number of local processes.

Its parts are siblings over ``sql.run_tables.Records``. A part calls another only through the methods of
``clew.store.protocol.Tables``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.core.records import Fault
from clew.store.base import Keeper
from clew.store.sql.item_table import ItemTable
from clew.store.sql.leases import Leases
from clew.store.sql.maintenance import Maintenance
from clew.store.sql.ranges import Ranges
from clew.store.sql.small_tables import SmallTables
from clew.store.sqlite.database import Database
from clew.store.sqlite.full_text import FullText
from clew.store.sqlite.row_checks import damaged
from clew.store.verify import guarded


class SQLiteStore(FullText, Maintenance, ItemTable, SmallTables, Leases, Ranges, Database, Keeper):
    """A store in one file. Threads may share it; each process opens its own.

    Writes wait in memory until ``commit`` and are seen by this store's own reads at once. A commit is atomic and
    survives the death of the process. What could not be written is kept, so that a later commit can succeed.

    Args:
        path: made, with its folder, if absent.
        readonly: never write; also so where the file or its medium cannot be written.

    Raises:
        StoreNewer, StoreReadOnly, StoreBroken, StoreFull, StoreError: never an error of sqlite3.
    """

    def __init__(self, path: str | Path, *, readonly: bool = False) -> None:
        super().__init__()
        self._connect(path, readonly)

    def check(self) -> list[Fault]:
        """Also values that Clew cannot have written, each where it is."""
        return [*super().check(), *guarded(self.path, lambda: damaged(self._read))]

    def holding(self, words: Sequence[bytes]) -> dict[str, int]:
        """How many rows of each table hold one of some byte strings, those of derived tables too, and how often they
        stand in the file and in its log, where content stays that no row holds any more."""
        self.commit()
        found: dict[str, int] = {}
        for (table,) in self._read("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"):
            columns = [row[1] for row in self._read(f'PRAGMA table_info("{table}")')]
            says = " OR ".join(f'instr(CAST("{column}" AS BLOB), ?) > 0' for column in columns)
            hits = {
                hit
                for word in words
                for hit in self._read(f'SELECT * FROM "{table}" WHERE {says}', [word] * len(columns))
            }
            found |= {table: len(hits)} if hits else {}
        for path in (Path(self.path), Path(f"{self.path}-wal")):
            if path.exists() and (data := path.read_bytes()):
                count = sum(data.count(word) for word in words)
                found |= {f"file {path.name}": count} if count else {}
        return found

"""One SQLite file: how it is opened, written in short transactions, and shared by threads.

Every error of sqlite3 leaves as one of Clew's that names the file. Repeated strings are stored as numbers.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clew.core.errors import StoreBroken, StoreError, StoreFull, StoreReadOnly
from clew.store.owners import gone
from clew.store.sql import dialect
from clew.store.sql.dialect import Connection, marks
from clew.store.sql.row_codec import storable
from clew.store.sqlite.migrations import APPLICATION, migrate

BUSY = 30.0  # seconds a writer waits for another process's transaction
MAGIC = b"SQLite format 3\0"
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}


@contextmanager
def our_errors(path: str) -> Iterator[None]:
    """Turns every error of SQLite into one of ours that names the file and the remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise _ours(path, error) from error
    except (StoreError, StoreBroken) as error:
        if path in error.message:
            raise
        raise type(error)(f"{path}: {error.message}", remedy=error.remedy, at=error.at) from error


def _ours(path: str, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    said = f"{path}: {error}"
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in said:
        return StoreError(said, remedy="Open the store again.")
    if code in _FULL or code & 0xFF == sqlite3.SQLITE_FULL:
        return StoreFull(said, remedy="Free some room: what was committed is kept, the rest waits for the next commit.")
    match code & 0xFF:
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreReadOnly(said, remedy="Copy the file to where it can be written.")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StoreBroken(said, remedy="Name a store with --store, or restore a copy of this one.")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(said, remedy=f"Another process held it for {BUSY:.0f} s; stop that one or try again.")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreError(said, remedy="Check that the folder exists and can be entered.")
        case _:
            return StoreError(said, remedy="Check the disk, then run `clew store verify`.")


class Database(dialect.Database):
    """A connection shared by threads under one lock. Not to be carried over ``os.fork``.

    Raises:
        StoreNewer, StoreReadOnly, StoreBroken, StoreError: the file cannot be used; the remedy says what to do.
    """

    def _connect(self, path: str | Path, readonly: bool) -> None:
        self.path = str(path)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        with our_errors(self.path):
            self._db, self.readonly = _open(Path(path), readonly)
            try:
                migrate(self._db, not self.readonly)
            except BaseException:
                self._db.close()
                raise

    def _close(self) -> None:
        self._db.close()

    def __del__(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One immediate transaction, rolled back whole on any error."""
        with self._lock, our_errors(self.path):
            if self.readonly:
                raise StoreReadOnly("opened for reading only", remedy="Copy the file to where it can be written.")
            if os.getpid() != self._pid:
                raise StoreError("opened by another process", remedy="Open the store anew in each process.")
            fresh = len(self._no)
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                self._forget(fresh)
                raise

    def _read(self, sql: str, values: Iterable[Any] = ()) -> list[Any]:
        with self._lock, our_errors(self.path):
            return self._db.execute(sql, tuple(values)).fetchall()

    def _has_table(self, name: str) -> bool:
        """Whether the file has a table of that name, temporary ones not counted."""
        return bool(self._read("SELECT 1 FROM main.sqlite_master WHERE name = ?", (name,)))

    def _scrub(self, what: str) -> None:
        """Write the file anew without what was freed, and empty its log.

        Raises:
            StoreError: another process reads the file.
        """
        with our_errors(self.path):
            self._db.execute("VACUUM")
            busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StoreError(
                f"{self.path}: {what}, but another process is reading the file",
                remedy="The old content leaves the file when that process ends and the store is next closed.",
            )

    @contextmanager
    def _moment(self) -> Iterator[None]:
        with our_errors(self.path):
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")

    def _aside(self, sql: str, rows: Sequence[Sequence[Any]] = ((),)) -> None:
        for row in rows:
            self._db.execute(sql, row)

    def _file(self, db: Connection, table: str, columns: str, rows: Sequence[Sequence[Any]], conflict: str) -> int:
        if not rows:
            return 0
        sql = f"INSERT INTO {table}({columns}) VALUES ({marks(columns)}) {conflict}"
        before = self._db.total_changes
        try:
            db.executemany(sql, rows)
        except UnicodeEncodeError:
            db.executemany(sql, [[storable(v) if isinstance(v, str) else v for v in row] for row in rows])
        return self._db.total_changes - before

    def _others(self) -> int:
        return int(self._read("PRAGMA data_version")[0][0])

    def _changes(self) -> int:
        return self._db.total_changes

    def _now(self) -> float:
        return time.time()

    def _gone(self, owner: str) -> bool:
        return gone(owner)

    def _here(self, db: Connection, owner: str) -> None:
        return  # a process shows by itself that it lives

    def _erasing(self, db: Connection) -> None:
        db.execute("PRAGMA secure_delete = ON")

    def _damage(self) -> list[str]:
        return [said for (said,) in self._read("PRAGMA quick_check") if said != "ok"]

    def _text(self, text: str) -> str | bytes:
        return storable(text)

    def _in(self, column: str) -> str:
        return f"{column} IN (SELECT value FROM json_each(?))"

    def _list(self, values: Sequence[Any]) -> str:
        return json.dumps(values)

    def _declared(self, name: str, kind: type) -> str:
        return name


def _open(path: Path, readonly: bool) -> tuple[sqlite3.Connection, bool]:
    """A connection and whether it can only read. A file on a read-only medium is read as it lies."""
    if path.is_dir():
        raise StoreBroken("a folder, not a store", remedy="Name a file with --store.")
    exists = path.exists()
    if readonly and not exists:
        raise StoreError("no such store", remedy="Run `clew run` or `clew quickstart` to make one.")
    if exists and not readonly:
        readonly = not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    if not exists:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot be made: {error.strerror}", remedy="Name another file with --store.") from error
    uri = path.absolute().as_uri()
    if not readonly:
        db = _raw(f"{uri}?mode=rwc")
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA wal_autocheckpoint = 4000")
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute("PRAGMA trusted_schema = OFF")
            return db, False
        except sqlite3.OperationalError as error:
            db.close()
            if (error.sqlite_errorcode & 0xFF) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) or not exists:
                raise
    log = Path(f"{path}-wal")
    db = _raw(f"{uri}?mode=ro")
    try:
        db.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        db.close()
        if log.exists() and log.stat().st_size:
            raise
        db = _raw(f"{uri}?mode=ro&immutable=1")
    return db, True


def _raw(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False)


def holds_store(path: Path) -> bool:
    """Whether a file is a store of Clew, of whatever version; it is not changed.

    Raises:
        StoreBroken, StoreError: it says that it is of SQLite, and cannot be read.
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return False
    with our_errors(str(path)):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return bool(db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION)
        finally:
            db.close()

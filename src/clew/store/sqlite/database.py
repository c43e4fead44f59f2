"""One SQLite file: how it is opened, written in short transactions, and shared by threads.

Every error of sqlite3 leaves as one of Clew's that names the file. Repeated strings are stored as numbers.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clew.core.errors import StoreBroken, StoreError, StoreFull, StoreReadOnly
from clew.store.sqlite.migrations import APPLICATION, migrate
from clew.store.sqlite.row_codec import readable, storable

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


class Database:
    """A connection shared by threads under one lock. Not to be carried over ``os.fork``.

    Raises:
        StoreNewer, StoreReadOnly, StoreBroken, StoreError: the file cannot be used; the remedy says what to do.
    """

    def __init__(self, path: str | Path, *, readonly: bool = False) -> None:
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
        self._no: dict[str, int] = {"": 0}
        self._id: dict[int, str] = {0: ""}

    def close(self) -> None:
        """Write what is left and let the file go."""
        with self._lock:
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

    def _forget(self, keep: int) -> None:
        """Drop the numbers handed out since the table had ``keep`` entries: their transaction was rolled back."""
        for text in list(self._no)[keep:]:
            self._id.pop(self._no.pop(text), None)

    def _number(self, text: str) -> int:
        """The number of a string, given out inside the present transaction if it has none."""
        no = self._no.get(text)
        if no is None:
            no = self._known(text)
            if no is None:
                no = int(self._db.execute("INSERT INTO ident(id) VALUES (?)", (storable(text),)).lastrowid or 0)
                self._no[text], self._id[no] = no, text
        return no

    def _known(self, text: str) -> int | None:
        """The number of a string, or None where it has none."""
        no = self._no.get(text)
        if no is None:
            found = self._read("SELECT no FROM ident WHERE id = ?", (storable(text),))
            if found:
                no = self._no[text] = int(found[0][0])
                self._id[no] = text
        return no

    def _name(self, no: int) -> str:
        """The string of a number."""
        text = self._id.get(no)
        if text is None:
            found = self._read("SELECT id FROM ident WHERE no = ?", (no,))
            if not found:
                raise StoreBroken(f"{self.path}: no string has the number {no}", remedy="Run `clew store verify`.")
            text = self._id[no] = readable(found[0][0])
            self._no[text] = no
        return text


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
        db = _connect(f"{uri}?mode=rwc")
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
    db = _connect(f"{uri}?mode=ro")
    try:
        db.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        db.close()
        if log.exists() and log.stat().st_size:
            raise
        db = _connect(f"{uri}?mode=ro&immutable=1")
    return db, True


def _connect(uri: str) -> sqlite3.Connection:
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

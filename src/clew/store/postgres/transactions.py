"""One schema of a PostgreSQL server: how it is opened, written in short transactions one after another, and shared.

A connection that was lost is made anew by the next read or commit; what waits in memory is not lost with it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

from clew.core.errors import ClewError, StoreError, StoreReadOnly, UnknownName
from clew.store.address import place_of, read
from clew.store.names import NO_STORE
from clew.store.postgres.link import BUSY, STUCK, Link
from clew.store.postgres.postgres_tables import STRING, TABLES, migrate, there
from clew.store.sql import dialect
from clew.store.sql.dialect import Connection, marks
from clew.store.sql.row_codec import readable
from clew.store.sql.run_tables import KNOWN

_FEW = 8  # rows that are inserted one by one; more are copied
_BEGUN = "UPDATE change SET no = no + 1 RETURNING no, CAST(extract(epoch FROM clock_timestamp()) AS FLOAT8)"
_KEYS = {"call": "at", "node": "key", "blob": "key", "run": "no", "ident": "id"}
_KINDS = {str: STRING, int: "BIGINT", float: "FLOAT8"}
_ALIVE = """SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (CAST(classid AS BIGINT) << 32) + CAST(objid AS BIGINT) = ?"""


class Database(dialect.Database):
    """A connection shared by threads under one lock. Not to be carried over ``os.fork``.

    Raises:
        StoreNewer, StoreReadOnly, StoreBroken, StoreError: the store cannot be used; the remedy says what to do.
    """

    def _connect(self, url: str, readonly: bool, create: bool) -> None:
        self._address = read(url)
        self.path = place_of(url)
        self.readonly = readonly
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._skew = 0.0  # seconds that the server's clock is ahead of ours
        self._committed = 0  # transactions that this store committed
        self._before = -1  # those of others, as the present transaction found them; -1 between transactions
        self._owners: set[str] = set()  # of leases that were taken here
        self._types: dict[str, dict[str, str]] = {}  # of the columns of tables
        self._db = self._linked(create)

    def _linked(self, create: bool = False) -> Link:
        """A new connection, to tables of the present shape."""
        db = Link(self._address)
        schema = self._address.schema
        try:
            db.execute(f"SET search_path = {schema}")
            db.execute(f"SET lock_timeout = '{BUSY}s'")
            db.execute(f"SET idle_in_transaction_session_timeout = '{STUCK}s'")
            db.execute("SET max_parallel_workers_per_gather = 0")  # sums are the same each time
            db.execute("SET enable_seqscan = off")  # plans made while a table was small stay right when it has grown
            db.execute("SET jit = off")
            db.execute("SET client_min_messages = 'warning'")
            if not (create and not self.readonly) and not there(db, schema):
                raise UnknownName(f"there is no store at {self.path}", remedy=NO_STORE)
            migrate(db, schema, not self.readonly)
            if not self.readonly:
                self.readonly = not db.value("SELECT has_table_privilege('change', 'UPDATE')")
            self._skew = db.value("SELECT CAST(extract(epoch FROM clock_timestamp()) AS FLOAT8)") - time.time()
            for owner in self._owners:
                db.execute("SELECT pg_advisory_lock_shared(?)", (_lock_of(owner),))
        except ClewError as error:
            db.close()
            raise self._named(error) from error
        return db

    def _named(self, error: ClewError) -> ClewError:
        if self.path in error.message:
            return error
        return type(error)(f"{self.path}: {error.message}", remedy=error.remedy, at=error.at)

    def _close(self) -> None:
        self._closed = True
        self._db.close()

    def __del__(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()

    def _ready(self) -> Link:
        """The connection, made anew if it was lost and nothing hangs on it."""
        if self._closed:
            raise StoreError(f"{self.path}: the store was closed", remedy="Open the store again.")
        if os.getpid() != self._pid:
            raise StoreError(f"{self.path}: opened by another process", remedy="Open the store anew in each process.")
        if self._db.broken:
            self._renew()
        return self._db

    def _renew(self) -> None:
        """Connect again. What the old connection kept aside is gone."""
        self._db = self._linked()

    def _begun(self, sql: str) -> Link:
        """Run a statement that is the first of its transaction: once more where the connection proves lost."""
        db = self._ready()
        try:
            db.execute(sql)
        except StoreError:
            if not db.broken:
                raise
            db = self._ready()
            db.execute(sql)
        return db

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._lock:
            if self.readonly:
                remedy = "Open it as the role that owns it, or as a member of that role."
                raise StoreReadOnly(f"{self.path}: opened for reading only", remedy=remedy)
            fresh = len(self._no)
            db = self._begun("BEGIN")
            try:
                [(no, clock)] = db.execute(_BEGUN).fetchall()
                self._before, self._skew = no - 1 - self._committed, clock - time.time()
                yield db
                db.execute("COMMIT")
                self._committed += 1
            except BaseException as error:
                if not db.broken:
                    with suppress(StoreError):
                        db.execute("ROLLBACK")
                        self._forget(fresh)
                if isinstance(error, StoreError):
                    raise self._named(error) from error
                raise
            finally:
                self._before = -1

    @contextmanager
    def _moment(self) -> Iterator[None]:
        db = self._begun("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            yield
        finally:
            if not db.broken:
                db.execute("COMMIT")

    def _read(self, sql: str, values: Iterable[Any] = ()) -> list[Any]:
        with self._lock:
            db, told = self._ready(), tuple(values)
            alone = not db.busy
            try:
                return db.execute(sql, told).fetchall()
            except StoreError:
                if not (db.broken and alone):
                    raise
                return self._ready().execute(sql, told).fetchall()

    def _aside(self, sql: str, rows: Sequence[Sequence[Any]] = ((),)) -> None:
        db = self._ready()
        if len(rows) == 1:
            db.execute(sql, rows[0])
        elif rows:
            db.executemany(sql, rows)

    def _file(self, db: Connection, table: str, columns: str, rows: Sequence[Sequence[Any]], conflict: str) -> int:
        if not rows:
            return 0
        names = columns.split(", ")
        if table in ("run", "grp"):  # of these the codec gives texts with lone surrogates as bytes
            rows = [
                [readable(v) if isinstance(v, bytes) and at != "task" else v for at, v in zip(names, row, strict=True)]
                for row in rows
            ]
        link = self._db
        if len(rows) >= _FEW and table in _KEYS:  # nobody else writes now: what is not there stays so until the commit
            at = names.index(_KEYS[table])
            sql = f"SELECT {_KEYS[table]} FROM {table} WHERE {_KEYS[table]} = ANY(?)"
            held = {key for (key,) in db.execute(sql, ([row[at] for row in rows],))}
            fresh = [row for row in rows if row[at] not in held]
            link.copy(table, columns, self._kinds(link, table, columns), fresh)
            known = [row for row in rows if row[at] in held] if conflict != KNOWN else []
            return len(fresh) + (self._insert(db, table, columns, known, conflict) if known else 0)
        return self._insert(db, table, columns, rows, conflict)

    def _insert(self, db: Connection, table: str, columns: str, rows: Sequence[Sequence[Any]], conflict: str) -> int:
        """Insert rows of which some may be there already."""
        if len(rows) < _FEW:
            return db.executemany(f"INSERT INTO {table}({columns}) VALUES ({marks(columns)}) {conflict}", rows).rowcount
        db.execute(f"CREATE TEMP TABLE new_rows ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA")
        self._db.copy("new_rows", columns, self._kinds(self._db, table, columns), rows)
        sql = f"INSERT INTO {table}({columns}) SELECT {columns} FROM new_rows {conflict}"
        written = db.execute(sql).rowcount
        db.execute("DROP TABLE new_rows")
        return written

    def _kinds(self, db: Link, table: str, columns: str) -> list[str]:
        """The types of some columns."""
        if table not in self._types:
            sql = "SELECT attname, CAST(CAST(atttypid AS REGTYPE) AS TEXT) FROM pg_attribute WHERE attnum > 0"
            self._types[table] = dict(db.execute(f"{sql} AND attrelid = CAST(? AS REGCLASS)", (table,)).fetchall())
        return [self._types[table][name] for name in columns.split(", ")]

    def _has_table(self, name: str) -> bool:
        return bool(self._read("SELECT to_regclass(?) IS NOT NULL", (f"{self._address.schema}.{name}",))[0][0])

    def _others(self) -> int:
        return self._before if self._before >= 0 else int(self._read("SELECT no FROM change")[0][0]) - self._committed

    def _changes(self) -> int:
        return self._committed

    def _now(self) -> float:
        return time.time() + self._skew

    def _gone(self, owner: str) -> bool:
        """Whether no connection says that the owner lives, on whatever host."""
        return not self._read(_ALIVE, (_lock_of(owner),))

    def _here(self, db: Connection, owner: str) -> None:
        if owner not in self._owners:
            db.execute("SELECT pg_advisory_lock_shared(?)", (_lock_of(owner),))
            self._owners.add(owner)

    def _erasing(self, db: Connection) -> None:
        return  # tables are written anew when all is deleted

    def _scrub(self, what: str) -> None:
        for table in TABLES:
            try:
                self._ready().execute(f"VACUUM (FULL) {table}")
            except StoreError as error:
                remedy = f"{error.remedy} The old content leaves with `VACUUM FULL`."
                raise StoreError(f"{self.path}: {what}, but not yet written anew", remedy=remedy) from error

    def _damage(self) -> list[str]:
        return []  # the server checks each page that it reads

    def _text(self, text: str) -> str:
        return text

    def _in(self, column: str) -> str:
        return f"{column} = ANY(?)"

    def _list(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def _declared(self, name: str, kind: type) -> str:
        return f"{name} {_KINDS[kind]}"


def _lock_of(owner: str) -> int:
    """The number of the lock that shows that an owner lives: 62 bits, not negative."""
    return int.from_bytes(blake2b(owner.encode(), digest_size=8).digest()) >> 2

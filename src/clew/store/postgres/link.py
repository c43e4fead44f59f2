"""A connection to a PostgreSQL server that reads the SQL of the shared parts, and says every error in our words.

``transactions.Database`` owns one. Texts that PostgreSQL does not take (NUL, lone surrogates) are escaped on their way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import RawCursor
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format, TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from clew.core.errors import StoreBroken, StoreError, StoreFull, StoreReadOnly
from clew.core.printable import short
from clew.store.address import Address

BUSY = 30  # seconds a writer waits for another's transaction
STUCK = 120  # seconds after which the server ends a transaction whose client says nothing, and frees the store
_BAD = re.compile("[\0\ud800-\udfff\uffff]")
_ESCAPED = re.compile("\uffff([0-9a-f]{4})")
_INT8, _TEXT = 20, 25  # as PostgreSQL numbers its types
_BACK = "See that the server runs, then try again: what was committed is kept, the rest waits for the next commit."


class _Text(Dumper):
    oid = _TEXT

    def dump(self, obj: str) -> bytes:
        try:
            if "\0" not in obj and "\uffff" not in obj:
                return obj.encode()
        except UnicodeEncodeError:
            pass
        return _BAD.sub(lambda match: f"\uffff{ord(match[0]):04x}", obj).encode()


class _BinaryText(_Text):
    format = Format.BINARY


class _Truth(Dumper):
    oid = _INT8

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _Read(Loader):
    def load(self, data: Buffer) -> str:
        text = str(data, "utf-8")
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "\uffff" in text else text


class _BinaryRead(_Read):
    format = Format.BINARY


@lru_cache(1000)
def _numbered(sql: str) -> str:
    """``?`` and ``?3`` as ``$1`` and ``$3``."""
    count = 0

    def mark(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"${match[1] or count}"

    return re.sub(r"\?(\d*)", mark, sql)


class Link:
    """One connection. It commits each statement by itself unless a transaction was begun.

    Raises:
        StoreError, StoreReadOnly, StoreFull, StoreBroken: never an error of psycopg.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        try:
            self._raw: psycopg.Connection[Any] = psycopg.connect(
                address.told, autocommit=True, cursor_factory=RawCursor, application_name="clew", **_defaults(address)
            )
        except psycopg.Error as error:
            raise _refused(address, error) from None
        made = self._raw.adapters
        for dumper in (_Text, _BinaryText):
            made.register_dumper(str, dumper)
        for kind in (Int8BinaryDumper, Int8Dumper):
            made.register_dumper(int, kind)
        made.register_dumper(bool, _Truth)
        for name in ("text", "varchar", "name"):
            made.register_loader(name, _Read)
            made.register_loader(name, _BinaryRead)

    @property
    def broken(self) -> bool:
        """Whether the connection is of no more use."""
        return bool(self._raw.closed)

    @property
    def busy(self) -> bool:
        """Whether a transaction was begun."""
        return self._raw.info.transaction_status != TransactionStatus.IDLE

    def close(self) -> None:
        self._raw.close()

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        try:
            return self._raw.execute(_numbered(sql), values, binary=True)
        except psycopg.Error as error:
            raise self.ours(error) from error

    def value(self, sql: str) -> Any:
        """The one value that a statement gives."""
        return self.execute(sql).fetchall()[0][0]

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> psycopg.Cursor[Any]:
        cursor = self._raw.cursor()
        try:
            cursor.executemany(_numbered(sql), rows)
        except psycopg.Error as error:
            raise self.ours(error) from error
        return cursor

    def copy(self, table: str, columns: str, kinds: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write rows into an empty table in one stream."""
        try:
            with self._raw.cursor().copy(f"COPY {table}({columns}) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(kinds)
                for row in rows:
                    copy.write_row(row)
        except psycopg.Error as error:
            raise self.ours(error) from error

    def ours(self, error: psycopg.Error) -> StoreError:
        """An error of the driver as one of ours, which names the store and the remedy."""
        code = error.sqlstate or ""
        said = f"{self._address.shown}: {short(self._address.hide(_said(error)), 300)}"
        if self.broken or code[:2] == "08" or code in ("57P01", "57P02", "57P03", "25P03"):
            return StoreError(f"{self._address.shown}: the connection to the server was lost", remedy=_BACK)
        match code:
            case "55P03":
                return StoreError(said, remedy=f"Another process held it for {BUSY} s; stop that one or try again.")
            case "53100" | "53200":
                return StoreFull(said, remedy="Free some room on the server: what was committed is kept.")
            case "42501":
                return StoreReadOnly(said, remedy="Ask the owner of the store to make your role a member of theirs.")
            case "25006":
                return StoreReadOnly(said, remedy="Name the server that is written, not a copy of it.")
            case "XX001" | "XX002":
                return StoreBroken(said, remedy="Restore the database from a copy.")
            case _:
                return StoreError(said, remedy="Look at the server's log, then run `clew store verify`.")


def _said(error: psycopg.Error) -> str:
    return " ".join((error.diag.message_primary or str(error)).split())


def _defaults(address: Address) -> dict[str, Any]:
    return {} if "connect_timeout=" in address.told else {"connect_timeout": 10}


def _refused(address: Address, error: psycopg.Error) -> StoreError:
    """Why no connection was made. The driver gives no codes here, only the server's words."""
    said = short(address.hide(_said(error)), 300)
    for pattern, what, remedy in _REFUSALS:
        if re.search(pattern, said):
            return StoreError(f"{address.shown}: {what}", remedy=remedy)
    return StoreError(f"{address.shown}: {said}", remedy="Check the address and that the server runs.")


_PASSWORD = "Set PGPASSWORD, write the password into ~/.pgpass, or check the one in the address."
_REFUSALS = (
    ("password authentication failed", "the server refused the password of this user", _PASSWORD),
    ("no password supplied", "the server wants a password", _PASSWORD),
    ("database .* does not exist", "there is no such database", "Make it with `createdb -E UTF8 NAME`."),
    ("role .* does not exist", "there is no such user", "Make one with `createuser NAME`, or name another."),
    ("no pg_hba.conf entry", "the server lets nobody in from here", "Add this host to its pg_hba.conf."),
    (
        "too many (clients|connections)|remaining connection slots",
        "the server has no connection left",
        "Close other programs that use it, or raise its max_connections.",
    ),
    ("permission denied for database", "this user may not connect", "GRANT CONNECT ON DATABASE ... TO this user."),
    ("starting up|shutting down|recovery mode", "the server is starting or stopping", "Try again in a moment."),
    (
        "refused|timeout|timed out|could not translate|No such file|resolve|unreachable|Name or service",
        "no server answers",
        "Check host and port, and that the server runs and listens there.",
    ),
)

"""What the parts of an SQL store ask of their database, and the table of repeated strings.

``sqlite.database`` and ``postgres.database`` implement it. The parts write SQL that both understand: ``?`` and ``?1``
mark values, ``ON CONFLICT`` says what a row that is there already means. Where the two differ, a part calls a method
of this class; it must never ask which database it has.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from clew.core.errors import StoreBroken
from clew.store.sql.row_codec import readable

_SEVERAL = 4  # new strings that are worth three statements together


class Cursor(Protocol):
    """The answer to one statement."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection in the midst of a transaction."""

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Cursor: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> Cursor: ...


def replacing(keys: str, columns: str) -> str:
    """The SQL that puts a new row in the place of an old one with the same ``keys``; ``columns`` are the others."""
    told = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", "))
    return f"ON CONFLICT({keys}) DO UPDATE SET {told}"


def marks(columns: str) -> str:
    """A ``?`` for each of some columns."""
    return ", ".join("?" * (columns.count(",") + 1))


class Dialect(Protocol):
    """What each database does in its own way."""

    path: str
    readonly: bool
    _lock: threading.RLock

    def _close(self) -> None:
        """Let the database go."""

    def _write(self) -> AbstractContextManager[Connection]:
        """One transaction that no other writer shares, rolled back whole on any error."""

    def _moment(self) -> AbstractContextManager[None]:
        """All reads in it see the store as it was at the first: rows, their number and their rewards fit together."""

    def _read(self, sql: str, values: Iterable[Any] = ()) -> list[Any]:
        """All rows of a query."""

    def _aside(self, sql: str, rows: Sequence[Sequence[Any]] = ((),)) -> None:
        """A statement on temporary tables, once for each row of values."""

    def _file(self, db: Connection, table: str, columns: str, rows: Sequence[Sequence[Any]], conflict: str) -> int:
        """Insert rows; gives how many were written. ``conflict``: what one that is there already means, in SQL."""

    def _has_table(self, name: str) -> bool:
        """Whether the store has a table of that name, temporary ones not counted."""

    def _others(self) -> int:
        """Differs once another connection committed."""

    def _changes(self) -> int:
        """Differs once this connection changed something."""

    def _now(self) -> float:
        """Seconds since the epoch, by the clock that leases go by."""

    def _gone(self, owner: str) -> bool:
        """Whether the owner of a lease can write no more."""

    def _here(self, db: Connection, owner: str) -> None:
        """Let others see that an owner lives, as long as this connection does."""

    def _erasing(self, db: Connection) -> None:
        """From now on deleted content is to be overwritten."""

    def _scrub(self, what: str) -> None:
        """Write the tables anew without what was freed.

        Raises:
            StoreError: another process reads them.
        """

    def _damage(self) -> list[str]:
        """What the database itself finds wrong with its tables."""

    def _text(self, text: str) -> Any:
        """A text as the database takes it, lone surrogates and all."""

    def _in(self, column: str) -> str:
        """The SQL of: the column is one of a list, which is bound as ``_list`` gives it."""

    def _list(self, values: Sequence[Any]) -> Any:
        """A list of numbers or of texts as a bound value."""

    def _declared(self, name: str, kind: type) -> str:
        """A column of a derived table, that holds values of a kind."""

    def _fitting(self, place: str, field: str, op: str, value: str) -> tuple[str, list[Any]]:
        """The SQL of ``query.named``, of what ``place`` reads, and the values it binds."""

    def _can_index(self) -> bool:
        """Whether the database can hold an index of words."""

    def _add(self, db: Connection, texts: Sequence[tuple[int, str]]) -> None:
        """Put runs, by number, with all their texts into the table ``worded_1``, unless another process was quicker."""

    def _saying(self, phrase: Sequence[str]) -> set[int]:
        """Numbers of the runs in the index in which these words stand side by side."""


class Database(Dialect):
    """A connection shared by threads under one lock, and its numbers of repeated strings."""

    def __init__(self) -> None:
        self._no: dict[str, int] = {"": 0}
        self._id: dict[int, str] = {0: ""}

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
                no = int(self._read("INSERT INTO ident(id) VALUES (?) RETURNING no", (self._text(text),))[0][0])
                self._no[text], self._id[no] = no, text
        return no

    def _number_all(self, db: Connection, texts: Iterable[str]) -> None:
        """Give numbers to many strings at once, in their order; those with lone surrogates wait for ``_number``."""
        new = [text for text in dict.fromkeys(texts) if text not in self._no and isinstance(self._text(text), str)]
        if len(new) < _SEVERAL:
            return
        sql = f"SELECT no, id FROM ident WHERE {self._in('id')}"
        for last in (False, True):
            for no, text in self._read(sql, (self._list(new),)):
                self._no[text], self._id[no] = no, text
            if missing := [(text,) for text in new if text not in self._no and not last]:
                self._file(db, "ident", "id", missing, "ON CONFLICT DO NOTHING")

    def _known(self, text: str) -> int | None:
        """The number of a string, or None where it has none."""
        no = self._no.get(text)
        if no is None:
            found = self._read("SELECT no FROM ident WHERE id = ?", (self._text(text),))
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

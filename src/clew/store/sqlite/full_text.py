"""Queries and searches in a store file, as far as SQLite does them in its own way: functions in Python, and FTS5."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clew.store.query import named
from clew.store.sql.dialect import Connection
from clew.store.sql.listing import Listing
from clew.store.sql.row_codec import readable
from clew.store.sql.word_index import WordIndex
from clew.store.sqlite.database import Database

_TABLES = (
    "CREATE TABLE IF NOT EXISTS worded_1(run INTEGER PRIMARY KEY)",
    "CREATE VIRTUAL TABLE IF NOT EXISTS words_1 USING fts5"
    "(body, content='', tokenize=\"unicode61 remove_diacritics 0\")",
)


class FullText(WordIndex, Listing, Database):
    """Part of SQLiteStore."""

    def _connect(self, path: str | Path, readonly: bool) -> None:
        super()._connect(path, readonly)
        self._db.create_function("named", 4, _fits, deterministic=True)

    def _fitting(self, place: str, field: str, op: str, value: str) -> tuple[str, list[Any]]:
        return f"named({place}, ?, ?, ?)", [field, op, value]

    def _can_index(self) -> bool:
        return ("ENABLE_FTS5",) in self._read("PRAGMA compile_options")

    def _add(self, db: Connection, texts: Sequence[tuple[int, str]]) -> None:
        for sql in _TABLES:
            db.execute(sql)
        for row in texts:
            if db.execute("INSERT OR IGNORE INTO worded_1 VALUES (?)", row[:1]).rowcount:
                db.execute("INSERT INTO words_1(rowid, body) VALUES (?, ?)", row)

    def _saying(self, phrase: Sequence[str]) -> set[int]:
        match = '"' + " ".join(phrase) + '"'
        return {no for (no,) in self._read("SELECT rowid FROM words_1 WHERE words_1 MATCH ?", (match,))}


def _fits(has: str | bytes, field: str, op: str, value: str) -> bool:
    return named(readable(has), field, op, value)

"""Queries and searches in a PostgreSQL store, as far as they differ from SQLite's.

A name is compared in Python, once for each different one, so that both stores find the same. A search narrows the runs
down by their words (tsvector) and then looks for the phrase in the words as they follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.store.postgres.transactions import Database
from clew.store.query import named
from clew.store.sql.dialect import Connection
from clew.store.sql.listing import Listing
from clew.store.sql.word_index import WordIndex
from clew.store.summary import words

_TABLES = (
    "CREATE TABLE IF NOT EXISTS worded_1(run BIGINT PRIMARY KEY, body TEXT NOT NULL, words TSVECTOR)",
    "CREATE INDEX IF NOT EXISTS words_1 ON worded_1 USING gin(words)",
)
_LONG = 200  # characters of a word that the index tells apart
_MOST = 500_000  # bytes of different words that it takes of one run; PostgreSQL's bound is twice that


class Phrases(WordIndex, Listing, Database):
    """Part of PostgresStore."""

    def _renew(self) -> None:
        super()._renew()
        self._marks.clear()
        self._last = (-1, -1)

    def _fitting(self, place: str, field: str, op: str, value: str) -> tuple[str, list[Any]]:
        if field in ("id", "parent"):
            return f"starts_with({place}, ?)", [value]
        found = self._read(f"SELECT DISTINCT {place} FROM {self._listed()}")
        return f"{place} = ANY(?)", [[name for (name,) in found if named(name, field, op, value)]]

    def _can_index(self) -> bool:
        return True

    def _add(self, db: Connection, texts: Sequence[tuple[int, str]]) -> None:
        if not self._has_table("worded_1"):
            for sql in _TABLES:
                db.execute(sql)
        rows = []
        for no, text in texts:
            said = words(text)
            different = {word[:_LONG] for word in said}
            short = sum(len(word.encode()) for word in different) < _MOST
            rows.append((no, f" {' '.join(said)} ", sorted(different) if short else None))
        sql = "INSERT INTO worded_1 VALUES (?, ?, array_to_tsvector(CAST(? AS TEXT[]))) ON CONFLICT DO NOTHING"
        db.executemany(sql, rows)

    def _saying(self, phrase: Sequence[str]) -> set[int]:
        sql = """SELECT run FROM worded_1
        WHERE (words @@ CAST(? AS TSQUERY) OR words IS NULL) AND position(CAST(? AS TEXT) IN body) > 0"""
        wanted = " & ".join(f"'{word[:_LONG]}'" for word in phrase)
        return {no for (no,) in self._read(sql, (wanted, f" {' '.join(phrase)} "))}

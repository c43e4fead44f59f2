"""The index of words behind ``text:`` queries, a derived table of the ended runs.

The first search fills it; runs that go on are searched in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from clew.core.errors import StoreError
from clew.store.sqlite.row_codec import BITS
from clew.store.sqlite.run_tables import Records
from clew.store.summary import document, says

_TABLES = (
    "CREATE TABLE IF NOT EXISTS worded_1(run INTEGER PRIMARY KEY)",
    "CREATE VIRTUAL TABLE IF NOT EXISTS words_1 USING fts5"
    "(body, content='', tokenize=\"unicode61 remove_diacritics 0\")",
)
_ENDED = f"""SELECT no FROM run WHERE no NOT IN (SELECT value FROM json_each(?)) AND 7 =
  (SELECT kind FROM call WHERE at >= no << {BITS} AND at < (no + 1) << {BITS} ORDER BY at DESC LIMIT 1)"""


class WordIndex(Records):
    """Part of SQLiteStore."""

    def search(self, phrase: Sequence[str]) -> set[str]:
        """Runs in which these words stand side by side. Ended runs are indexed when first searched."""
        with self._lock:
            self.commit()
            indexed = self._index()
            found = {run for run in self.run_ids() if run not in indexed and says(document(self, run), phrase)}
            if indexed:
                match = '"' + " ".join(phrase) + '"'
                rows = self._read("SELECT rowid FROM words_1 WHERE words_1 MATCH ?", (match,))
                found |= {self._name(no) for (no,) in rows}
            return found

    def _index(self) -> set[str]:
        """Add ended runs that are not yet in the index of words; returns the runs that are."""
        if ("ENABLE_FTS5",) not in self._read("PRAGMA compile_options"):
            return set()
        done = self._worded()
        missing = [] if self.readonly else self._read(_ENDED, (f"[{', '.join(map(str, done))}]",))
        if missing:
            texts = [(no, document(self, self._name(no)).encode("utf-8", "replace").decode()) for (no,) in missing]
            with suppress(StoreError), self._write() as db:
                for sql in _TABLES:
                    db.execute(sql)
                again = set(db.execute("SELECT run FROM worded_1"))  # another process may have been quicker
                texts = [row for row in texts if row[:1] not in again]
                db.executemany("INSERT INTO words_1(rowid, body) VALUES (?, ?)", texts)
                db.executemany("INSERT INTO worded_1 VALUES (?)", [row[:1] for row in texts])
            done = self._worded()
        return {self._name(no) for no in done}

    def _worded(self) -> set[int]:
        """Numbers of the runs in the index."""
        return {no for (no,) in self._read("SELECT run FROM worded_1")} if self._has_table("worded_1") else set()

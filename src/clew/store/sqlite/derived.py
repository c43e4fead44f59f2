"""Derived tables of an SQLite store: an index of words beside the summaries of ``listing``. Remade at will."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from clew.core.errors import StoreError
from clew.core.records import Fault
from clew.store.base import Keeper
from clew.store.sqlite.listing import Listing
from clew.store.summary import document, says

_TABLES = (
    "CREATE TABLE IF NOT EXISTS worded_1(run INTEGER PRIMARY KEY)",
    "CREATE VIRTUAL TABLE IF NOT EXISTS words_1 USING fts5"
    "(body, content='', tokenize=\"unicode61 remove_diacritics 0\")",
)


class Derived(Listing, Keeper):
    """Part of SQLiteStore."""

    def search(self, phrase: Sequence[str]) -> set[str]:
        """Runs in which these words stand side by side. Ended runs are indexed when first searched."""
        with self._lock:
            self._refresh()
            ended = [self._name(no) for (no,) in self._read(f"SELECT run FROM {self._listed()} WHERE stop != ''")]
            indexed = self._index(ended)
            found = {run for run in self.run_ids() if run not in indexed and says(document(self, run), phrase)}
            if indexed:
                match = '"' + " ".join(phrase) + '"'
                rows = self._read("SELECT rowid FROM words_1 WHERE words_1 MATCH ?", (match,))
                found |= {self._name(no) for (no,) in rows}
            return found

    def _index(self, ended: list[str]) -> set[str]:
        """Add what is not yet in the index of words; returns the runs that are."""
        has_index = "ENABLE_FTS5" in {option for (option,) in self._read("PRAGMA compile_options")}
        if not has_index:
            return set()
        done = {
            self._name(no) for (no,) in (self._read("SELECT run FROM worded_1") if self._tables("worded_1") else ())
        }
        missing = [run for run in ended if run not in done]
        if missing and not self.readonly:
            rows = [(self._known(run), document(self, run).encode("utf-8", "replace").decode()) for run in missing]
            with suppress(StoreError), self._write() as db:
                for sql in _TABLES:
                    db.execute(sql)
                again = set(db.execute("SELECT run FROM worded_1"))  # another process may have been quicker
                rows = [row for row in rows if row[:1] not in again]
                db.executemany("INSERT INTO words_1(rowid, body) VALUES (?, ?)", rows)
                db.executemany("INSERT INTO worded_1 VALUES (?)", [row[:1] for row in rows])
            done = self._worded()
        return done

    def _worded(self) -> set[str]:
        rows = self._read("SELECT run FROM worded_1") if self._tables("worded_1") else ()
        return {self._name(no) for (no,) in rows}

    def rebuild(self) -> None:
        """Throw the derived tables away; each is filled again when it is next read."""
        with self._write() as db:
            self._drop_derived(db)

    def check(self) -> list[Fault]:
        """What SQLite itself finds wrong with the file, and summaries that are not what their run says."""
        faults = [Fault(self.path, said) for (said,) in self._read("PRAGMA quick_check") if said != "ok"]
        for made in self.summaries():
            if made.stop and made._replace(reward=None) != self._count(self.row(made.run)):
                faults.append(Fault(made.run, "its summary is out of date; `clew store verify --rebuild` remakes it"))
        return faults

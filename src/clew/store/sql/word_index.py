"""The index of words behind ``text:`` queries, a derived table of the ended runs.

The first search fills it; runs that go on, and all runs of a store that cannot be written, are searched in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.core.errors import StoreError
from clew.store.slices import Slice, Unfinished
from clew.store.sql.row_codec import BITS
from clew.store.sql.run_tables import ENDED, Records
from clew.store.summary import document, says

_ENDED = (
    f"""7 = (SELECT kind FROM call WHERE at >= no << {BITS} AND at < (no + 1) << {BITS} ORDER BY at DESC LIMIT 1)"""
)
_PIECE = 1000  # runs whose texts wait to be written at once
_PHRASES = 8  # searches whose readings are kept


class WordIndex(Records):
    """Part of a store in SQL."""

    def __init__(self) -> None:
        super().__init__()
        # of the last searches: each run that was read in full, as it was then, and whether it says the phrase
        self._read_for: dict[tuple[object, ...], dict[int, tuple[tuple[Any, ...], bool]]] = {}

    def search(self, phrase: Sequence[str]) -> set[str]:
        """Runs in which these words stand side by side. Ended runs are indexed when first searched.

        Raises:
            Unfinished: the time of a slice is up; what was read is kept.
        """
        with self._lock:
            self.commit()
            time = Slice()
            self._index(time)
            found = self._scan(tuple(phrase), time)
            if self._has_table("worded_1"):
                found |= self._saying(phrase)
            return {self._name(no) for no in found}

    def _index(self, time: Slice) -> None:
        """Add ended runs that are not yet in the index of words."""
        if self.readonly or not self._can_index():
            return
        while missing := self._read(f"SELECT no FROM run WHERE {self._unworded()} AND {_ENDED} LIMIT {_PIECE}"):
            texts = []
            for (no,) in missing:
                texts.append((no, document(self, self._name(no)).encode("utf-8", "replace").decode()))
                if time.over:
                    break
            try:
                with self._write() as db:
                    self._add(db, texts)
            except StoreError:
                return  # as on a full disk; they are read in full instead
            if time.over:
                raise self._unfinished(0)

    def _scan(self, phrase: tuple[str, ...], time: Slice) -> set[int]:
        """Numbers of the runs outside the index that say a phrase; each is read again once it changed."""
        buried = self._read("SELECT count(*) FROM tombstone")[0][0]  # what was redacted says it no longer
        known = self._read_for.setdefault((buried, *phrase), {})
        while len(self._read_for) > _PHRASES:
            del self._read_for[next(iter(self._read_for))]
        rest = [no for (no,) in self._read(f"SELECT no FROM run WHERE {self._unworded()}")]
        fresh = 0
        for at, no in enumerate(rest):
            before = known[no][0] if no in known else None
            if before == ENDED or (before is not None and before == self._mark(no)):
                continue
            if fresh and time.over:
                raise self._unfinished(at)
            known[no] = (self._mark(no), says(document(self, self._name(no)), phrase))
            fresh += 1
        return {no for no in rest if known[no][1]}

    def _unworded(self) -> str:
        """The SQL of: this run is not in the index."""
        return "no NOT IN (SELECT run FROM worded_1)" if self._has_table("worded_1") else "TRUE"

    def _unfinished(self, more: int) -> Unfinished:
        """How many runs are in the index, or were read beside it, of how many."""
        total = int(self._read("SELECT count(*) FROM run")[0][0])
        left = int(self._read(f"SELECT count(*) FROM run WHERE {self._unworded()}")[0][0])
        return Unfinished("words", total - left + more, total)

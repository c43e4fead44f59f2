"""``Keeper``: a store as users hold it, the tables together with the conveniences that every store shares.

Each method with a body is a few lines over ``run``, ``upkeep`` and ``verify``, none of which imports this file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, Self

from clew.core.records import Fault
from clew.store import redaction, upkeep
from clew.store.labels import VERDICTS, Label, current, put
from clew.store.names import resolve
from clew.store.protocol import Tables
from clew.store.run import Run
from clew.store.verify import faults


class Keeper(Tables, Protocol):
    """A whole store: ``Tables``, which each implements in its own way, and below what all share."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, name: str) -> Run:
        """The run meant by an id, a unique prefix or a tag.

        Raises:
            UnknownName, BadInput: none is meant, or several are.
        """
        return Run(self, resolve(self, name))

    def runs(self, query: str = "", limit: int | None = None) -> list[Run]:
        """The runs a query selects, newest first unless it sorts (see ``clew.store.query``)."""
        return [Run(self, run) for run in self.find(query, limit)]

    def find(self, query: str = "", limit: int | None = None) -> list[str]:
        """Ids of the runs a query selects, newest first unless it sorts.

        Raises:
            BadQuery: the query does not parse; the message names the term and its position.
        """
        return [row.run for row in self.page(query, limit).rows]

    def label(
        self,
        place: str,
        *,
        by: str,
        stars: int | None = None,
        verdict: str = "",
        note: str = "",
        withdraw: Sequence[str] = (),
        verdicts: Sequence[str] = VERDICTS,
    ) -> Label:
        """Say something of a run, a Call (``run@call``) or a span of a reply (``run@call+3:9``), as one author.

        A later label of the same author stands, the earlier stays in the record (see ``clew.store.labels``).

        Raises:
            BadInput: no such place, no name, or a value that is none. StoreReadOnly: nothing is written.
        """
        return put(self, place, by=by, stars=stars, verdict=verdict, note=note, withdraw=withdraw, verdicts=verdicts)

    def labels(self, query: str = "") -> list[Label]:
        """The labels that stand on the runs a query selects and on their own Calls, the oldest first.

        Raises:
            BadQuery: the query does not parse.
        """
        return current(self, self.find(query) if query else None)

    def verify(self, rebuild: bool = False) -> list[Fault]:
        """Derive every key anew and check every rule of the record; empty for a sound store.

        Args:
            rebuild: also throw the derived tables away; they are filled again when they are next read.
        """
        self.commit()
        if rebuild:
            self.rebuild()
        return [*self.check(), *faults(self)]

    def merge(self, other: Tables, *, erase: bool = True) -> dict[str, int]:
        """Take in everything another store holds, by global id; returns how many of each kind were new.

        Args:
            erase: whether what was redacted there is redacted here too, where its content is still held.
        """
        return upkeep.merge(self, other, erase=erase)

    def redact(self, target: str, only: Collection[str] | None = None) -> list[str]:
        """Put a tombstone on a Call (``run@seq``) or node (hex key) and on its repetitions; returns their places.

        Args:
            only: the texts whose repetitions are meant, where those are not all that the place says.
        """
        return redaction.done(self, redaction.of_place(self, target, only))

    def redact_runs(self, runs: Sequence[str]) -> list[str]:
        """Erase all that runs say, were asked and were started with, and its repetitions in related runs."""
        return redaction.done(self, redaction.of_runs(self, [resolve(self, run) for run in runs]))

    def redact_text(self, *words: str) -> list[str]:
        """Erase texts wherever they stand in the store; gives the places in records that got a tombstone.

        Raises:
            BadInput: one is too short.
        """
        return redaction.done(self, redaction.of_words(self, words))

    def gc(self, dry_run: bool = True) -> upkeep.Garbage:
        """What no tag, label, group, report, memory or live run reaches; removed unless ``dry_run``."""
        return upkeep.collect(self, dry_run)

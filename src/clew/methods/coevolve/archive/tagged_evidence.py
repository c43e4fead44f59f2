"""Outcomes with the judge they depend on: which count, which are stale, and what erasure takes (spec E178, App. F).

A record is valid while the judge that gave it is the incumbent of its slot; one without a slot (ground truth) stays
valid for ever. An outcome of an artefact that the same genome has made before for the same task is no new evidence: it
is kept with count 0. Erasure must take exactly the stale records of a slot, in any order of the slots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clew.methods.coevolve.archive.lineage import Lineage


@dataclass(slots=True)
class Record:
    """One outcome. slot: whose judge gave it, "" for ground truth. tag: that judge's genome, -1 for ground truth.

    counts: False where the same artefact has counted before, and from the erasure on.
    """

    genome: int
    task: int
    artefact: str
    outcome: int
    slot: str
    tag: int
    epoch: int
    counts: bool = True


class Evidence:
    """The records of an archive, and what follows from them for the lineage's counts."""

    def __init__(self, lineage: Lineage) -> None:
        self.records, self._lineage = list[Record](), lineage
        self._seen = set[tuple[int, int, str, int]]()
        self.tries: dict[tuple[int, int], int] = defaultdict(int)  # genome, task: how often it was performed
        self.tried: dict[int, int] = defaultdict(int)  # genome: how often anything was performed
        self._dependents: dict[str, list[int]] = defaultdict(list)  # slot: records that count, by index
        self.erased = self.repeated = 0

    def add(self, record: Record) -> bool:
        """Keep a record; whether it is new evidence."""
        key = (record.genome, record.task, record.artefact, record.tag)
        record.counts = key not in self._seen
        self._seen.add(key)
        if record.counts:
            self._lineage.count(record.genome, record.outcome)
            if record.slot:
                self._dependents[record.slot].append(len(self.records))
        else:
            self.repeated += 1
        self.records.append(record)
        return record.counts

    def performed(self, genome: int, task: int) -> None:
        """Note that a task was performed, whatever came of it."""
        self.tries[genome, task] += 1
        self.tried[genome] += 1

    def dependents(self, slot: str) -> list[int]:
        """Indices of the records that count and depend on the judge of a slot, oldest first."""
        return list(self._dependents[slot])

    def erase(self, slot: str, incumbent: int) -> list[int]:
        """Take the stale records of a slot out of all counts; gives their indices, oldest first."""
        stale = [i for i in self._dependents[slot] if self.records[i].tag != incumbent]
        for i in stale:
            record = self.records[i]
            record.counts = False
            self._seen.discard((record.genome, record.task, record.artefact, record.tag))
            self._lineage.count(record.genome, record.outcome, -1)
        gone = set(stale)
        self._dependents[slot] = [i for i in self._dependents[slot] if i not in gone]
        self.erased += len(stale)
        return stale

    def counting(self, incumbents: Mapping[str, int] | None = None) -> Iterator[Record]:
        """The records that count; with ``incumbents``, those of them that are valid under these judges."""
        for record in self.records:
            if record.counts and (incumbents is None or not record.slot or incumbents[record.slot] == record.tag):
                yield record

"""What the log of a search of agents and judges says over its budget: nodes, epochs, shares accepted and judged right.

``clew evolve show`` and the viewer call it. It follows the events of a log in an archive in memory, and so reads a
search that is still going on too. It must never write to the folder of a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.methods.coevolve.archive import Archive
from clew.methods.coevolve.archive.archive import EVENTS, LOG
from clew.methods.coevolve.archive.chained_log import Event, read_events
from clew.methods.coevolve.beliefs import balanced_utility

WINDOWS = 60  # points of a curve over the budget, at most
Curve = list[tuple[float, float]]


class Epoch(NamedTuple):
    """A slot at a checkpoint.

    at: outcomes spent. right, of: items of the anchor that the judge from now on had right; of 0: none was compared.
    challengers: how many were compared. replaced: whether the judge changed. erased: outcomes that stopped counting.
    """

    at: int
    slot: str
    judge: int
    challengers: int
    right: int
    of: int
    replaced: bool
    erased: int


class Twig(NamedTuple):
    """A node of the tree. utility: mean over roles of posterior means, in [0, 1]. counts: outcomes that count.

    stale: outcomes that a replaced judge gave, which count no longer. at: outcomes spent when it was proposed.
    """

    parent: int
    utility: float
    counts: int
    stale: int
    at: int


class History(NamedTuple):
    """A search. accepted: for each judged role the share accepted over outcomes. right: for each slot over outcomes."""

    archive: Archive
    twigs: list[Twig]
    epochs: list[Epoch]
    accepted: dict[str, Curve]
    right: dict[str, Curve]
    refused: dict[str, int]  # why proposals came to nothing, and how often

    @property
    def best(self) -> int:
        """The node that the search chose, or the one of the highest utility so far."""
        if self.archive.ended is not None:
            return int(self.archive.ended["best"])
        return max(range(len(self.twigs)), key=lambda node: self.twigs[node].utility, default=0)


def history(folder: Path) -> History:
    """Follow the log of a search.

    Raises:
        UnknownName: the folder holds no log of a search.
        BadRecord: the log is damaged, or is no log of agents and judges.
    """
    events = search_log(folder)
    if events and events[0].get("event") not in EVENTS:
        raise BadRecord(f"{folder.name} holds no search of agents", remedy="Name a folder of `clew evolve agents`.")
    try:
        return _followed(events)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, BadInput) as error:
        raise BadRecord(f"the log in {folder.name} holds an event that cannot be followed") from error


def search_log(folder: Path) -> list[Event]:
    """The events of the search in a folder.

    Raises:
        UnknownName: there is none.
    """
    path = folder / LOG
    if not path.is_file():
        raise UnknownName(f"no search lies in {folder}", remedy=f"Name the folder of a `clew evolve`: it holds {LOG}.")
    return read_events(path)


def _followed(events: Sequence[Event]) -> History:
    archive, epochs, born = Archive(), list[Epoch](), list[int]()
    tallies: dict[str, list[tuple[int, int]]] = {}  # role: outcomes spent, and 1 where it was accepted
    refused: dict[str, int] = {}
    for event in events:
        before = {slot: (judges.incumbent, archive.evidence.erased) for slot, judges in archive.judges.items()}
        archive.write(event)
        if event["event"] == "node":
            if event["genomes"] is not None:
                born.append(archive.outcomes)
            elif event["said"]:
                refused[event["said"]] = refused.get(event["said"], 0) + 1
        elif event["event"] == "measure":
            for genome, _, _, outcome, slot in event["batch"]:
                if slot and outcome is not None:
                    role = archive.roles[archive.genomes[genome][0]]
                    tallies.setdefault(role, []).append((archive.outcomes, int(outcome)))
        elif event["event"] == "checkpoint":
            epochs += _epochs(archive, event, before)
    accepted = {role: _shares(rows) for role, rows in tallies.items()}
    right: dict[str, Curve] = {}
    for epoch in epochs:
        if epoch.of:
            right.setdefault(epoch.slot, []).append((epoch.at, epoch.right / epoch.of))
    return History(archive, _twigs(archive, born), epochs, accepted, right, refused)


def _epochs(archive: Archive, event: Event, before: dict[str, tuple[int, int]]) -> list[Epoch]:
    found = []
    for slot, plan in event["slots"].items():
        judges, (old, erased) = archive.judges[slot], before[slot]
        graded = judges.graded.get(judges.incumbent, "")
        replaced = judges.incumbent != old
        right, of, compared = graded.count("1"), len(graded), len(plan["challengers"])
        gone = archive.evidence.erased - erased if replaced else 0
        found.append(Epoch(archive.outcomes, slot, judges.incumbent, compared, right, of, replaced, gone))
    return found


def _shares(rows: Sequence[tuple[int, int]]) -> Curve:
    """Means of consecutive parts of the same length."""
    size = max(1, -(-len(rows) // WINDOWS))
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [(part[-1][0], sum(outcome for _, outcome in part) / len(part)) for part in parts]


def _twigs(archive: Archive, born: Sequence[int]) -> list[Twig]:
    stale: dict[int, int] = {}
    for record in archive.evidence.records:
        if record.slot and not record.counts and record.tag != archive.judges[record.slot].incumbent:
            stale[record.genome] = stale.get(record.genome, 0) + 1
    twigs = []
    for parent, genomes, at in zip(archive.lineage.parents, archive.lineage.genomes, born, strict=True):
        own = [archive.lineage.own(genome) for genome in genomes]
        gone = sum(stale.get(genome, 0) for genome in genomes)
        twigs.append(Twig(parent, balanced_utility(own), sum(map(sum, own)), gone, at))
    return twigs


def told(found: History) -> dict[str, Any]:
    """The figures of a search as JSON."""
    archive = found.archive
    return {
        "ended": dict(archive.ended) if archive.ended is not None else None,
        "spent": dict(archive.budget.spent),
        "budget": dict(archive.budget.caps),
        "nodes": len(found.twigs),
        "best": found.best,
        "epochs": [epoch._asdict() for epoch in found.epochs],
        "erased": archive.evidence.erased,
        "repeated": archive.evidence.repeated,
        "refused": found.refused,
    }

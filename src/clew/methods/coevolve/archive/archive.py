"""The archive of an evolution: its state, which is what its log says and nothing else.

An engine reads the state, decides, and writes one event; the event is applied by the code that replays a log too. After
each line of the log the state is one from which the engine goes on, so that a search killed anywhere continues to the
same bytes. The archive must never decide: it does not draw, ask or score.

Events: ``begin`` (settings), ``node`` (a new workspace, or why there is none), ``measure`` (outcomes of one batch),
``checkpoint`` (what was compared at an epoch's end, and who judges from now on), ``rescore`` (old artefacts under a new
judge), ``end``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.errors import BadInput, BadRecord
from clew.core.keys import value_digest
from clew.methods.coevolve.archive.artefact_shelf import Shelf
from clew.methods.coevolve.archive.binding_budget import Budget
from clew.methods.coevolve.archive.chained_log import ChainedLog, Event
from clew.methods.coevolve.archive.lineage import Lineage
from clew.methods.coevolve.archive.tagged_evidence import Evidence, Record

GENOME = b"clew.genome.1"
LOG, SHELF, FORMAT, VERSION = "evolution.log", "artefacts", "clew-evolve", 1
EVENTS = ("begin", "node", "measure", "checkpoint", "rescore", "end")
Cost = Mapping[str, float]


class Measured(NamedTuple):
    """One outcome of a batch. outcome: 0 or 1, or None where none was had, which is spent and no evidence.

    slot: the slot whose incumbent gave it, "" for ground truth. artefact: its key on the shelf, "" where there is none.
    """

    genome: int
    task: int
    artefact: str
    outcome: int | None
    slot: str = ""


class Judges:
    """The judges of a slot: the incumbent, its epoch, the adversarial pool, and how each judged the anchor so far."""

    def __init__(self, role: int, incumbent: int) -> None:
        self.role, self.incumbent, self.epoch = role, incumbent, 0
        self.pool = list[tuple[str, bool]]()  # artefact, whether a right judge accepts it
        self.graded = dict[int, str]()  # genome: "1" where right, item by item, anchor then pool
        self.gate = dict[str, Any]()  # what the gate keeps from one checkpoint to the next
        self.comparisons = 0  # challengers that were compared by the anchor, all checkpoints together
        self.stale = list[int]()  # records that wait for the new judge


class Archive:
    """The state of a search.

    Args:
        folder: where log and artefacts lie; None keeps them in memory.

    Raises:
        BadInput: another process has the folder.
        BadRecord: the log is damaged, altered, or of another format.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.log = ChainedLog(folder / LOG if folder is not None else None)
        self.shelf = Shelf(folder / SHELF if folder is not None else None)
        self.settings: Mapping[str, Any] = {}
        self.lineage = Lineage()
        self.evidence = Evidence(self.lineage)
        self.budget = Budget({"outcomes": 1})
        self.roles: tuple[str, ...] = ()
        self.genomes = list[tuple[int, object]]()  # role, value
        self._genome_of = dict[tuple[int, str], int]()
        self._workspaces = set[tuple[int, ...]]()
        self.judges = dict[str, Judges]()
        self.proposals = self.checkpoints = self.rescored = 0
        self.ended: Mapping[str, Any] | None = None
        try:
            for event in self.log.events:
                self._apply(event)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            self.close()
            raise BadRecord("the log holds an event that cannot be followed", remedy="Begin again.") from error

    # ---- writing ---------------------------------------------------------------------------------------------------

    def begin(self, settings: Mapping[str, Any], roles: Sequence[str], slots: Mapping[str, str], budget: Cost) -> None:
        """Begin, or go on where the log has begun with the same settings.

        Args:
            slots: role whose genomes judge in each slot, by slot.

        Raises:
            BadInput: the log is of a search with other settings.
        """
        event = {"event": "begin", "format": FORMAT, "version": VERSION, "settings": dict(settings)}
        event |= {"roles": list(roles), "slots": dict(slots), "budget": dict(budget)}
        if not self.log.events:
            self.write(event)
            return
        had = self.log.events[0]
        differ = [name for name in event if value_digest(had.get(name)) != value_digest(event[name])]
        if differ == ["settings"]:
            old, new = had["settings"], dict(settings)
            differ = [name for name in {**old, **settings} if old.get(name) != new.get(name)]
        if differ:
            remedy = "Give the same settings as before, or another folder."
            raise BadInput(f"the folder holds another search: {', '.join(sorted(differ))} differ", remedy=remedy)

    def write(self, event: Event) -> None:
        """Write an event, and follow it."""
        self.log.append(event)
        self._apply(event)

    def node(self, parent: int, workspace: Mapping[str, object] | None, cost: Cost, said: str = "") -> int | None:
        """A new workspace below ``parent``; gives its node, None where there is none, or it is there already.

        Args:
            workspace: a genome for each role; None: the proposer had nothing, which is counted. said: why.
        """
        value = None if workspace is None else [workspace[role] for role in self.roles]
        if value is not None and self._known(value):
            value, said = None, "the workspace is in the archive already"
        before = len(self.lineage.parents)
        self.write({"event": "node", "parent": parent, "genomes": value, "cost": dict(cost), "said": said[:500]})
        return before if len(self.lineage.parents) > before else None

    def _known(self, value: Sequence[object]) -> bool:
        found = [self._genome_of.get((r, value_digest(v, GENOME).hex())) for r, v in enumerate(value)]
        return None not in found and tuple(found) in self._workspaces

    def measure(self, batch: Sequence[Measured], cost: Cost) -> None:
        """The outcomes of a batch, one event."""
        self.write({"event": "measure", "batch": [list(one) for one in batch], "cost": dict(cost)})

    # ---- following -------------------------------------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        follow = getattr(self, {name: f"_{name}" for name in EVENTS}[event["event"]])
        follow(event)

    def _begin(self, event: Event) -> None:
        if event["format"] != FORMAT or event["version"] != VERSION:
            raise ValueError("another format")
        self.settings, self.roles = event["settings"], tuple(event["roles"])
        self.budget, self._slots = Budget(event["budget"]), event["slots"]

    def _node(self, event: Event) -> None:
        self.proposals += 1
        self.budget.add(event["cost"])
        if event["genomes"] is None:
            return
        genomes = tuple(self._genome(role, value) for role, value in enumerate(event["genomes"]))
        self._workspaces.add(genomes)
        if not self.lineage.parents:
            for slot, role in self._slots.items():
                at = self.roles.index(role)
                self.judges[slot] = Judges(at, genomes[at])
        self.lineage.add(event["parent"], genomes)

    def _genome(self, role: int, value: object) -> int:
        key = (role, value_digest(value, GENOME).hex())
        if key not in self._genome_of:
            self._genome_of[key] = len(self.genomes)
            self.genomes.append((role, value))
        return self._genome_of[key]

    def _measure(self, event: Event) -> None:
        for genome, task, artefact, outcome, slot in event["batch"]:
            self.evidence.performed(genome, task)
            if outcome is None:
                continue
            judges = self.judges[slot] if slot else None
            tag, epoch = (judges.incumbent, judges.epoch) if judges else (-1, 0)
            self.evidence.add(Record(genome, task, artefact, int(outcome), slot, tag, epoch))
        self.budget.add({"outcomes": len(event["batch"])})
        self.budget.add(event["cost"])

    def _checkpoint(self, event: Event) -> None:
        """All slots were planned on the state before; they change together."""
        self.checkpoints += 1
        self.budget.add(event["cost"])
        for slot, plan in event["slots"].items():
            judges = self.judges[slot]
            judges.pool += [(artefact, bool(accept)) for artefact, accept in plan["pool"]]
            judges.graded.update({int(genome): right for genome, right in plan["graded"].items()})
            judges.comparisons += plan["comparisons"]
            judges.gate = plan["gate"]
            if plan["incumbent"] != judges.incumbent:
                judges.incumbent = plan["incumbent"]
                judges.epoch += 1
                if event["erase"]:
                    stale = self.evidence.erase(slot, judges.incumbent)
                    judges.stale = (judges.stale + stale) if event["rescore"] else []

    def _rescore(self, event: Event) -> None:
        judges = self.judges[event["slot"]]
        for index, outcome in zip(judges.stale, event["outcomes"], strict=False):
            if outcome != "?":
                old = self.evidence.records[index]
                now = Record(old.genome, old.task, old.artefact, int(outcome), old.slot, judges.incumbent, judges.epoch)
                self.evidence.add(now)
        judges.stale = judges.stale[len(event["outcomes"]) :]
        self.rescored += len(event["outcomes"])
        self.budget.add(event["cost"])

    def _end(self, event: Event) -> None:
        self.ended = event

    # ---- reading ---------------------------------------------------------------------------------------------------

    @property
    def outcomes(self) -> int:
        """Outcomes spent, N of the paper."""
        return int(self.budget.spent["outcomes"])

    def workspace(self, node: int) -> dict[str, object]:
        """The genomes of a node by role."""
        return {role: self.genomes[g][1] for role, g in zip(self.roles, self.lineage.genomes[node], strict=True)}

    def summary(self) -> bytes:
        """A digest of the state, equal for equal archives."""
        judged = {
            slot: [j.incumbent, j.epoch, j.pool, sorted(j.graded.items()), j.comparisons, j.gate, j.stale]
            for slot, j in self.judges.items()
        }
        rows = [
            [r.genome, r.task, r.artefact, r.outcome, r.slot, r.tag, r.epoch, r.counts] for r in self.evidence.records
        ]
        kept = [self.lineage.parents, self.lineage.genomes, [list(g) for g in self.genomes], rows, judged]
        clades = [side.tolist() for side in self.lineage.clades()]
        return value_digest([*kept, clades, dict(self.budget.spent), self.checkpoints, self.rescored])

    def close(self) -> None:
        """Give the folder back."""
        self.log.close()

"""The Red Queen engine: agents evolve under judges that evolve too, within epochs in which a judge does not change.

arXiv 2606.26294, Algorithm 1, as section 4 of specs/E178 gives it with what it leaves open. ``evolve`` reads the state
of an archive, decides by counters and a seed alone, and writes one event at a time, so that it goes on from any line of
a log. It must never show an anchor to a proposer, nor replace a judge but at a checkpoint and through a gate.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.methods.coevolve.archive import Anchor, Archive, Measured
from clew.methods.coevolve.beliefs import EPSILON, balanced_utility, best_belief, thompson
from clew.methods.coevolve.epoch_ends import plan_of
from clew.methods.coevolve.judge_gates import Gate
from clew.methods.coevolve.workplace import Job, Proposer, View, Work


@dataclass(frozen=True, slots=True)
class Rules:
    """How a search goes.

    Args:
        gate: when a challenger replaces a judge (``judge_gates``).
        alpha: a new workspace while outcomes ** alpha >= workspaces (UCB-Air).
        first, ratio: checkpoints at first, first * ratio, ... outcomes; ratio 1: after every outcome from ``first`` on.
        guard: no checkpoint with a smaller share of the outcomes left.
        erase: outcomes by a replaced judge no longer count. rescore: their artefacts go before the new judge.
        pool: artefacts that the incumbent wrongly accepted, so many a checkpoint at most, join the anchor; 0 for none.
        challengers: most of them at a checkpoint. least: outcomes that a challenger, or a final choice, needs.
        batch: outcomes that are had at once. halve: the gate ``confirm`` nominates on one half of the anchor beside the
            open validation items, and tests on the other; else it tests on all of it. seed: of all that is drawn here.

    Raises:
        BadInput: a number without a meaning, or an unknown gate.
    """

    gate: Gate = "bb"
    alpha: float = 0.6
    first: int = 8
    ratio: float = 2.0
    guard: float = 0.25
    erase: bool = True
    rescore: bool = True
    pool: int = 0
    challengers: int = 8
    least: int = 5
    batch: int = 1
    halve: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.gate not in get_args(Gate):
            raise BadInput(f"there is no gate {self.gate!r}", remedy=f"Choose from {', '.join(get_args(Gate))}.")
        for name, low, high in (("alpha", 0, 1), ("ratio", 1, math.inf), ("guard", 0, 1)):
            if not low <= getattr(self, name) <= high:
                raise BadInput(f"{name} is {getattr(self, name)}", remedy=f"Give a number from {low} to {high}.")
        for name in ("first", "challengers", "least", "batch"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}", remedy="Give a whole number from 1 on.")

    def due(self, checkpoints: int) -> float:
        """The outcomes at which the next checkpoint falls, after so many."""
        if self.ratio == 1:
            return self.first + checkpoints
        return math.ceil(self.first * self.ratio**checkpoints)

    def checkpoints(self, budget: int) -> int:
        """How many checkpoints a search of so many outcomes has: floor(log2(B / 8)) + 1, or fewer by the guard."""
        n = 0
        while self.due(n) <= budget and (not self.guard or budget - self.due(n) >= self.guard * budget):
            n += 1
        return n


async def evolve(
    archive: Archive,
    work: Work,
    seed: Mapping[str, object],
    proposer: Proposer,
    anchors: Mapping[str, Anchor],
    rules: Rules,
    budget: Mapping[str, float],
    *,
    about: Mapping[str, Any] | None = None,
    watch: Callable[[Archive, str], None] = lambda archive, event: None,
) -> Mapping[str, Any]:
    """Search until the budget ends; gives the closing event, which names the best nodes.

    Args:
        archive: a new one, or one that holds the beginning of this search.
        seed: the first workspace, a genome for each role.
        anchors: the private anchor of each slot.
        budget: caps by name; ``outcomes`` is B of the paper.
        about: what else names this search (JSON): the same log is gone on with only where it is the same.
        watch: called after each event with its name.

    Raises:
        BadInput: an anchor is missing, or the archive holds another search.
        ClewError: what a proposer would have been told holds a text of an anchor.
    """
    return await _Search(archive, work, proposer, anchors, rules, watch).run(seed, budget, about or {})


class _Search:
    """One call of ``evolve``."""

    def __init__(
        self,
        archive: Archive,
        work: Work,
        proposer: Proposer,
        anchors: Mapping[str, Anchor],
        rules: Rules,
        watch: Callable[[Archive, str], None],
    ) -> None:
        if set(anchors) != set(work.slots):
            raise BadInput(f"anchors of {sorted(anchors)}, slots {sorted(work.slots)}", remedy="Give each slot one.")
        self.archive, self.work, self.proposer, self.anchors = archive, work, proposer, anchors
        self.rules, self.watch = rules, watch
        self.roles = {role.name: role for role in work.roles}

    async def run(
        self, seed: Mapping[str, object], budget: Mapping[str, float], about: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        archive = self.archive
        named = {slot: anchor.digest for slot, anchor in self.anchors.items()}
        settings = {"rules": asdict(self.rules), "about": dict(about), "anchors": named, "seed": dict(seed)}
        archive.begin(settings, list(self.roles), self.work.slots, budget)
        if not archive.lineage.parents:
            archive.node(-1, seed, {})
        while archive.ended is None:
            await self._next()
        return archive.ended

    async def _next(self) -> None:
        """The next event, by the state alone."""
        archive, rules = self.archive, self.rules
        stale = next((slot for slot, judges in archive.judges.items() if judges.stale), None)
        if stale is not None and not _others_ended(archive):
            await self._rescore(stale)
            return self.watch(archive, "rescore")
        if self._due():
            cost, slots = Counter[str](), {}
            for slot in archive.judges:  # all planned on the state before
                slots[slot] = await plan_of(archive, self.work, slot, self.anchors[slot], rules, cost)
            kept = {"erase": rules.erase, "rescore": rules.rescore}
            archive.write({"event": "checkpoint", "slots": slots, "cost": dict(cost), **kept})
            return self.watch(archive, "checkpoint")
        if archive.budget.ended:
            archive.write({"event": "end", **self._choice()})
            return self.watch(archive, "end")
        if archive.outcomes and archive.outcomes**rules.alpha >= archive.proposals:
            await self._expand()
            return self.watch(archive, "node")
        batch = self._batch()
        if not batch and archive.proposals > 4 * archive.outcomes + 100:
            archive.write({"event": "end", **self._choice(), "said": "nothing is left to measure or to propose"})
            return self.watch(archive, "end")
        if not batch:  # all was measured that can be: only a new workspace brings more
            await self._expand()
            return self.watch(archive, "node")
        await self._measure(batch)
        return self.watch(archive, "measure")

    def _due(self) -> bool:
        archive, rules = self.archive, self.rules
        if archive.checkpoints >= rules.checkpoints(int(archive.budget.caps["outcomes"])) or _others_ended(archive):
            return False
        return archive.outcomes >= rules.due(archive.checkpoints)

    def _luck(self, *path: int | str) -> int:
        return derive(self.rules.seed, *path)

    # ---- expansion -------------------------------------------------------------------------------------------------

    async def _expand(self) -> None:
        archive = self.archive
        luck = self._luck("expand", archive.proposals)
        parent = thompson(*archive.lineage.clades(), np.random.default_rng(luck))
        workspace = archive.workspace(parent)
        own = [archive.lineage.own(g) for g in archive.lineage.genomes[parent]]
        feedback = await self.work.feedback(workspace, luck)
        view = View(workspace, dict(zip(archive.roles, own, strict=True)), feedback)
        for anchor in self.anchors.values():
            anchor.refuse_leak({"workspace": view.workspace, "feedback": view.feedback})
        found = await self.proposer.propose(view, luck)
        archive.node(parent, found.workspace, {**found.cost, "proposals": 1}, found.said)

    # ---- three-level sampling --------------------------------------------------------------------------------------

    def _batch(self) -> list[tuple[int, str, int, int]]:
        """What is measured next: genome, role, task, and which repeat; a node by its clade, then what was least done.

        Nothing is drawn twice in a batch, and a batch ends where the next checkpoint or the budget does.
        """
        archive, rules = self.archive, self.rules
        rng = np.random.default_rng(self._luck("measure", archive.outcomes, archive.proposals))
        size = min(rules.batch, archive.budget.left())
        if archive.checkpoints < rules.checkpoints(int(archive.budget.caps["outcomes"])):
            size = min(size, rules.due(archive.checkpoints) - archive.outcomes)
        successes, failures = archive.lineage.clades()
        draws = size * 4
        chosen: list[tuple[int, str, int, int]] = []
        extra: dict[tuple[int, int], int] = defaultdict(int)
        while len(chosen) < size and draws > 0:
            draws -= 1
            node = thompson(successes, failures, rng)
            one = self._least(node, extra, rng)
            if one is None and not chosen:
                anywhere = (self._least(int(n), extra, rng) for n in rng.permutation(len(archive.lineage.parents)))
                one = next((found for found in anywhere if found is not None), None)
                if one is None:
                    break
            if one is not None:
                chosen.append(one)
                extra[one[0], one[2]] += 1
        return chosen

    def _least(
        self, node: int, extra: Mapping[tuple[int, int], int], rng: np.random.Generator
    ) -> tuple[int, str, int, int] | None:
        """The least-measured role of a node that has something left, and its least-measured task; None: all is done."""
        archive, best = self.archive, None
        for at, genome in enumerate(archive.lineage.genomes[node]):
            role = self.roles[archive.roles[at]]
            total = archive.evidence.tried[genome] + sum(n for (g, _), n in extra.items() if g == genome)
            if total < role.tasks * role.repeats and (best is None or total < best[0]):
                best = (total, genome, role)
        if best is None:
            return None
        total, genome, role = best
        round_, tries = total // role.tasks, archive.evidence.tries
        start = int(rng.integers(role.tasks))
        for step in range(role.tasks):
            task = (start + step) % role.tasks
            done = tries.get((genome, task), 0) + extra.get((genome, task), 0)
            if done <= round_:
                return genome, role.name, task, done
        raise AssertionError("a task is done at most as often as the mean")

    async def _measure(self, batch: Sequence[tuple[int, str, int, int]]) -> None:
        archive = self.archive
        jobs = [
            Job(role, archive.genomes[genome][1], task, repeat, self._luck("job", genome, task, repeat))
            for genome, role, task, repeat in batch
        ]
        made = await self.work.perform(jobs)
        cost, rows = Counter[str](), list[Measured]()
        judged: dict[str, list[int]] = defaultdict(list)
        for i, ((genome, name, task, _), one) in enumerate(zip(batch, made, strict=True)):
            cost.update(one.cost)
            slot = self.roles[name].judged_by
            key = "" if one.artefact is None else archive.shelf.put(one.artefact)
            rows.append(Measured(genome, task, key, None if slot else one.outcome, slot))
            if slot and one.artefact is not None:
                judged[slot].append(i)
        for slot, which in judged.items():
            judge = archive.genomes[archive.judges[slot].incumbent][1]
            said = await self.work.judge(slot, judge, [made[i].artefact for i in which])
            cost.update(said.cost)
            for i, accepts in zip(which, said.accepts, strict=True):
                rows[i] = rows[i]._replace(outcome=None if accepts is None else int(accepts))
        archive.measure(rows, cost)

    async def _rescore(self, slot: str) -> None:
        """Artefacts whose judge was replaced, before the new one: each once, a bounded number in one event."""
        archive = self.archive
        judges = archive.judges[slot]
        some = judges.stale[: max(64 * self.rules.batch, 4096 if self.rules.batch == 1 else 0)]
        artefacts = [archive.shelf.get(archive.evidence.records[i].artefact) for i in some]
        said = await self.work.judge(slot, archive.genomes[judges.incumbent][1], artefacts)
        outcomes = "".join("?" if a is None else str(int(a)) for a in said.accepts)
        archive.write({"event": "rescore", "slot": slot, "outcomes": outcomes, "cost": dict(said.cost)})

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _choice(self) -> dict[str, Any]:
        """The best-belief node among those measured enough, and the best genome of each role by its own record."""
        archive, least = self.archive, self.rules.least
        pairs = [[archive.lineage.own(g) for g in genomes] for genomes in archive.lineage.genomes]
        totals = np.array([[sum(s for s, _ in of), sum(f for _, f in of)] for of in pairs])
        beliefs = best_belief(totals[:, 0], totals[:, 1], EPSILON)
        beliefs[totals.sum(1) < least] = -1
        utilities = [balanced_utility(of) for of in pairs]
        best = int(beliefs.argmax()) if beliefs.max() >= 0 else int(np.argmax(utilities))
        specialists = {}
        for at, name in enumerate(archive.roles):
            own = np.array([of[at] for of in pairs])
            worth = best_belief(own[:, 0], own[:, 1])
            worth[own.sum(1) < least] = -1
            specialists[name] = int(worth.argmax()) if worth.max() >= 0 else best
        why = archive.budget.ended
        return {"best": best, "specialists": specialists, "utility": utilities[best], "budget": why, "said": ""}


def _others_ended(archive: Archive) -> bool:
    """Whether a budget beside that of outcomes is spent: nothing more may be asked then."""
    return any(archive.budget.left(name) <= 0 for name in archive.budget.caps if name != "outcomes")

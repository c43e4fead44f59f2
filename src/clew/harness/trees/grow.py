"""Tree rollouts: a group grown by forks that a selector chooses, within a budget of decoded tokens (E162).

A leaf is a run. The first leaves of a task are runs of their own; a later one is a fork of a run of the tree, before
one of its asks or inside a reply, so that what they share is stored and decoded once. The tree is read from the
group's runs alone: a collection that was stopped goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np

from clew.core.aio import run_sync
from clew.core.errors import BadInput, CannotRestore
from clew.core.keys import derive
from clew.core.records import Annotation, Call, Cursor, GroupRow, RunRow
from clew.core.values import Task
from clew.harness.collecting import Collecting, named
from clew.harness.executors import Drive, Driving, Prepared
from clew.harness.fork.edits import fork_row, plan
from clew.harness.run.drive import gathered
from clew.harness.run.spec import OnRun, RunSpec
from clew.harness.trees import allocator, selectors
from clew.store import Group, Groups, Run, new_id
from clew.store.run import sampled
from clew.worlds.world_asks import open_world

WON = 0.5  # a leaf succeeded where its raw reward exceeds this, as in Groups.success


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How the trees of a collection grow.

    selector, settings: see ``selectors.selector``. tokens: decoded tokens per task, None for no bound; a tree goes on
    while a continuation of usual length fits, so that the last one may pass the bound by what it is longer.
    leaves: runs per task at most. seeds: runs from the start before the first fork. places: how many tokens of each
    reply may be forked at, those of highest entropy; 0 forks at asks only. together: forks of one tree that run side by
    side; each counts as a try when it is begun, and no score waits for its outcome. spare: the share of all tokens
    that is kept back and then given to the trees whose outcomes are still all alike (0: none). allocator: ``even``
    shares, or ``learned``: to those likeliest to become mixed, as forecast from earlier iterations of the collection;
    even while these are too few.
    """

    selector: str = "uucb"
    settings: tuple[tuple[str, Any], ...] = ()
    tokens: int | None = None
    leaves: int | None = None
    seeds: int = 2
    places: int = 8
    together: int = 1
    spare: float = 0.0
    allocator: Literal["even", "learned"] = "even"

    def __post_init__(self) -> None:
        selectors.selector(self.selector, **dict(self.settings))
        if self.tokens is None and self.leaves is None:
            raise BadInput("a tree needs a bound", remedy="Give tokens= (--budget), leaves= (-n) or both.")
        positive = [x for x in (self.seeds, self.together, self.tokens, self.leaves) if x is not None]
        if min(positive) < 1 or self.places < 0 or not 0 <= self.spare < 1:
            raise BadInput(f"{self}", remedy="Counts are at least 1, places at least 0, spare within [0, 1).")
        if self.spare and self.tokens is None:
            raise BadInput("spare= moves tokens between tasks", remedy="Give tokens= (--budget).")
        if self.allocator not in ("even", "learned") or (self.allocator == "learned" and not self.spare):
            raise BadInput(f"allocator={self.allocator!r}", remedy="Give even, or learned together with spare=.")


class Place(NamedTuple):
    """Where a tree may be branched: before token ``token`` of the reply of ask ``seq`` of ``run``.

    position: tokens decoded on the way there. entropy: of the next token, in nats; NaN where the model gives none.
    """

    run: str
    seq: int
    token: int
    position: int
    entropy: float


@dataclass(slots=True)
class RolloutTree:
    """Places, and what the leaves through each came to. Place 0 is the start of the task.

    visits, wins: decided leaves through each place, and those of them that succeeded. tries: leaves begun there.
    ahead: leaves through each place, undecided ones too, and the tokens from there to their ends, summed.
    paths: per run the indices of the places on its way, in order. rewards: per run its raw reward, None where it is
    undecided. used: tokens decoded, each once. stands, mixed_at: see ``allocator.recall``.
    """

    per_reply: int = 8
    places: list[Place] = field(default_factory=lambda: [Place("", -1, 0, 0, float("nan"))])
    visits: list[int] = field(default_factory=lambda: [0])
    wins: list[int] = field(default_factory=lambda: [0])
    tries: list[int] = field(default_factory=lambda: [0])
    ahead: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    paths: dict[str, list[int]] = field(default_factory=dict)
    rewards: dict[str, float | None] = field(default_factory=dict)
    used: int = 0
    stands: list[tuple[float, ...]] = field(default_factory=list)
    mixed_at: int | None = None

    def add(self, run: Run) -> None:
        """Take in a finished leaf; the run it was forked from comes before it."""
        path, position = [0], 0
        if run.parent is not None:
            path = self._way(run.parent)
            position = self.places[path[-1]].position
        self.tries[path[-1]] += 1
        length, fresh = self._own(run, position)
        for place in fresh:
            path.append(len(self.places))
            self.places.append(place)
            for counts in (self.visits, self.wins, self.tries):
                counts.append(0)
            self.ahead.append((0, 0))
        reward = run.reward
        for index in path:
            leaves, tokens = self.ahead[index]
            self.ahead[index] = leaves + 1, tokens + length - self.places[index].position
            if reward is not None:
                self.visits[index] += 1
                self.wins[index] += reward > WON
        self.paths[run.id], self.rewards[run.id] = path, reward
        self.used += length - position
        if not self.mixed:
            self.stands.append(self.stand())
        elif self.mixed_at is None:
            self.mixed_at = self.used

    def stand(self) -> tuple[float, ...]:
        """Decided leaves, wins, mean and highest entropy, tokens decoded; entropies 0 where the model gives none."""
        known = np.array([p.entropy for p in self.places])
        known = known[np.isfinite(known)]
        mean, most = (float(known.mean()), float(known.max())) if len(known) else (0.0, 0.0)
        return self.visits[0], self.wins[0], mean, most, self.used

    def _way(self, at: Cursor) -> list[int]:
        """The places of the forked run's path up to where it was forked."""
        return [i for i in self.paths[at.run] if self.places[i][1:3] <= (at.seq, at.token)]

    def _own(self, run: Run, position: int) -> tuple[int, list[Place]]:
        """Tokens on the run's path at its end, and the places that its own Calls add."""
        out: list[Place] = []
        first = True
        for call in run.calls[run.shared :]:
            if call.kind != "ask" or not call.node_out:
                continue
            n = sampled(call)
            entropies = call.entropies if call.entropies is not None else np.full(max(n, 1), np.nan)
            if not first:
                out.append(Place(run.id, call.seq, 0, position, float(entropies[0]) if len(entropies) else np.nan))
            out += [
                Place(run.id, call.seq, call.forced + i, position + i, float(entropies[i])) for i in self._open(call, n)
            ]
            position, first = position + n, False
        return position, out

    def _open(self, call: Call, n: int) -> list[int]:
        """The tokens of a reply of highest entropy, in order; its first is the ask's own place, or the fork's."""
        if call.entropies is None or n < 2 or not self.per_reply:
            return []
        best = np.argsort(-np.asarray(call.entropies[1:n]), kind="stable")[: self.per_reply] + 1
        return sorted(best.tolist())

    @property
    def mixed(self) -> bool:
        """Whether two decided leaves have different raw rewards."""
        return len({r for r in self.rewards.values() if r is not None}) > 1

    def candidates(self) -> selectors.Candidates:
        """Scores' inputs, [places]. Where the model gives no entropies all places count as equally open."""
        entropy = np.array([p.entropy for p in self.places])
        known = entropy[np.isfinite(entropy)]
        most = max(float(known.max()), np.log(2)) if len(known) else np.log(2)
        entropy = np.where(np.isfinite(entropy), entropy, most)
        passed, ahead = np.array(self.ahead, dtype=float).T
        cost = ahead / np.maximum(passed, 1)
        visits, wins, tries = (np.array(c, dtype=float) for c in (self.visits, self.wins, self.tries))
        return selectors.Candidates(visits, wins, tries, entropy, np.full(len(cost), np.exp(most)), cost)

    def choose(self, growth: Growth, budget: float, seed: int) -> int:
        """The place to branch next; -1 where none fits what is left of ``budget``."""
        leaf = sum(self.tries)
        if growth.leaves is not None and leaf >= growth.leaves:
            return -1
        known = self.candidates()
        noise = np.random.default_rng([seed, leaf]).random(len(self.places))
        seeding = leaf < growth.seeds
        how = selectors.flat if seeding else selectors.selector(growth.selector, **dict(growth.settings))
        allowed = known.cost <= budget - self.used
        return int(selectors.choose(how(known, noise), allowed, noise))


@dataclass(slots=True)
class _Growing:
    """One task's tree while it grows."""

    task: Task
    group: GroupRow
    index: int
    seed: int
    tree: RolloutTree
    budget: float
    until_mixed: bool = False

    @property
    def done(self) -> bool:
        return self.until_mixed and self.tree.mixed


def collect(
    runner: Driving, tasks: Sequence[Task], growth: Growth, seed: int = 0, **options: Unpack[Collecting]
) -> Groups:
    """As ``Runner.collect``, each task's group (kind ``tree``) grown by forks.

    Raises:
        CannotRestore: the world can be neither restored nor re-enacted, so that nothing can be forked in it.
        BadInput: the model counts no tokens and only ``tokens`` bounds the trees; or another collection has that name.
    """
    spec = replace(runner.spec, model=options.get("model") or runner.spec.model)
    if growth.selector != "flat":
        _restorable(spec, tasks)

    async def go() -> Groups:
        name, iteration, on_run = options.get("name", ""), options.get("iteration", 0), options.get("on_run")
        async with runner.executor.session(spec) as drive:
            known = named(spec.store, name)
            grown = [_open(spec, task, growth, i, seed, name, iteration, known) for i, task in enumerate(tasks)]
            await _all(spec, drive, grown, growth, on_run)
            if growth.spare:
                history = _recalled(spec, known, name, iteration)
                await _move(spec, drive, grown, growth, history, on_run)
                _keep(spec, grown, growth)
        return Groups([Group(spec.store, it.group.id) for it in grown])

    return run_sync(go())


def _restorable(spec: RunSpec, tasks: Sequence[Task]) -> None:
    if spec.taskset is not None and tasks:
        world = open_world(spec.taskset, tasks[0])
        kind, name = world.restores, type(world).__name__
        world.close()
        if kind == "none":
            raise CannotRestore(
                f"{name} can be neither restored nor re-enacted (kind none), so no tree can grow in it",
                remedy="Collect flat rollouts there (`--rollouts flat`, `Runner.collect`).",
            )


def _open(
    spec: RunSpec,
    task: Task,
    growth: Growth,
    index: int,
    seed: int,
    name: str,
    iteration: int,
    known: Mapping[str, GroupRow],
) -> _Growing:
    """The task's tree as the store has it, or an empty one."""
    label = f"{name}/{iteration}/{index}" if name else ""
    group = known.get(label) or GroupRow(new_id(), "tree", task.id, (), label)
    if group.task_id != task.id or group.kind != "tree":
        raise BadInput(
            f"{label} was begun as {group.kind} with {group.task_id}, not as a tree with {task.id}",
            remedy="Give the collection another name, or the same tasks and seed.",
        )
    spec.store.put_group(group)
    share = growth.tokens * (1 - growth.spare) if growth.tokens is not None else float("inf")
    return _Growing(task, group, index, derive(seed, iteration, task.id), RolloutTree(growth.places), share)


async def _all(spec: RunSpec, drive: Drive, trees: Sequence[_Growing], growth: Growth, on_run: OnRun | None) -> None:
    """Grow trees side by side, each until nothing fits; one that cannot be followed lets the others end first."""
    await gathered([_one(spec, drive, it, growth, on_run) for it in trees])


async def _one(spec: RunSpec, drive: Drive, it: _Growing, growth: Growth, on_run: OnRun | None) -> None:
    waiting = [run for run in it.group.runs if run not in it.tree.paths]
    while waiting:  # what a stopped collection left, in the order in which it was begun
        for run in waiting[: growth.together]:
            it.tree.add(await drive(Prepared(spec.store.row(run), it.task), on_run))
        waiting = waiting[growth.together :]
    while not it.done and (rows := _begin(spec, it, growth)):
        await gathered([drive(Prepared(row, it.task, calls), on_run) for row, calls in rows])
        for row, _ in rows:
            it.tree.add(Run(spec.store, row.id))
        if growth.leaves is None and it.tree.used == 0:
            raise BadInput(
                f"the model of run {rows[0][0].id} counts no tokens, so a budget of tokens never ends",
                remedy="Bound the trees by leaves=.",
            )


def _begin(spec: RunSpec, it: _Growing, growth: Growth) -> list[tuple[RunRow, list[Call]]]:
    """Rows of the next leaves and the Calls they share; a leaf begun counts as a try until its outcome is in."""
    tree, out, begun = it.tree, list[tuple[RunRow, list[Call]]](), list[int]()
    for _ in range(growth.together):
        chosen = tree.choose(growth, it.budget, it.seed)
        if chosen < 0:
            break
        begun.append(chosen)
        tree.tries[chosen] += 1
        place, leaf = tree.places[chosen], len(it.group.runs) + len(out)
        out.append(_row(spec, it, place, leaf))
    for chosen in begun:
        tree.tries[chosen] -= 1  # add() counts it again
    if out:
        it.group = it.group._replace(runs=(*it.group.runs, *(row.id for row, _ in out)))
        spec.store.put_group(it.group)
        for row, _ in out:
            spec.store.put_run(row)
    return out


def _row(spec: RunSpec, it: _Growing, place: Place, leaf: int) -> tuple[RunRow, list[Call]]:
    fields: dict[str, Any] = {"group": it.group.id, "order": (0, it.index, leaf)}
    seed = derive(it.seed, leaf)
    if place.seq < 0:
        label = it.group.name.split("/")[0] if it.group.name else ""
        return spec.row(it.task, seed=seed, name=label, **fields), []
    view = Run(spec.store, place.run)
    seq, changes = plan(view, Cursor(place.run, place.seq, place.token))
    return fork_row(view, seq, changes, seed, 0, **fields), spec.store.calls(view.id, 0, seq)


async def _move(
    spec: RunSpec,
    drive: Drive,
    trees: Sequence[_Growing],
    growth: Growth,
    history: allocator.History,
    on_run: OnRun | None,
) -> None:
    """Give what is left of all tokens to the trees whose outcomes are all alike, until it is spent: in equal parts, or
    grant by grant to those that the forecast favours."""
    assert growth.tokens is not None
    forecast = history.forecast if growth.allocator == "learned" else None
    left = growth.tokens * len(trees) - sum(it.tree.used for it in trees)
    while left > 0 and (alike := [it for it in trees if not it.tree.mixed]):
        each = left / len(alike)
        if forecast is not None:
            stands = [(*it.tree.stand()[:4], it.tree.used / growth.tokens, history.past(it.task.id)) for it in alike]
            chance = forecast.chance(allocator.Standings(*np.array(stands).T))
            each = min(allocator.GRANT * growth.tokens, left)
            alike = [alike[i] for i in allocator.favoured(chance, left, each)]
        for it in alike:
            it.budget, it.until_mixed = it.tree.used + each, True
        await _all(spec, drive, alike, growth, on_run)
        before, left = left, growth.tokens * len(trees) - sum(it.tree.used for it in trees)
        if left >= before:
            return


def _keep(spec: RunSpec, trees: Sequence[_Growing], growth: Growth) -> None:
    """File how each tree grew, from which forecasts of later iterations are learnt."""
    rows = []
    for it in trees:
        tree, group = it.tree, it.group.id
        facts = {"stands": tree.stands, "mixed_at": tree.mixed_at, "used": tree.used, "budget": growth.tokens}
        facts |= {"leaves": tree.visits[0], "wins": tree.wins[0]}
        rows.append(Annotation("group", "growth", float(tree.mixed), run=group, scope=group, data=json.dumps(facts)))
    spec.store.annotate(rows)
    spec.store.commit()


def _recalled(spec: RunSpec, known: Mapping[str, GroupRow], name: str, iteration: int) -> allocator.History:
    """How the trees of earlier iterations grew."""
    order = {row.id: tuple(map(int, label.split("/")[-2:])) for label, row in known.items()}
    tasks = {row.id: row.task_id for row in known.values() if order[row.id][0] < iteration}
    notes = spec.store.annotations(list(tasks), "growth", "group") if tasks else []
    return allocator.recall([(tasks[a.run], json.loads(a.data)) for a in sorted(notes, key=lambda a: order[a.run])])

"""The audit of a memory: which items, in which runs, how many forks, and what came of them.

``clew memory audit`` calls ``plan``, tells what it costs, then ``carry_out``; experiments do the same. Both arms of a
pair are forks; forks that lack nothing are shared by all items that a run was given at the same Call. An interrupted
audit goes on where it stopped. It must never change the memory or the runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clew.core.errors import BadInput, ClewError
from clew.core.keys import value_digest
from clew.core.records import Cursor
from clew.harness.memory import Item, Memory
from clew.harness.memory.telling import THRESHOLD
from clew.methods.memory.lessons.likeness import copies
from clew.methods.memory.worth import worth_verdict
from clew.methods.memory.worth.given_runs import Given, drawn, given
from clew.methods.memory.worth.left_out import EVERYTHING, Forks, Job, Left, Sample, spent
from clew.methods.memory.worth.worth_verdict import Pair, Subject, Worth
from clew.store import Run
from clew.store.protocol import rewards

PAIRS, BUDGET, PER_RUN = 60, 3000, 4


class Cost(NamedTuple):
    """What forks cost, or are expected to."""

    forks: int
    tokens: float
    seconds: float
    dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be run. ``jobs``: in the order in which they are made, a pair of every subject after the other.

    Attributes:
        label: a digest of all that the forks hang on, the number of pairs left out.
        starts: subject -> where its pairs of forks begin, and which of the forks there.
        everything: what is left out where everything is.
        runs: subject -> how many runs were given it.
        notes: what is left out, and why.
        found: forks that the store has already. cost: of those that are missing, from the runs they are forked from.
    """

    memory: str
    label: str
    everything: Left
    starts: dict[Subject, list[tuple[Cursor, int]]]
    runs: dict[Subject, int]
    jobs: list[Job]
    notes: list[str]
    found: int
    cost: Cost


@dataclass(slots=True, kw_only=True)
class Finding:
    """What an audit found. cost: of the forks it made; whole: forks, tokens and dollars of all that it rests on."""

    plan: Plan
    worth: list[Worth]
    cost: Cost
    whole: tuple[int, float, float]


def plan(
    memory: Memory,
    forks: Forks,
    *,
    items: Collection[str] = (),
    runs: Collection[str] | None = None,
    n: int = PAIRS,
    per_run: int = PER_RUN,
    budget: int = BUDGET,
) -> Plan:
    """What the audit of some items would run; nothing is run.

    Subjects are everything at once, the items that were given to most runs first, and near copies together. Those that
    do not fit the budget are left out, the last first: fewer pairs for all would leave all undecided.

    Args:
        items: ids; none: all items in use.
        runs: only runs of these ids.
        n: pairs of forks of each subject. per_run: of them from one run at most, where there are fewer runs than pairs.
        budget: forks that may be made.

    Raises:
        BadInput: n, per_run or budget is below 1, or not even one subject fits. UnknownName: no such item.
    """
    if min(n, per_run, budget) < 1:
        raise BadInput(f"n={n}, per_run={per_run}, budget={budget}", remedy="Each is at least 1.")
    chosen = [memory.item(one) for one in items] or [i for i in memory.items() if i.state in ("active", "promoted")]
    where = given(memory.store, chosen, runs)
    notes = [f"{count} recalls are not used: {why}" for why, count in sorted(where.left_out.items()) if why]
    where = _playable(where, forks, notes)
    places = {one: _places(one, where, chosen) for one in _subjects(chosen, where, everything=not items)}
    all_of = _everything(memory)
    wanted = {one: _pairs(at, forks.seed, n, per_run) for one, at in places.items() if at}
    starts, missing = _afforded(wanted, forks, all_of, budget)
    if len(starts) < len(wanted):
        notes.append(f"{len(wanted) - len(starts)} of {len(wanted)} were left out for the budget of {budget} forks")
    jobs = list(dict.fromkeys(_in_turn(starts, all_of)))
    return Plan(
        memory=memory.name,
        label=value_digest([memory.name, forks.params({job.start.run for job in jobs})]).hex()[:8],
        everything=all_of,
        starts=starts,
        runs={one: len(places[one]) for one in starts},
        jobs=jobs,
        notes=notes,
        found=len(jobs) - len(missing),
        cost=_expected(memory, [job for job in jobs if job in missing]),
    )


def _afforded(
    wanted: dict[Subject, list[tuple[Cursor, int]]], forks: Forks, everything: Left, budget: int
) -> tuple[dict[Subject, list[tuple[Cursor, int]]], set[Job]]:
    """The subjects that fit the budget, the first ones first, and the forks that they still need.

    Raises:
        BadInput: none fits.
    """
    starts: dict[Subject, list[tuple[Cursor, int]]] = {}
    missing: set[Job] = set()
    for subject, pairs in wanted.items():
        more = missing.union(forks.missing(_jobs(subject, everything, pairs)))
        if len(more) <= budget:
            starts[subject], missing = pairs, more
    if wanted and not starts:
        raise BadInput(f"one item alone needs more than {budget} forks", remedy="Raise --budget, or lower -n.")
    return starts, missing


def carry_out(
    it: Plan,
    forks: Forks,
    *,
    margin: float = worth_verdict.MARGIN,
    cost: float = worth_verdict.COST,
    on_fork: Callable[[Sample], None] | None = None,
) -> Finding:
    """Make the forks that are missing and judge what came of all.

    Raises:
        As ``Forks.make``.
    """
    made: list[Sample] = []

    def count(sample: Sample) -> None:
        made.append(sample)
        if on_fork is not None:
            on_fork(sample)

    began = time.perf_counter()
    forks.make(it.jobs, count)
    seconds = time.perf_counter() - began
    paid = Cost(len(made), sum(one.tokens for one in made), seconds, sum(one.dollars for one in made))
    rests = [sample for job in it.jobs if (sample := forks.sample(job)) is not None]
    whole = (len(rests), sum(one.tokens for one in rests), sum(one.dollars for one in rests))
    return Finding(plan=it, worth=read(it, forks, margin=margin, cost=cost), cost=paid, whole=whole)


def read(
    it: Plan, forks: Forks, *, margin: float = worth_verdict.MARGIN, cost: float = worth_verdict.COST
) -> list[Worth]:
    """Verdicts from the forks that are there; a pair of which one is missing does not count."""
    pairs: dict[Subject, list[Pair]] = {}
    for subject, places in it.starts.items():
        pairs[subject] = []
        for start, copy in places:
            present, without = (forks.sample(Job(left, start, copy)) for left in ((), _left(subject, it.everything)))
            if present is not None and without is not None:
                pairs[subject].append(Pair(start.run, present[:3], without[:3]))
    names = {subject: named(subject, it.memory) for subject in it.starts}
    recorded = rewards(forks.store, sorted({start.run for places in it.starts.values() for start, _ in places}))
    fallible = len({reward > THRESHOLD for reward in recorded.values()}) > 1
    return worth_verdict.judged(pairs, names, margin=margin, cost=cost, fallible=fallible)


def named(subject: Subject, memory: str) -> str:
    """What a subject is called in a claim: ids alone, since what an item says may be deleted."""
    if subject.kind == "all":
        return f"all that memory {memory} gave"
    items = " and ".join(subject.items)
    return f"{'item' if subject.kind == 'item' else 'copies'} {items} of memory {memory}"


def _playable(where: Given, forks: Forks, notes: list[str]) -> Given:
    """Without the runs whose agent, world or model cannot be had any more."""
    bad: dict[str, str] = {}
    for run in {run for starts in where.starts.values() for run in starts}:
        try:
            forks.runner(run)
        except ClewError as error:
            bad[run] = error.message
    for why in sorted(set(bad.values())):
        notes.append(f"{sum(text == why for text in bad.values())} runs cannot be forked: {why}")
    good = {item: {run: at for run, at in starts.items() if run not in bad} for item, starts in where.starts.items()}
    return where._replace(starts=good)


def _subjects(items: Sequence[Item], where: Given, *, everything: bool) -> list[Subject]:
    runs = {item.id: len(where.starts.get(item.id, ())) for item in items}
    seen = sorted((item for item in items if runs[item.id]), key=lambda item: (-runs[item.id], item.id))
    found = [Subject("all", tuple(item.id for item in seen))] if everything and len(seen) > 1 else []
    alike = [group for group in copies(seen) if where.of(group, together=True)]
    for item in seen:
        found.append(Subject("item", (item.id,)))
        found += [Subject("copies", group) for group in alike if group[0] == item.id]
    return found


def _places(subject: Subject, where: Given, items: Iterable[Item]) -> dict[str, Cursor]:
    if subject.kind == "all":
        return where.of([item.id for item in items], together=False)
    return where.of(subject.items, together=True)


def _pairs(places: dict[str, Cursor], seed: int, n: int, per_run: int) -> list[tuple[Cursor, int]]:
    """Which forks make the pairs: one of each run, then a second of each, and so on."""
    order = drawn(places, seed)
    return [(places[order[i % len(order)]], i // len(order)) for i in range(min(n, per_run * len(order)))]


def _everything(memory: Memory) -> Left:
    """Whatever is recalled, or, where runs may recall from other memories too, each item of this one."""
    if memory.store.memories() == [memory.name]:
        return EVERYTHING
    return tuple(sorted(item.id for item in memory.items()))


def _left(subject: Subject, everything: Left) -> Left:
    return everything if subject.kind == "all" else tuple(sorted(subject.items))


def _jobs(subject: Subject, everything: Left, places: Iterable[tuple[Cursor, int]]) -> list[Job]:
    return [Job(left, start, copy) for start, copy in places for left in ((), _left(subject, everything))]


def _in_turn(starts: dict[Subject, list[tuple[Cursor, int]]], everything: Left) -> Iterator[Job]:
    """A pair of each subject after the other, so that an audit that is stopped has some of each."""
    for i in range(max(map(len, starts.values()), default=0)):
        for subject, places in starts.items():
            yield from _jobs(subject, everything, places[i : i + 1])


def _expected(memory: Memory, jobs: Sequence[Job]) -> Cost:
    """A fork is taken to cost what the Calls of the run did from the place on; many forks run at once."""
    tails: dict[Cursor, tuple[float, float, float]] = {}
    for job in jobs:
        if job.start not in tails:
            calls = Run(memory.store, job.start.run).calls[job.start.seq :]
            _, tokens, dollars = spent(calls)
            tails[job.start] = (tokens, sum(call.seconds for call in calls), dollars)
    tokens, seconds, dollars = (float(sum(tails[job.start][i] for job in jobs)) for i in range(3))
    return Cost(len(jobs), tokens, seconds, dollars)

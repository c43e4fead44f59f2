"""Continuations from cursors whose outcomes alone are kept: one packed row for each place, no run stored (rule 10).

The share of right outcomes estimates the potential of a place: the chance that the agent, going on from there by the
policy's own sampler, succeeds. Each continuation is a fork, made in a store that is thrown away; ``promote`` makes the
same fork in the run's own store, so that a sample can be looked at and followed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from clew.core.aio import run_sync
from clew.core.errors import BadInput, ModelError, UnknownName
from clew.core.keys import derive, value_digest
from clew.core.records import Call, Cursor, Edit, Intervention
from clew.core.values import F32, StopReason
from clew.harness.executors import Driving, Prepared, driven
from clew.harness.fork.edits import fork_row, plan, told
from clew.harness.run.restore import world_at
from clew.models.taps import Tap
from clew.models.taps.forms import form_of
from clew.store import Group, MemoryStore, Run
from clew.store.bundles.chosen import copy_run
from clew.store.run import sampled

METHOD = "potential"
SPELT = 200  # characters of a tail that are written out in the name of a place
TOGETHER = 2048  # continuations under way at once
EVERY = 2.0  # seconds between two writings of the outcomes that came: what an interruption can cost


class Start(NamedTuple):
    """Where continuations begin: at a cursor, after ``tail``, which is forced instead of what is recorded there.

    ``tail`` is token ids, or text where the reply was recorded without any.
    """

    run: str
    seq: int
    token: int = 0
    tail: tuple[int, ...] | str = ()

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.run, self.seq, self.token)

    def __str__(self) -> str:
        written = self.tail if isinstance(self.tail, str) else ",".join(map(str, self.tail))
        written = written if len(written) <= SPELT else value_digest(self.tail).hex()
        return str(self.cursor) + (f":{written}" if written else "")


class Outcome(Protocol):
    """What is asked of runs that have ended, in place of the reward: 1, 0, or None where it cannot be told.

    ``name`` says all that its values hang on. ``alone``: the value of a run does not hang on the runs beside which it
    is asked for. ``since`` is the Call from which each run is a continuation.
    """

    @property
    def name(self) -> str: ...
    @property
    def alone(self) -> bool: ...
    def of(self, runs: Sequence[Run], since: Sequence[int]) -> Sequence[float | None]: ...


class Samples(NamedTuple):
    """Of one place: seeds of the forks, outcomes float32 [n] (NaN where undecided), tokens decoded, US dollars."""

    seeds: np.ndarray
    outcomes: F32
    tokens: F32
    costs: F32


class Forking(Driving, Protocol):
    """A Runner, as far as continuations need one."""

    def fork(
        self,
        run: Run | str,
        at: Cursor,
        *,
        prefix: str | Sequence[int] | None = None,
        tap: Sequence[Tap] | None = None,
        seed: int,
        edits: Sequence[Edit] = (),
    ) -> Group: ...


class Continuations:
    """Samples continuations by a runner and keeps their outcomes in its store; what is there is not sampled again.

    Args:
        runner: the one that made the runs, or makes them now (another model).
        seed: of the plan; sample i of a place has a seed derived from it, the stage, the place and i.
        judge_seconds: a judge that takes longer leaves its sample undecided, whatever bound the runner has; None waits
            for ever. The clock of each verdict starts when the judge does, in a thread of its own.
        outcome: what is kept of each continuation; default its reward, for which a judge is needed.
        taps: written into hidden states in every request of a continuation.
        told: a sentence that the first conversation's system message says besides, in every continuation.
    """

    def __init__(
        self,
        runner: Forking,
        *,
        seed: int = 0,
        judge_seconds: float | None = None,
        outcome: Outcome | None = None,
        taps: Sequence[Tap] = (),
        told: str = "",
    ) -> None:
        spec = runner.spec
        self.outcome = outcome
        if spec.taskset is None and outcome is None:
            raise BadInput(
                f"runs of agent {spec.agent_ref} have no taskset, so nothing judges how they end",
                remedy="Choose runs of a world or a taskset with a judge.",
            )
        self.runner, self.spec, self.seed, self.judge_seconds = runner, spec, seed, judge_seconds
        self.taps, self.told = tuple(taps), told
        model = spec.model
        who = {
            "agent": spec.agent_ref,
            "digest": spec.agent_digest,
            "taskset": spec.taskset.ref if spec.taskset else "",
        }
        by = {"model": model.ref if model else "", "version": model.version if model else 0}
        by["weights"] = getattr(model, "fingerprint", "")
        self.settings = {**who, **by, "seed": seed, "judge_seconds": judge_seconds}
        self.settings |= {} if outcome is None else {"outcome": outcome.name}
        self.settings |= {"taps": [form_of(tap) for tap in taps]} if taps else {}
        self.settings |= {"told": told} if told else {}
        self.params = value_digest(self.settings).hex()

    def method(self, stage: str) -> str:
        """The name under which a stage's outcomes are kept."""
        return f"{METHOD}/{self.params}/{stage}"

    def kept(self, stage: str, start: Start) -> Samples | None:
        """What the store has of a place."""
        store, method = self.spec.store, self.method(stage)
        try:
            found, spent = store.outcomes(method, str(start)), store.outcomes(method + "/tokens", str(start))
        except UnknownName:
            return None
        decoded = dict(zip(spent.seeds.tolist(), spent.outcomes.tolist(), strict=True))
        there = np.array([seed in decoded for seed in found.seeds.tolist()], bool)  # a kill may come between the two
        tokens = np.array([decoded[seed] for seed in found.seeds[there].tolist()], np.float32)
        return Samples(found.seeds[there], found.outcomes[there], tokens, found.costs[there])

    def missing(self, stage: str, starts: Sequence[Start], n: int) -> int:
        """How many continuations ``sample`` would make."""
        return sum(len(seeds) for _, seeds in self._todo(stage, starts, n, {}))

    def _seeds(self, stage: str, start: Start, n: int) -> list[int]:
        root = derive(self.seed, stage, str(start))
        return [derive(root, i) for i in range(n)]

    def _todo(
        self, stage: str, starts: Sequence[Start], n: int, have: dict[Start, Samples]
    ) -> list[tuple[Start, list[int]]]:
        """The seeds of each place that are still to be run; what the store has goes into ``have``."""
        todo = list[tuple[Start, list[int]]]()
        for start in dict.fromkeys(starts):
            known = self.kept(stage, start)
            if known is not None:
                have[start] = known
            there = set(known.seeds.tolist()) if known is not None else set()
            if missing := [seed for seed in self._seeds(stage, start, n) if seed not in there]:
                todo.append((start, missing))
        return todo

    def sample(
        self, stage: str, starts: Sequence[Start], n: int, on_samples: Callable[[int], None] | None = None
    ) -> dict[Start, Samples]:
        """The first ``n`` samples of each place; those that are missing are made, and written down as they come.

        Raises:
            BadInput, CannotRestore: a run cannot be continued there; nothing is sampled then.
            ModelError: every continuation of a place ended in a failure of the model.
        """
        have: dict[Start, Samples] = {}
        todo = self._todo(stage, starts, n, have)
        if todo:
            run_sync(self._probe([start for start, _ in todo]))

        def keep(start: Start, new: Samples) -> None:
            have[start] = _merged(have.get(start), new, self._seeds(stage, start, n))
            self._keep(stage, start, have[start])
            if on_samples is not None:
                on_samples(len(new.seeds))

        for portion in _portions(todo):
            run_sync(self._make(portion, keep))
        return {start: _first(have[start], self._seeds(stage, start, n)) for start in starts}

    def promote(self, start: Start, seed: int) -> Run:
        """The sample of that seed as a run: the same fork, made in the runner's own store."""
        view, tap = Run(self.spec.store, start.run), self.taps or None
        edits = told(view, self.told) if self.told else ()
        if start.tail:
            at, prefix = Cursor(start.run, start.seq), _prefix(view, start)
            return self.runner.fork(view, at, prefix=prefix, tap=tap, seed=seed, edits=edits)[0]
        return self.runner.fork(view, start.cursor, tap=tap, seed=seed, edits=edits)[0]

    def _keep(self, stage: str, start: Start, found: Samples) -> None:
        store, method = self.spec.store, self.method(stage)
        seeds, costs = found.seeds.tolist(), found.costs.tolist()
        store.put_outcomes(method, str(start), seeds, found.outcomes.tolist(), costs)
        store.put_outcomes(method + "/tokens", str(start), seeds, found.tokens.tolist(), costs)

    async def _probe(self, starts: Sequence[Start]) -> None:
        """Bring each run's world back to its furthest place once, so that a refusal comes before any cost."""
        last: dict[str, Start] = {}
        for start in starts:
            last[start.run] = max(start, last.get(start.run, start), key=lambda it: it[:3])
        for start in last.values():
            view = Run(self.spec.store, start.run)
            seq, changes = _planned(view, start, self.taps, self.told)
            if seq > 1:
                shared = self.spec.store.calls(view.id, 0, seq)
                world = await world_at(self.spec, self.spec.task_of(view.row), shared, changes)
                if world is not None:
                    world.close()

    async def _make(self, portion: Sequence[tuple[Start, list[int]]], keep: Callable[[Start, Samples], None]) -> None:
        """Fork and run on, in a store of memory that is thrown away; outcomes are kept as they come."""
        limit = self.judge_seconds
        aside = replace(self.spec, store=MemoryStore(), judge_seconds=limit, judge_thread=limit is not None)
        for name in dict.fromkeys(start.run for start, _ in portion):
            copy_run(aside.store, self.spec.store, name)
        work: list[Prepared] = []
        forks: dict[str, tuple[Start, int]] = {}
        for start, seeds in portion:
            view = Run(aside.store, start.run)
            seq, changes = _planned(view, start, self.taps, self.told)
            task, shared = aside.task_of(view.row), aside.store.calls(view.id, 0, seq)
            for seed in seeds:
                row = fork_row(view, seq, changes, seed, 0, group="")
                forks[row.id] = (start, seed)
                aside.store.put_run(row)
                work.append(Prepared(row, task, shared))
        alone = self.outcome is None or self.outcome.alone
        waiting, failed, written = dict[str, Run](), dict[str, Run](), time.monotonic()
        async with aclosing(driven(self.runner.executor, aside, work)) as runs:
            async for run in runs:
                (failed if run.stop is StopReason.MODEL_ERROR else waiting)[run.id] = run
                if alone and time.monotonic() - written >= EVERY:
                    self._write(forks, waiting, keep)
                    waiting, written = {}, time.monotonic()
        by_start = Counter(forks[name][0] for name in failed)
        lost = {start for start, seeds in portion if by_start[start] == len(seeds)}
        told = {name: one for name, one in failed.items() if forks[name][0] not in lost}
        self._write(forks, waiting | told, keep)
        for name, one in failed.items():
            if (start := forks[name][0]) in lost:
                raise ModelError(f"all {by_start[start]} continuations failed: {one.calls[-1].error}", at=str(start))
        aside.store.close()

    def _write(
        self, forks: Mapping[str, tuple[Start, int]], ended: Mapping[str, Run], keep: Callable[[Start, Samples], None]
    ) -> None:
        """Keep the outcomes of forks that ended, place by place."""
        names = [name for name in forks if name in ended]
        told = self._outcomes([(ended[name], forks[name][0].seq) for name in names])
        by_start: dict[Start, list[str]] = {}
        for name in names:
            by_start.setdefault(forks[name][0], []).append(name)
        for start, some in by_start.items():
            keep(start, _samples([forks[name][1] for name in some], [ended[name] for name in some], told))

    def _outcomes(self, ended: Sequence[tuple[Run, int]]) -> dict[str, float | None]:
        """What is kept of each finished continuation, by its id."""
        runs = [run for run, _ in ended]
        told = (
            [run.reward for run in runs] if self.outcome is None else self.outcome.of(runs, [seq for _, seq in ended])
        )
        return {run.id: value for run, value in zip(runs, told, strict=True)}


def _prefix(view: Run, start: Start) -> str | list[int]:
    """What is forced: the recorded tokens of the reply that come before the place, or its characters, and the tail."""
    call = view.call(start.seq)
    node = view.store.node(call.node_out)
    if node.ids is not None and not isinstance(start.tail, str):
        return [*node.ids[call.head : call.head + start.token], *start.tail]
    if node.ids is None and isinstance(start.tail, str):
        return node.message.text[: start.token] + start.tail
    kind = "token ids" if node.ids is None else "a text beside its token ids"
    raise BadInput(f"the reply at {start.cursor} has no {kind}", remedy="Force text with `clew fork --reply`.")


def _planned(view: Run, start: Start, taps: Sequence[Tap], said: str) -> tuple[int, Intervention]:
    edits = told(view, said) if said else ()
    if start.tail:
        at = Cursor(start.run, start.seq)
        return plan(view, at, prefix=_prefix(view, start), tap=taps or None, edits=edits)
    return plan(view, start.cursor, tap=taps or None, edits=edits)


def _portions(todo: Sequence[tuple[Start, list[int]]]) -> Iterator[list[tuple[Start, list[int]]]]:
    """Whole places, about ``TOGETHER`` samples at a time."""
    portion: list[tuple[Start, list[int]]] = []
    for item in todo:
        portion.append(item)
        if sum(len(seeds) for _, seeds in portion) >= TOGETHER:
            yield portion
            portion = []
    if portion:
        yield portion


def _samples(seeds: Sequence[int], runs: Sequence[Run], told: Mapping[str, float | None]) -> Samples:
    """Outcomes of finished continuations."""
    own: list[list[Call]] = [run.calls[run.shared :] for run in runs]
    values = [told[run.id] for run in runs]
    outcomes = np.array([np.nan if value is None else value for value in values], np.float32)
    tokens = np.array([sum(map(sampled, calls)) for calls in own], np.float32)
    costs = np.array([sum(c.cost for c in calls) for calls in own], np.float32)
    return Samples(np.array(seeds, np.int64), outcomes, tokens, costs)


def _merged(old: Samples | None, new: Samples, seeds: Sequence[int]) -> Samples:
    """Both, in the order of the plan's ``seeds``; others, of a longer plan, stand last."""
    every = Samples(*map(np.concatenate, zip(old, new, strict=True))) if old is not None else new
    place = {seed: i for i, seed in enumerate(seeds)}
    order = np.argsort([place.get(seed, len(place)) for seed in every.seeds.tolist()], kind="stable")
    return Samples(*(column[order] for column in every))


def _first(every: Samples, seeds: Sequence[int]) -> Samples:
    """Those of some seeds, in their order."""
    place = {seed: i for i, seed in enumerate(every.seeds.tolist())}
    return Samples(*(column[[place[seed] for seed in seeds]] for column in every))

"""Forks of stored runs with items left out of their recalls, and matched forks with nothing left out.

``worth_audit.py`` hands over jobs. Both arms go on from the same Call under the same seed, so that draws and samples
that the item does not reach are the same (common random numbers). Forks run in a store of memory that is thrown away;
of each the seed, success, turns, tokens and dollars are packed into the runs' store as soon as it has ended, and what
is there is never made again. The recorded run itself is no arm: it was chosen, perhaps for how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from clew.core.aio import run_sync
from clew.core.errors import ClewError, ModelError, UnknownName
from clew.core.keys import derive, value_digest
from clew.core.protocols import Model
from clew.core.records import Call, Cursor, Edit
from clew.core.values import StopReason
from clew.harness.executors import IN_LOOP, Prepared, driven
from clew.harness.fork.continuations import Continuations
from clew.harness.fork.edits import fork_row, plan
from clew.harness.memory.recalling import ALL
from clew.harness.memory.telling import THRESHOLD
from clew.harness.runner import Runner
from clew.store import Run
from clew.store.base import Keeper
from clew.store.bundles.chosen import copy_run
from clew.store.memory import MemoryStore

METHOD = "worth"
TOGETHER = 128  # forks that are under way at once
Left = tuple[str, ...]  # ids of what is left out, sorted; ``EVERYTHING``: whatever is recalled; none: nothing
EVERYTHING: Left = (ALL,)


class Sample(NamedTuple):
    """What became of one fork. success: 1, 0, or NaN where the judge said nothing. turns: Calls of a model, or acts
    where none was asked. tokens: read and written. dollars."""

    success: float
    turns: float
    tokens: float
    dollars: float


class Job(NamedTuple):
    """One fork: what is left out, where it begins, and which of the forks that begin there it is (from 0)."""

    left: Left
    start: Cursor
    copy: int


class Forks:
    """Makes and keeps the forks of an audit.

    Args:
        store: holds the runs and the memory, and keeps what came of each fork.
        seed: of the plan; a fork's seed is derived from it, the place and its number there, whatever is left out.
        resolve: gives the model of a reference. model: instead of the runs' own.
    """

    def __init__(
        self,
        store: Keeper,
        *,
        seed: int = 0,
        resolve: Callable[[str], Model] | None = None,
        model: Model | None = None,
    ) -> None:
        self.store, self.seed, self.resolve, self.model = store, seed, resolve, model
        self._runners: dict[tuple[str, ...], Runner | ClewError] = {}
        self._params: dict[int, str] = {}
        self._kept: dict[tuple[str, str], dict[int, Sample]] = {}

    def runner(self, run: str) -> Runner:
        """What made a run, and makes its forks; one for all runs that were made alike.

        Raises:
            ClewError: its agent, world or model cannot be had any more.
        """
        row = self.store.row(run)
        like = (row.agent, row.agent_digest, row.taskset, row.model, row.config, row.settings)
        if like not in self._runners:
            try:
                found = Runner.of(self.store, run, model=self.model, resolve_model=self.resolve)
                self._params[id(found)] = Continuations(found, seed=self.seed).params
                self._runners[like] = found
            except ClewError as error:
                self._runners[like] = error
        made = self._runners[like]
        if isinstance(made, ClewError):
            raise made
        return made

    def params(self, runs: Iterable[str]) -> list[str]:
        """Digests of all that forks of these runs hang on: agent, world, model, seed."""
        return sorted({self._params[id(self.runner(run))] for run in runs})

    def seed_of(self, job: Job) -> int:
        """The seed of a fork: the same in every arm."""
        return derive(self.seed, METHOD, str(job.start), job.copy)

    def sample(self, job: Job) -> Sample | None:
        """What became of a fork; None where it was not made."""
        return self._known(job).get(self.seed_of(job))

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """Those that are still to be made, each once."""
        return [job for job in dict.fromkeys(jobs) if self.sample(job) is None]

    def make(self, jobs: Sequence[Job], on_fork: Callable[[Sample], None] | None = None) -> None:
        """Make the forks that are missing, in their order, and keep each as it ends.

        A fork whose model failed is not kept: it is made again next time.

        Raises:
            ModelError: every fork of a portion ended so. CannotRestore: a world cannot be brought back.
        """
        by_runner: dict[int, list[Job]] = {}
        for job in self.missing(jobs):
            by_runner.setdefault(id(self.runner(job.start.run)), []).append(job)
        for todo in by_runner.values():
            for first in range(0, len(todo), TOGETHER):
                run_sync(self._make(todo[first : first + TOGETHER], on_fork))

    async def _make(self, jobs: Sequence[Job], on_fork: Callable[[Sample], None] | None) -> None:
        runner = self.runner(jobs[0].start.run)
        aside = replace(runner.spec, store=MemoryStore())
        for run in dict.fromkeys(job.start.run for job in jobs):
            copy_run(aside.store, self.store, run)
        work, mine = list[Prepared](), dict[str, Job]()
        for job in jobs:
            view = Run(aside.store, job.start.run)
            without = ALL if job.left == EVERYTHING else list(job.left)
            edits = [Edit("memory", job.start.seq, {"without": without})] if job.left else []
            seq, changes = plan(view, job.start, edits=edits)
            row = fork_row(view, seq, changes, self.seed_of(job), 0, group="")
            aside.store.put_run(row)
            mine[row.id] = job
            work.append(Prepared(row, aside.task_of(view.row), aside.store.calls(view.id, 0, seq)))
        failed = ""
        async with aclosing(driven(IN_LOOP, aside, work)) as ended:
            async for fork in ended:
                if fork.stop is StopReason.MODEL_ERROR:
                    failed = failed or fork.calls[-1].error
                    continue
                found = sample_of(fork)
                self._keep(mine.pop(fork.id), found)
                if on_fork is not None:
                    on_fork(found)
        aside.store.close()
        if failed and len(mine) == len(jobs):
            raise ModelError(f"all {len(jobs)} forks failed: {failed}", at=str(jobs[0].start))

    # ---- what is kept: a packed table for each arm and place, and one beside it for turns and tokens ----------------

    def _name(self, job: Job) -> str:
        params = self._params[id(self.runner(job.start.run))]
        left = "-".join(job.left) if job.left in ((), EVERYTHING) else value_digest(list(job.left)).hex()[:12]
        return f"{METHOD}/{params}/{left or 'nothing'}"

    def _known(self, job: Job) -> dict[int, Sample]:
        name, place = self._name(job), str(job.start)
        if (name, place) not in self._kept:
            self._kept[name, place] = self._read(name, place)
        return self._kept[name, place]

    def _read(self, name: str, place: str) -> dict[int, Sample]:
        try:
            first, second = self.store.outcomes(name, place), self.store.outcomes(f"{name}/turns", place)
        except UnknownName:
            return {}
        further = zip(second.seeds.tolist(), second.outcomes.tolist(), second.costs.tolist(), strict=True)
        more = {seed: (turns, tokens) for seed, turns, tokens in further}
        told = zip(first.seeds.tolist(), first.outcomes.tolist(), first.costs.tolist(), strict=True)
        return {
            seed: Sample(success, more[seed][0], more[seed][1], dollars)
            for seed, success, dollars in told
            if seed in more  # a kill between the two leaves one of them short
        }

    def _keep(self, job: Job, found: Sample) -> None:
        name, place, known = self._name(job), str(job.start), self._known(job)
        known[self.seed_of(job)] = found
        seeds, all_of = list(known), list(known.values())
        self.store.put_outcomes(
            f"{name}/turns", place, seeds, [one.turns for one in all_of], [one.tokens for one in all_of]
        )
        self.store.put_outcomes(name, place, seeds, [one.success for one in all_of], [one.dollars for one in all_of])


def sample_of(run: Run) -> Sample:
    """What a fork came to, by its own Calls; those of child runs are not counted."""
    own, reward = run.calls[run.shared :], run.reward
    return Sample(float("nan") if reward is None else float(reward > THRESHOLD), *spent(own))


def spent(calls: Sequence[Call]) -> tuple[float, float, float]:
    """Turns, tokens and dollars of some Calls."""
    asks = [call for call in calls if call.kind == "ask"]
    tokens = sum(call.usage.prompt + call.usage.completion for call in asks)
    turns = len(asks) or sum(call.kind == "act" for call in calls)
    return float(turns), float(tokens), float(np.sum([call.cost for call in calls]))

"""The seam between preparing runs and driving them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clew.core.errors import LeaseHeld, ReplayDiverged
from clew.core.values import Task
from clew.harness import LiveRun, Runner
from clew.harness.agents import player
from clew.harness.executors import IN_LOOP, Drive, Prepared
from clew.harness.run.spec import OnRun, RunSpec
from clew.store import Run
from clew.worlds.household import Household

from .conftest import Wanderer


class OneByOne:
    """Drives each run to its end before it begins the next."""

    def __init__(self) -> None:
        self.sessions: list[list[str]] = []

    @asynccontextmanager
    async def session(self, spec: RunSpec) -> AsyncIterator[Drive]:
        driven, turn = list[str](), asyncio.Lock()
        self.sessions.append(driven)
        async with IN_LOOP.session(spec) as drive:

            async def one(run: Prepared, on_run: OnRun | None = None) -> Run:
                async with turn:
                    driven.append(run.row.id)
                    return await drive(run, on_run)

            yield one


def test_runs_may_be_driven_elsewhere(house: Household, wanderer: Wanderer) -> None:
    singly, seen = OneByOne(), list[str]()
    runner = Runner(player, house, wanderer, executor=singly)
    groups = runner.collect(house.sample(3), n=3, seed=7, on_run=lambda run: seen.append(run.id))
    usual = Runner(player, house, wanderer).collect(house.sample(3), n=3, seed=7)
    assert singly.sessions == [seen]
    assert sorted(seen) == sorted(run.id for run in groups.runs)
    for run, other in zip(groups.runs, usual.runs, strict=True):
        assert [c.key for c in run.calls] == [c.key for c in other.calls]
        assert run.reward == other.reward is not None
    forks = runner.fork(groups.runs[0], at=groups.runs[0].at(step=2), n=4)
    assert singly.sessions[1:] == [[fork.id for fork in forks]]
    assert runner.store.verify() == []


def test_a_run_that_cannot_be_followed_lets_the_others_end_first_and_other_errors_stop_them(
    tmp_path: Path, wanderer: Wanderer
) -> None:
    tasks, changed = [Task(f"t{i}", "go on") for i in range(3)], list[str]()

    async def agent(run: LiveRun) -> None:
        await run.chat().ask("one" if run.task.id in changed else "two")
        if not changed and run.task.id == "t0":
            raise KeyboardInterrupt

    first = Runner(agent, None, wanderer, tmp_path / "runs.db")
    with pytest.raises(KeyboardInterrupt):
        first.collect(tasks, n=1, name="c")
    changed.append("t0")
    again = Runner(agent, None, wanderer, first.store)
    with pytest.raises(ReplayDiverged):
        again.collect(tasks, n=1, name="c")
    stops = {run.task_id: run.stop for run in again.store.runs("name=c/*")}
    assert stops["t0"] is None
    assert stops["t1"] == stops["t2"] == "returned"
    left = next(run for run in again.store.runs("name=c/*") if run.stop is None)
    again.store.lease(left.id, "host:1:somebody", 60)
    with pytest.raises(LeaseHeld):
        again.collect(tasks, n=1, name="c")


def test_no_runs_are_no_runs(house: Household, wanderer: Wanderer) -> None:
    assert [len(group) for group in Runner(player, house, wanderer).collect(house.sample(2), n=0)] == [0, 0]

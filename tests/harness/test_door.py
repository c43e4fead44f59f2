"""The synchronous methods also work where a loop runs already, as in a notebook; agents load by reference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from clew.core.aio import run_sync, stoppable
from clew.core.errors import AgentFailed, UnknownName
from clew.core.values import StopReason, Task
from clew.harness import LiveRun, Runner
from clew.harness.agents import player
from clew.harness.loading import agent_ref, load_agent
from clew.worlds.household import Household

from .conftest import Wanderer


def test_inside_a_running_loop(tmp_path: Path, house: Household, wanderer: Wanderer) -> None:
    async def cell() -> None:
        runner = Runner(player, house, wanderer, tmp_path / "runs.db")
        groups = runner.collect(house.sample(1), n=2)
        run = groups.worst()
        fork = runner.fork(run, at=run.at(step=3))[0]
        assert runner.replay(fork).calls == len(fork.calls)
        assert run.id in run._repr_html_()
        assert len(run.frame()) == len(run.calls)
        assert "reward" in groups.frame().columns

    asyncio.run(cell())


def test_stream_gives_groups_as_they_end(house: Household, wanderer: Wanderer) -> None:
    async def watch() -> list[str]:
        runner = Runner(player, house, wanderer)
        return [group.task_id async for group in runner.stream(house.sample(3), n=2)]

    assert sorted(asyncio.run(watch())) == sorted(task.id for task in house.sample(3))


def test_agents_by_reference(tmp_path: Path) -> None:
    assert agent_ref(player) == "clew.harness.agents:player"
    assert load_agent("clew.harness.agents:player") is player
    (tmp_path / "mine.py").write_text("async def agent(run):\n    run.note('here')\n")
    assert load_agent(f"{tmp_path}/mine.py:agent").__name__ == "agent"
    for bad in ("nowhere.module:agent", "clew.harness.agents:nobody", f"{tmp_path}/none.py:agent"):
        with pytest.raises(UnknownName, match="cannot be loaded"):
            load_agent(bad)


def test_an_agent_whose_code_fails_is_told_once_for_all() -> None:
    async def broken(run: LiveRun) -> None:
        raise KeyError("oops")

    runner = Runner(broken)
    with pytest.raises(AgentFailed, match="oops"):
        runner.collect([Task("t", "")], n=2)
    runs = [runner.store.run(r) for r in runner.store.run_ids()]
    assert [r.stop for r in runs] == [StopReason.AGENT_ERROR] * 2
    assert runs[0].reward is None, "an unjudged run has no reward, which is not zero"
    runner.replay(runs[0])


def test_secrets_stay_with_the_judge(house: Household) -> None:
    seen: list[object] = []

    async def curious(run: LiveRun) -> None:
        seen.append(run.task.secret)
        seen.append(repr(run.task))

    class Judged(Household):
        def find(self, task_id: str) -> Task:
            from dataclasses import replace

            return replace(super().find(task_id), secret="the answer is 42")

        async def judge(self, task, run, world):  # type: ignore[no-untyped-def]
            seen.append(task.secret)
            return {"reward": 0.0}

    tasks = Judged()
    run = Runner(curious, tasks).collect([tasks.find(tasks.sample(1)[0].id)], n=1).runs[0]
    assert seen[0] is None
    assert "42" not in str(seen[1])
    assert seen[2] == "the answer is 42"
    assert "42" not in run.row.task


def test_work_begun_inside_a_running_loop_can_be_stopped_too() -> None:
    """The handle reaches the thread that such work runs in."""
    handles: list[Callable[[], None]] = []

    async def endless() -> None:
        handles[0]()
        await asyncio.sleep(60)

    async def cell() -> None:
        with stoppable(handles.append), pytest.raises(asyncio.CancelledError):
            run_sync(endless())

    asyncio.run(cell())
    handles.clear()
    with stoppable(handles.append), pytest.raises(asyncio.CancelledError):
        run_sync(endless())

"""An agent that computes in a thread is busy: no wall clock decides whether its run replays and forks."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from clew.core.errors import ReplayDiverged
from clew.core.values import Limits, StopReason, Task
from clew.harness import LiveRun, Runner
from clew.harness.run import lifecycle
from clew.models.fakes import Echo


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "PATIENCE", 0.1)


def made(agent: Any, **limits: Any) -> tuple[Runner, Any]:
    runner = Runner(agent, None, Echo(), limits=Limits(**limits))
    return runner, runner.collect([Task("t", "")], n=1).runs[0]


def test_a_run_whose_agent_computes_in_a_thread_replays_and_forks() -> None:
    async def agent(run: LiveRun) -> None:
        chat = run.chat()
        await chat.ask("one")
        await asyncio.to_thread(time.sleep, 0.5)
        await chat.ask("two")

    runner, run = made(agent)
    assert runner.replay(run).calls == len(run.calls) == 4
    fork = runner.fork(run, 2)[0]
    assert fork.stop is StopReason.RETURNED
    assert runner.replay(fork).calls == 4


def test_timers_run_by_the_wall_clock_while_a_thread_computes() -> None:
    async def agent(run: LiveRun) -> None:
        async with asyncio.timeout(0.2):
            await run.chat().ask("one")
        for name, seconds in (("long enough", 30.0), ("too short", 0.05)):
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.to_thread(time.sleep, 0.4)
                run.note(f"{name}: ended")
            except TimeoutError:
                run.note(f"{name}: given up")

    runner, run = made(agent)
    assert [c.action for c in run.calls if c.kind == "note"] == ["long enough: ended", "too short: given up"]
    assert runner.replay(run).calls == len(run.calls)


def test_a_thread_that_its_time_limit_left_behind_holds_up_no_replay() -> None:
    async def agent(run: LiveRun) -> None:
        await run.chat().ask("one")
        await asyncio.to_thread(time.sleep, 2)

    runner, run = made(agent, seconds=0.1)
    assert run.stop is StopReason.TIME_LIMIT
    assert runner.replay(run).calls == len(run.calls)


def test_an_agent_that_does_nothing_after_its_thread_has_diverged() -> None:
    waits = [False]

    async def agent(run: LiveRun) -> None:
        await run.chat().ask("one")
        await asyncio.to_thread(time.sleep, 0.2)
        if waits[0]:
            with suppress(TimeoutError):
                await asyncio.Event().wait()
        await run.chat().ask("two")

    runner, run = made(agent)
    waits[0] = True
    with pytest.raises(ReplayDiverged, match="the agent issues nothing"):
        runner.replay(run)

"""Agents that would take the process with them, or never end: each run ends with a named stop, and the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time

import pytest

import clew
from clew.core.errors import ClewError
from clew.core.values import StopReason
from clew.models.fakes import Echo


async def exits(run, of="s0"):
    await run.chat().ask("first")
    if run.task.id == of:
        sys.exit(0)


async def exits_in_a_task(run):
    await run.chat().ask("first")

    async def part():
        sys.exit(3)

    await asyncio.gather(part(), asyncio.sleep(0))


async def asks_on_a_loop_of_its_own(run):
    async def ask():
        return await run.chat().ask("from another loop")

    await asyncio.to_thread(lambda: asyncio.run(ask()))


async def swallows_its_cancellation(run):
    await run.chat().ask("first")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


async def waits_for_something_else(run):
    await run.chat().ask("first")
    await asyncio.Event().wait()


async def leaves_a_stubborn_task(run):
    async def part():
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    run.kept = asyncio.create_task(part())
    await run.chat().ask("first")


def collected(agent, n=1, tasks=1, **limits):
    runner = clew.Runner(agent, None, Echo(), limits=clew.Limits(**limits))
    return runner, runner.collect([clew.Task(f"s{i}", "") for i in range(tasks)], n=n)


def test_one_agent_that_exits_ends_its_own_run_alone():
    _, groups = collected(exits, tasks=4)
    stops = [run.stop for run in groups.runs]
    assert stops.count(StopReason.AGENT_ERROR) == 1
    assert stops.count(StopReason.RETURNED) == 3
    failed = next(run for run in groups.runs if run.stop == StopReason.AGENT_ERROR)
    assert "SystemExit" in failed.calls[-1].error


@pytest.mark.parametrize("agent", [exits_in_a_task, asks_on_a_loop_of_its_own])
def test_what_would_end_or_hang_the_process_is_an_error_of_the_agent(agent):
    with pytest.raises(ClewError, match=r"SystemExit|another event loop"):
        collected(agent, n=2)


@pytest.mark.parametrize("agent", [swallows_its_cancellation, waits_for_something_else])
def test_an_agent_that_never_ends_is_stopped_by_its_time_limit_and_replays(agent):
    began = time.monotonic()
    runner, groups = collected(agent, n=3, seconds=0.5)
    assert [run.stop for run in groups.runs] == [StopReason.TIME_LIMIT] * 3
    assert time.monotonic() - began < 60
    assert runner.replay(groups.runs[0]).calls == len(groups.runs[0].calls)


def test_a_task_that_outlives_its_agent_holds_up_nobody():
    _, groups = collected(leaves_a_stubborn_task)
    assert groups.runs[0].stop == StopReason.RETURNED


NEVER = """
import asyncio
async def agent(run):
    await run.chat().ask("first")
    print("asked", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            pass
"""


def test_a_second_interrupt_ends_what_swallows_everything(tmp_path):
    (tmp_path / "never.py").write_text(NEVER)
    line = [sys.executable, "-m", "clew.cli", "run", "never.py:agent", "--world", "counter", "--model", "echo"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert any(b"asked" in line for line in process.stdout), "it began"
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130

"""Calls of one reply side by side: where the tool allows, recorded in their order, and replayed as they were."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from clew.core.errors import WorldError
from clew.core.values import Message, Task, ToolCall
from clew.harness import Runner, tool
from clew.models.fakes import Scripted

_busy, _most, _lock = [0], [0], threading.Lock()


def _within(seconds: float) -> None:
    with _lock:
        _busy[0] += 1
        _most[0] = max(_most[0], _busy[0])
    time.sleep(seconds)
    with _lock:
        _busy[0] -= 1


@tool(parallel=True)
def look(place: str, seconds: float = 0.05) -> str:
    """Look somewhere."""
    _within(seconds)
    return f"seen {place}"


@tool
def move(place: str) -> str:
    """Go somewhere."""
    _within(0.01)
    return f"at {place}"


@tool(parallel=True)
async def fetch(place: str, seconds: float = 0.05) -> str:
    """Fetch something."""
    await asyncio.sleep(seconds)
    return f"from {place}"


@tool(parallel=True)
async def lost(place: str) -> str:
    """Fails for good."""
    raise WorldError(f"{place} is gone")


def reply(*calls: tuple[str, str]) -> Message:
    made = [ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls)]
    return Message("assistant", "", calls=tuple(made))


def made(store, *calls: tuple[str, str], n: int = 1):
    _busy[0] = _most[0] = 0
    model = Scripted([reply(*calls), "done"])
    runner = Runner("tool_user", None, model, store, tools=[look, move, fetch, lost])
    return runner, runner.collect([Task("t", "go")], n=n).runs


def acts(run):
    return [(call.action, call.text) for call in run.calls if call.kind == "act"]


THREE = [("look", f'{{"place": "p{i}", "seconds": {0.15 - 0.05 * i}}}') for i in range(3)]


def test_parallel_calls_overlap_and_are_recorded_in_the_order_of_the_reply(tmp_path):
    runner, (run,) = made(tmp_path / "store.db", *THREE)
    assert _most[0] == 3
    assert [text for _, text in acts(run)] == ["seen p0", "seen p1", "seen p2"]
    asked = [call for call in run.calls if call.kind == "act"]
    assert max(call.after for call in asked) < min(call.done for call in asked), "each began before any had ended"
    assert runner.replay(run.id).calls == len(run.calls)


def test_another_runner_replays_and_forks_a_run_whose_calls_overlapped(tmp_path):
    _, (run,) = made(tmp_path / "store.db", *THREE, ("fetch", '{"place": "x"}'))
    again = Runner.of(tmp_path / "store.db", run.id, model=Scripted([reply(*THREE), "done"]))
    assert sorted(again.tools) == ["fetch", "look", "lost", "move"]
    assert again.tools["look"].parallel
    assert again.replay(run.id).calls == len(run.calls)
    fork = again.fork(run, run.at(step=1), result="seen nothing")[0]
    assert acts(fork)[1][1] == "seen nothing"
    assert again.replay(fork.id).calls == len(fork.calls)


def test_other_tools_keep_their_turn(tmp_path):
    mixed = [THREE[0], THREE[1], ("move", '{"place": "a"}'), ("move", '{"place": "b"}'), THREE[2]]
    runner, (run,) = made(tmp_path / "store.db", *mixed)
    assert _most[0] == 2
    assert [text for _, text in acts(run)] == ["seen p0", "seen p1", "at a", "at b", "seen p2"]
    assert runner.replay(run.id).calls == len(run.calls)


def test_without_the_flag_nothing_overlaps():
    made(":memory:", *[("move", f'{{"place": "{i}"}}') for i in range(4)])
    assert _most[0] == 1


def test_where_one_fails_for_good_the_others_are_recorded_first(tmp_path):
    runner, (run,) = made(tmp_path / "store.db", THREE[0], ("lost", '{"place": "x"}'), THREE[2])
    assert run.stop == "world_error"
    assert [text for _, text in acts(run)] == ["seen p0", "", "seen p2"]
    assert runner.replay(run.id).calls == len(run.calls)


def test_many_runs_at_once_replay_too(tmp_path):
    runner, runs = made(tmp_path / "store.db", *THREE, n=8)
    assert _most[0] > 3
    assert all(runner.replay(run.id).calls == len(run.calls) for run in runs)


@pytest.mark.parametrize("wrong", ['{"place": 3}', "{", '{"seat": "x"}'])
def test_wrong_arguments_of_a_parallel_tool_come_back_at_once(wrong):
    _, (run,) = made(":memory:", THREE[0], ("look", wrong))
    assert acts(run)[1][1].startswith("error: look: ")

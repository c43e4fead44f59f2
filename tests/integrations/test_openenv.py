"""Clew tasksets as OpenEnv environments: openenv-core's own client and validator against the server that is made."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("openenv", reason="did not run: openenv-core is not installed (make openenv)")

import uvicorn
from openenv.cli._validation import validate_running_environment
from openenv.core.generic_client import GenericEnvClient

from clew.integrations.openenv_app import ClewAction, app, environments
from clew.store import open_store
from clew.worlds.household import Household

pytestmark = pytest.mark.enable_socket
SHORT = "household(rooms=2, steps=3)"
QUESTIONS = "".join(f'{{"question": "What is {n} + {5 - n}?", "answer": "5"}}\n' for n in range(20))


@contextmanager
def served(taskset, store, **how) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    made = app(taskset, store=store, **how)
    server = uvicorn.Server(uvicorn.Config(made, log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def store(tmp_path):
    kept = open_store(tmp_path / "store.db")
    yield kept
    kept.close()


def test_the_validator_of_openenv_finds_nothing_missing(store):
    with served(SHORT, store) as address:
        report = validate_running_environment(address)
    assert report["passed"], report["criteria"]
    assert report["summary"]["total_count"] == 6


def test_an_episode_is_a_run_that_the_judge_rewards(store):
    """The world's own demonstration, sent action by action, wins, and its record is that of a player."""
    taskset = Household(rooms=2)
    task = taskset.sample(1, seed=4)[0]
    with served(taskset, store) as address, GenericEnvClient(base_url=address).sync() as env:
        seen = env.reset(task=task.id, episode_id="mine")
        assert seen.observation["text"].startswith("put ")
        for action in taskset.demonstrate(task, seed=0):
            assert (seen.reward, seen.done) == (None, False)
            seen = env.step({"text": action})
        state = env.state()
    assert (seen.reward, seen.done) == (1.0, True)
    run = store.run(seen.observation["run"])
    assert [call.action for call in run.calls if call.kind == "act"] == list(taskset.demonstrate(task, seed=0))
    assert (run.task_id, run.reward, run.model) == (task.id, 1.0, "openenv")
    assert (state["episode_id"], state["task"]) == ("mine", task.id)
    assert state["step_count"] == len(taskset.demonstrate(task, seed=0))
    assert list(store.verify()) == []


def test_tools_are_described_and_called(store):
    with served("desk", store) as address, GenericEnvClient(base_url=address).sync() as env:
        seen = env.reset(seed=0)
        named = {tool["function"]["name"]: tool["function"]["parameters"] for tool in seen.observation["tools"]}
        assert len(named) > 1
        name = next(one for one in named if not named[one].get("required"))
        seen = env.step({"calls": [{"name": name, "arguments": {}}]})
        assert seen.observation["messages"][-1]["role"] == "tool"
        assert seen.observation["tools"] == []
        seen = env.step({"text": "That is all."})
        assert seen.done
    run = store.run(seen.observation["run"])
    assert sum(call.kind == "act" for call in run.calls) == 1


def test_what_a_client_does_wrong_is_told_and_the_episode_goes_on(store):
    with served(SHORT, store) as address, GenericEnvClient(base_url=address).sync() as env:
        with pytest.raises(RuntimeError, match=r"no episode is under way\n  Call reset\(\) first"):
            env.step({"text": "look"})
        with pytest.raises(RuntimeError, match="'nowhere' is not a task of this set"):
            env.reset(task="nowhere")
        env.reset(seed=1)
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            env.step({"texts": "look"})
        for _ in range(3):
            seen = env.step({"text": "look"})
        assert seen.done
        with pytest.raises(RuntimeError, match="the episode is over"):
            env.step({"text": "look"})


def test_an_episode_that_a_client_leaves_is_kept_with_the_reason(store):
    with served(SHORT, store) as address:
        with GenericEnvClient(base_url=address).sync() as env:
            env.reset(seed=1)
            env.step({"text": "look"})
            env.reset(seed=2)
        until = time.monotonic() + 10
        while not all(run.stop for run in store.runs()) and time.monotonic() < until:
            time.sleep(0.05)
    first, second = store.runs()[::-1]
    told = [next(call.error for call in run.calls if call.error) for run in (first, second)]
    assert "the client began another episode" in told[0]
    assert "the client left the episode" in told[1]
    assert (first.reward, second.reward) == (None, None)


def test_an_environment_that_is_closed_while_its_world_computes_leaves_no_run_waiting(store):
    async def closed():
        env = environments(f"slow(of='{SHORT}', seconds=0.5)", store=store)()
        await env.reset_async(seed=1)
        step = asyncio.ensure_future(env.step_async(ClewAction(text="look")))
        await asyncio.sleep(0.1)
        env.close()
        return await asyncio.wait_for(step, 10)

    seen = asyncio.run(closed())
    assert (seen.done, seen.reward, seen.stop) == (True, None, "model_error")
    [run] = store.runs()
    assert "the client left the episode" in next(call.error for call in run.calls if call.error)


def test_clients_play_side_by_side(store):
    async def play(address, seed):
        async with GenericEnvClient(base_url=address) as env:
            seen = await env.reset(seed=seed)
            while not seen.done:
                seen = await env.step({"text": "look"})
            return seen.observation["task"]

    async def all_of_them(address):
        return await asyncio.gather(*(play(address, seed) for seed in range(8)))

    with served(SHORT, store) as address:
        tasks = asyncio.run(all_of_them(address))
    assert sorted(run.task_id for run in store.runs()) == sorted(tasks)
    assert len(set(tasks)) > 1


def test_the_command_line_serves_a_file_of_ones_own(tmp_path):
    (tmp_path / "questions.jsonl").write_text(QUESTIONS)
    words = [sys.executable, "-P", "-m", "clew.cli", "worlds", "--data", "questions.jsonl", "--reward", "exact"]
    process = subprocess.Popen(
        [*words, "--openenv", "0"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said = process.stdout.readline()
        while "serving" not in said and process.poll() is None:
            said = process.stdout.readline()
        address = re.search(r"http://\S+", said)[0]
        with GenericEnvClient(base_url=address).sync() as env:
            seen = env.reset()
            assert seen.observation["text"].startswith("What is ")
            seen = env.step({"text": "5"})
        assert (seen.done, seen.reward) == (True, 1.0)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)

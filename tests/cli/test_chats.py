"""Runs that only talk, at the command line: their steps, what their forks and differences show, and forks that fail."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from clew.core.values import Message, Task
from clew.harness import Runner
from clew.harness.fork.fork_request import ForkRequest, other_weights, runner_for
from clew.models.fakes import Scripted, tool_call
from clew.store import Run, open_store
from clew.view.jobs import LIVE, Jobs
from clew.view.stores import Stores

AGENT = "tests.cli.test_chats:talker"


async def talker(run, twice: bool = True):
    chat = run.chat()
    await chat.ask("hello")
    if twice:
        await run.act("up")
        await chat.ask("and then?")


@pytest.fixture
def chats(tmp_path) -> tuple[Path, list[str]]:
    from clew.core.registry import build

    path = tmp_path / "chats.db"
    model = Scripted([tool_call("weather", city="Oslo"), "fine", "rainy", "sunny"], by="call")
    runner = Runner("clew.harness.agents:chatter", None, model, path)
    runs = [runner.collect([Task("t", "how is it?")], n=1, seed=i).runs[0].id for i in range(2)]
    counter = build("tasksets", "counter")
    mixed = Runner(AGENT, counter, model, path)
    runs.append(mixed.collect(counter.sample(1), n=1).runs[0].id)
    runner.store.close()
    return path, runs


def test_steps_are_counted_one_way(clew, chats) -> None:
    path, runs = chats
    listed = {row["run"]: row["steps"] for row in json.loads(clew("log", "--json", "--store", path).output)}
    store = open_store(path)
    assert listed == {run: len(Run(store, run).steps) for run in runs}
    assert sorted(listed.values()) == [1, 1, 2]
    assert store.find("steps=2") == [runs[2]]
    assert "2 steps" in clew("show", runs[2], "--store", path).output


def test_a_fork_of_a_chat_shows_what_was_said(clew, chats) -> None:
    path, runs = chats
    shown = clew("fork", f"{runs[1]}@1", "--reply", "not at all", "--store", path).output
    assert "> “fine”" in shown
    assert "> “not at all”" in shown
    assert "(ends)" not in shown


def test_diff_shows_replies_that_are_tool_calls(clew, chats) -> None:
    path, runs = chats
    shown = clew("diff", runs[0], runs[1], "--store", path).output
    assert 'weather({"city": "Oslo"})' in shown
    assert "fine" in shown


def test_forks_that_all_end_in_an_error_of_the_agent_fail(clew, tmp_path) -> None:
    path = tmp_path / "imported.db"
    runner = Runner("clew.harness.agents:chatter", None, Scripted(["hello"]), path)
    run = runner.collect([Task("t", "hi")], n=1).runs[0].id
    runner.store._db.execute("UPDATE run SET model = ''")
    runner.store.close()
    failed = clew("fork", f"{run}@1", "--store", path, code=2)
    assert "this run has no model" in failed.output
    assert open_store(path).verify() == []
    clew("fork", f"{run}@1", "--reply", "no model is needed", "--store", path)


def test_a_run_of_the_gateway_is_not_resumed_and_the_way_on_is_told(clew, tmp_path) -> None:
    path = tmp_path / "gateway.db"
    runner = Runner("clew.serve.relay:relay", None, None, path)
    runner.store.put_run(runner.row(Task("t", "go")))
    runner.store.close()
    told = clew("resume", "--store", path, code=2).output
    assert "goes on when that program asks again" in told
    assert "/r/" in told
    assert "Traceback" not in told


class Trained(Scripted):
    """The same reference with later weights."""

    version = 3


def test_a_fork_with_other_weights_says_so_on_the_page_too(tmp_path) -> None:
    path = tmp_path / "trained.db"
    runner = Runner("clew.harness.agents:chatter", None, Scripted(["one"]), path)
    run = runner.collect([Task("t", "hi")], n=1).runs[0]
    store = open_store(path)
    same = runner_for(store, ForkRequest(run.id, 1), lambda ref: Scripted(["one"]))
    other = runner_for(store, ForkRequest(run.id, 1), lambda ref: Trained(["two"]))
    assert other_weights(run, None, same) == ""
    assert "sampled this run, version 3 is loaded" in other_weights(run, None, other)
    told: list[dict] = []
    jobs = Jobs(Stores(path), lambda ref: Trained(["two"]), told.append)
    jobs.add(ForkRequest(run.id, 1), "clew fork")
    while jobs.list()[0]["state"] in LIVE:
        time.sleep(0.01)
    job = jobs.list()[0]
    jobs.close()
    assert job["state"] == "done", job
    assert "version 3 is loaded" in job["note"]
    assert Message("assistant", "two") == store.run(job["runs"][0]["run"]).reply(1).message

"""Verbs that make runs: run, fork, resume, stop, eval, train, quickstart, import and export, each through the line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from clew.cli import quickstart
from clew.store import open_store

WORLD = "household(rooms=2,steps=4)"


def first(clew, store, *query):
    return json.loads(clew("log", *query, "--store", store, "--json").output)[0]["run"]


def test_run_prints_runs_and_where_to_look(clew):
    done = clew("run", "--world", WORLD, "--model", "markov", "--tasks", 2, "-n", 2, "--max-tokens", 4, "--json")
    data = json.loads(done.output)
    assert len(data["runs"]) == 4
    assert len({row["group"] for row in data["runs"]}) == 2
    assert data["success"]["n"] == 4
    text = clew("run", "--world", WORLD, "--model", "echo", "--tasks", 1).output
    assert "success 0.00 [0.00" in text
    assert "clew show" in text
    assert len(json.loads(clew("log", "--json").output)) == 5


def test_the_same_named_line_makes_nothing_anew(clew):
    line = ("run", "--world", WORLD, "--model", "echo", "--tasks", 1, "--name", "once", "--json")
    assert json.loads(clew(*line).output) == json.loads(clew(*line).output)


def test_limits_and_agents_from_a_file(clew, tmp_path):
    (tmp_path / "mine.py").write_text(
        "async def agent(run, greeting='hi'):\n"
        "    chat = run.chat(greeting)\n"
        "    while not run.done:\n"
        "        await run.act(await chat.ask(run.view))\n"
    )
    line = ("run", "mine.py:agent", "--world", WORLD, "--model", "echo", "--tasks", 1, "--max-steps", 2)
    clew(*line, "--config", '{"greeting": "be quick"}')
    row = json.loads(clew("log", "--json").output)[0]
    assert (row["stop"], row["steps"]) == ("step_limit", 2)
    assert "be quick" in clew("show", row["run"], "--json").output
    assert json.loads(clew("replay", row["run"], "--json").output)[0]["error"] is None


def test_an_agent_that_fails_every_time_is_an_error_with_its_traceback(clew, tmp_path):
    (tmp_path / "bad.py").write_text("async def agent(run):\n    raise ValueError('no idea')\n")
    said = clew("run", "bad.py:agent", "--world", WORLD, "--model", "echo", "--tasks", 1, code=2).output
    assert "no idea" in said


def test_fork_with_something_changed(clew, store):
    run = first(clew, store)
    line = ("fork", f"{run[:7]}@3", "--store", store, "--model", "echo", "--json")
    data = json.loads(clew(*line, "-n", 2).output)
    assert data["at"] == f"{run}@3"
    assert [fork["shared"] for fork in data["forks"]] == [3, 3]
    data = json.loads(clew(*line, "--reply", "go nowhere").output)
    shown = json.loads(clew("show", data["forks"][0]["run"], "--store", store, "--json").output)
    assert shown[0]["calls"][4]["action"] == "go nowhere"
    data = json.loads(clew("fork", run, "--say", "0=look around", "--model", "echo", "--store", store, "--json").output)
    assert data["forks"][0]["shared"] == 1
    assert "╰ fork" in clew("show", run, "--store", store).output
    clew("store", "verify", "--store", store)


def test_fork_at_the_low_point(clew, store):
    run = first(clew, store)
    clew("credit", "bellman", "--store", store)
    keeper = open_store(store)
    place = str(keeper.run(run).low_point("bellman"))
    keeper.close()
    line = ("fork", run, "--low", "bellman", "--model", "echo", "--store", store, "--json")
    assert json.loads(clew(*line).output)["at"] == place


def test_eval_reports_with_an_interval_and_keeps_the_report(clew, tmp_path):
    done = clew("eval", "echo", "markov", "--world", WORLD, "--tasks", 3, "--max-tokens", 4, "--json")
    data = json.loads(done.output)
    assert set(data) == {"echo", "markov"}
    assert all(row["low"] <= row["estimate"] <= row["high"] and row["n"] == 3 for row in data.values())
    store = open_store(tmp_path / ".clew" / "store.db")
    assert len(store.reports()) == 2
    store.close()


@pytest.mark.parametrize("form", ["jsonl", "parquet", "atif.jsonl"])
def test_export_and_import_again(clew, store, tmp_path, form):
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="did not run: pyarrow is not installed")
    file = tmp_path / f"runs.{form}"
    assert json.loads(clew("export", file, "--store", store, "--json").output)["runs"] == 6
    taken = json.loads(clew("import", file, "--store", "new.db", "--json").output)
    assert len(taken["runs"][str(file)]) == 6
    rows = json.loads(clew("log", "--store", "new.db", "--json").output)
    before = json.loads(clew("log", "--store", store, "--json").output)
    assert sorted((row["task"], row["steps"]) for row in rows) == sorted((row["task"], row["steps"]) for row in before)
    clew("store", "verify", "--store", "new.db")


def test_a_broken_line_imports_nothing_and_is_named(clew, tmp_path):
    good = json.dumps({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]})
    (tmp_path / "runs.jsonl").write_text(f'{good}\n{{"messages": [{{"role": "us\n{good}\n')
    said = clew("import", "runs.jsonl", code=2).output
    assert "2" in said
    assert "runs.jsonl" in said
    assert json.loads(clew("log", "--json").output) == []
    (tmp_path / "nan.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}], "reward": NaN}\n')
    assert "NaN" in clew("import", "nan.jsonl", code=2).output
    assert len(json.loads(clew("import", "runs.jsonl", "--skip-bad", "--json").output)["runs"]["runs.jsonl"]) == 2
    clew("import", "nowhere.jsonl", code=2)


def test_airline_runs_come_in_whole(clew, shared, tmp_path):
    files = sorted((shared / "data" / "tau_airline").glob("*.jsonl*"))
    data = json.loads(clew("import", *files, "--json").output)
    assert sum(map(len, data["runs"].values())) == 100
    assert len(json.loads(clew("log", "-n", 0, "--json").output)) == 100


SLOW = """
import asyncio
async def agent(run):
    chat = run.chat()
    while not run.done:
        await run.act(await chat.ask(run.view))
        await asyncio.sleep(0.2)
"""


def test_stop_interrupts_and_resume_goes_on(clew, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    line = ["run", "slow.py:agent", "--world", "household(rooms=2,steps=40)", "--model", "echo", "--tasks", "2"]
    with subprocess.Popen([sys.executable, "-m", "clew.cli", *line], stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (held := acting(tmp_path)):
            time.sleep(0.1)
        assert held
        data = json.loads(clew("stop", "--json").output)
        assert data["processes"] == [process.pid]
        assert process.wait(30) == 130
        assert "clew resume" in process.stderr.read()
    rows = json.loads(clew("log", "stop=open", "--json").output)
    assert len(rows) == 2
    assert "nobody is making" in clew("stop").output
    (tmp_path / "slow.py").write_text(SLOW.replace("0.2", "0"))
    with pytest.warns(UserWarning, match="source"):
        clew("resume")
    assert {row["stop"] for row in json.loads(clew("log", "--json").output)} == {"done"}
    clew("store", "verify")


def acting(folder) -> bool:
    """Whether a run in the folder's store has performed something."""
    path = folder / ".clew" / "store.db"
    if not path.exists():
        return False
    store = open_store(path)
    try:
        return any(len(run.calls) > 2 for run in store.runs())
    finally:
        store.close()


DEAF = """
import signal, sys, time
from clew.store import open_store
from clew.store.owners import owner_name
signal.signal(signal.SIGINT, signal.SIG_IGN)
store = open_store(sys.argv[1])
store.lease(sys.argv[2], owner_name(), 600.0)
store.commit()
print("held", flush=True)
time.sleep(600)
"""


def test_stop_says_so_where_a_process_ignores_the_interrupt(clew, store):
    run = first(clew, store)
    line = [sys.executable, "-c", DEAF, str(store), run]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            said = clew("stop", "--wait", 0.3, "--store", store).output
            assert said == f"not interrupted: process {process.pid} still makes run {run} after 0.3 s\n"
            assert json.loads(clew("stop", "--wait", 0, "--store", store, "--json").output)["held"] == [run]
        finally:
            process.kill()


def test_stop_leaves_the_process_of_others_alone(clew, store, monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda process, sent: killed.append((process, sent)))
    clew("stop", "--store", store)
    assert (os.getpid(), signal.SIGINT) not in killed


@pytest.mark.whole
def test_quickstart_small_ends_in_a_fork_and_a_page(clew, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    monkeypatch.setattr(quickstart, "PRETRAINING", 40)
    monkeypatch.setattr(quickstart, "TASKS", 8)
    data = json.loads(clew("quickstart", "--iterations", 2, "--json").stdout)
    assert {"pre-trained", "trained", "worst", "report", "next"} <= set(data)
    page = (tmp_path / ".clew" / "trainings" / "quickstart" / "report.html").read_text()
    assert page.count("<polyline") == 4
    assert "http" not in page.replace("http-equiv", "")
    before = len(json.loads(clew("log", "-n", 0, "--json").output))
    again = json.loads(clew("quickstart", "--iterations", 2, "--json").stdout)
    assert len(json.loads(clew("log", "-n", 0, "--json").output)) == before
    assert again["trained"] == data["trained"]
    more = json.loads(clew("train", "--name", "more", "--iterations", 1, "--tasks", 2, "-n", 2, "--model",
                           ".clew/trainings/quickstart/checkpoint", "--max-tokens", 4, "--json").stdout)  # fmt: skip
    assert set(more["metrics"]) == {"0"}
    other = ("train", "--name", "more", "--credit", "grpo", "--model", ".clew/trainings/quickstart/checkpoint")
    assert "credit was g2po and is grpo" in clew(*other, code=2).output

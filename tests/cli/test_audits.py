"""clew export --sft and clew audit coverage on a store of maze demonstrations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clew.core.registry import build, register
from clew.harness import Runner
from clew.models.fakes import Echo
from clew.worlds.maze import Maze

register("tasksets", "maze", Maze)


@pytest.fixture
def mazes(tmp_path):
    path = tmp_path / "maze.db"
    runner = Runner(
        "clew.harness.agents:demonstrator", build("tasksets", "maze"), Echo(), path, config={"world": "maze"}
    )
    runner.collect(build("tasksets", "maze").sample(4), n=3)
    runner.store.close()
    return path


def test_recoveries_make_the_difference(clew, mazes):
    store = ("--store", mazes)
    assert "12 of 12 runs" in clew("export", "--sft", "full.jsonl", "world=maze", *store).output
    made = json.loads(clew("export", "--sft", "erased.jsonl", "world=maze", "--erase-loops", "--json", *store).output)
    assert made["runs"] == 12
    assert made["kept"] == 12 * 8 < made["acts"]
    full, erased = (
        json.loads(clew("audit", "coverage", f, "--json", *store).output) for f in ("full.jsonl", "erased.jsonl")
    )
    assert full["share of retreats"]["estimate"] == 1
    assert erased["share of retreats"]["high"] < 0.5
    assert erased["states after a mistake"] == full["states after a mistake"] > 10
    text = clew("audit", "coverage", "erased.jsonl", *store).output
    assert f"{erased['retreats with a signal']} of {erased['retreats']} receive a signal" in text
    assert "clew export --sft" in clew("export", "all.jsonl", *store, code=2).output  # they asked no model
    clew("export", "--sft", "--all", "all.jsonl", *store)
    assert json.loads(clew("audit", "coverage", "all.jsonl", "--json", *store).output) == full


def test_demonstrations_of_the_users_own_are_measured_against_runs(clew, mazes, tmp_path):
    """The same data without a word about runs gives the same figures, once runs say what the states look like."""
    store = ("--store", mazes)
    clew("export", "--sft", "full.jsonl", "world=maze", *store)
    full = json.loads(clew("audit", "coverage", "full.jsonl", "--json", *store).output)
    lines = [json.loads(line) for line in Path("full.jsonl").read_text().splitlines()]
    own = [{"messages": line["messages"], "task_id": line["task_id"]} for line in lines]
    own[0]["messages"] += [{"role": "user", "content": "a cellar"}, {"role": "assistant", "content": "north"}]
    Path("own.jsonl").write_text("".join(json.dumps(line) + "\n" for line in own))
    assert "own.jsonl RUNS" in clew("audit", "coverage", "own.jsonl", *store, code=2).output.replace("FILE", "own")
    told = json.loads(clew("audit", "coverage", "own.jsonl", "world=maze", "--json", *store).output)
    assert told.pop("actions in no state of the runs") == 1
    same = ("runs", "acts", "states after a mistake", "retreats")
    assert {k: told[k] for k in same} == {k: full[k] for k in same}
    assert told["share of retreats"]["estimate"] == full["share of retreats"]["estimate"] == 1
    assert "1 actions of own.jsonl answer" in clew("audit", "coverage", "own.jsonl", "world=maze", *store).output
    Path("own.jsonl").write_text(json.dumps(own[0] | {"task_id": "another"}) + "\n")
    none = json.loads(clew("audit", "coverage", "own.jsonl", "world=maze", "--json", *store).output)
    assert none["of them with a signal"] == 0
    Path("own.jsonl").write_text("{}\n")
    assert "own.jsonl:1: no messages" in clew("audit", "coverage", "own.jsonl", "world=maze", *store, code=2).output


def test_runs_and_methods_are_signals_too(clew, store):
    from clew.store import open_store

    told = json.loads(clew("audit", "coverage", "--json", "--store", store).output)
    kept = open_store(store)
    assert told["runs"] == len(kept.find()) == 6
    kept.close()
    clew("credit", "grpo", "--store", store)
    by_method = json.loads(clew("audit", "coverage", "--method", "grpo", "--json", "--store", store).output)
    assert by_method["acts"] == told["acts"]
    assert by_method["states after a mistake"] == told["states after a mistake"]
    assert by_method["of them with a signal"] >= told["of them with a signal"]


def test_refusals_name_a_remedy(clew, mazes, store):
    at = ("--store", mazes)
    assert "clew credit g2po" in clew("audit", "coverage", "--method", "g2po", *at, code=2).output
    assert "Check the path" in clew("audit", "coverage", "absent.jsonl", *at, code=2).output
    assert "clew export --sft demos.jsonl" in clew("export", "--sft", "out.txt", "world=maze", *at, code=2).output
    assert "Add --sft" in clew("export", "out.jsonl", "world=maze", "--erase-loops", *at, code=2).output
    assert "clew log" in clew("export", "--sft", "out.jsonl", "world=house", *at, code=2).output
    assert "one data file" in clew("audit", "coverage", "a.jsonl", "b.jsonl", *at, code=2).output
    assert "--all" in clew("distil", "return=0", "out.jsonl", "--store", store, code=2).output
    assert "of 0 runs" not in clew("distil", "return=0", "--all", "out.jsonl", "--store", store).output


def test_what_was_computed_last_is_what_show_and_audits_print(clew, store):
    at = ("--store", store)

    def shown():
        rows = clew("show", run, *at).output.splitlines()
        return [row.partition("bellman")[2].split()[0] for row in rows if "bellman" in row]

    clew("credit", "grpo+bellman", *at)
    run = json.loads(clew("log", "has=bellman", "--json", *at).output)[0]["run"]
    told = {"bellman": (shown(), clew("audit", "methods", *at).output)}
    clew("credit", "bellman(gamma=0.5)", *at)
    told["bellman(gamma=0.5)"] = (shown(), clew("audit", "methods", *at).output)
    assert told["bellman"] != told["bellman(gamma=0.5)"]
    for method in ("bellman", "bellman(gamma=0.5)", "bellman"):
        clew("credit", method, *at)
        assert (shown(), clew("audit", "methods", *at).output) == told[method]

"""clew export --sft and clew audit coverage on a store of maze demonstrations."""

from __future__ import annotations

import json

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
    assert "stands alone" in clew("audit", "coverage", "a.jsonl", "world=maze", *at, code=2).output
    assert "--all" in clew("distil", "return=0", "out.jsonl", "--store", store, code=2).output
    assert "of 0 runs" not in clew("distil", "return=0", "--all", "out.jsonl", "--store", store).output

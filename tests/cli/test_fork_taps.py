"""Steering from the command line: a fork with a tap says another thing, and one that cannot be had is one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest

from clew.core.records import Cursor
from clew.store import open_store

pytest.importorskip("torch", reason="did not run: torch is not installed")

from clew.models.local import small

WORDS = ["low", "high", "up", "down", "stop", *map(str, range(10))]


@pytest.fixture
def run(clew, tmp_path):
    small(WORDS, d=16, layers=2, heads=2, kv_heads=1, context=64, seed=1).save(tmp_path / "tiny")
    clew("run", "chatter", "--world", "counter", "--model", "tiny", "--tasks", 1, "--max-tokens", 4)
    with open_store(tmp_path / ".clew" / "store.db") as store:
        return next(Cursor(call.run, call.seq) for call in store.run(store.find("")[0]).calls if call.kind == "ask")


def test_a_fork_is_steered(clew, run, tmp_path):
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=16))
    clew("fork", run, "--tap", "layer=1,add=v.npy,times=30")
    with open_store(tmp_path / ".clew" / "store.db") as store:
        (fork,) = [store.run(one) for one in store.find("origin=fork")]
        (note,) = [json.loads(a.data) for a in fork.annotations("taps")]
        assert note["reached"][0]["reply"] > 0
        plain = store.run(run.run)
        assert [c.node_out for c in fork.calls] != [c.node_out for c in plain.calls]


def test_a_tap_that_cannot_be_had_is_one_sentence(clew, run, tmp_path):
    np.save(tmp_path / "v.npy", np.ones(16))
    np.save(tmp_path / "wide.npy", np.ones(17))
    gone = clew("fork", run, "-n", 2, "--tap", "layer=9,add=v.npy", code=2).stderr
    assert "all 2 forks ended as the agent asked for what cannot be had: the model has no layer 9" in gone
    assert "Its 2 layers are 0 to 1." in gone
    assert "Traceback" not in gone
    assert "File " not in gone
    assert "has a vector of width 17" in clew("fork", run, "--tap", "layer=0,add=wide.npy", code=2).stderr
    assert "gone.npy cannot be read" in clew("fork", run, "--tap", "layer=0,add=gone.npy", code=2).stderr

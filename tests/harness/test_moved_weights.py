"""Weights are known by what they are, not by the folder they lie in: moved, they give the same keys."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from clew.core.protocols import answers_for, weights_of
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.fork.fork_request import ForkRequest, other_weights, runner_for
from clew.models import load
from clew.models.compose import Forwarding, combined
from clew.models.local.model import small
from clew.store import Run, open_store

WORDS = ["go", "stay", "left", "right"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    small(WORDS, d=16).save(tmp_path / "here")
    return tmp_path / "here"


def talk(store: Path, model: Any) -> Run:
    runner = Runner("clew.harness.agents:chatter", None, model, store, sampling={"max_tokens": 6})
    return runner.collect([Task("t", "go left")], n=1, seed=5).runs[0]


def test_the_same_weights_elsewhere_give_the_same_keys(here: Path, tmp_path: Path) -> None:
    one = talk(tmp_path / "one.db", load(here))
    there = shutil.move(here, tmp_path / "there")
    two = talk(tmp_path / "two.db", load(there))
    assert [call.key for call in one.calls] == [call.key for call in two.calls]
    assert one.diff(two) is None
    asked = [run.calls[1].setup for run in (one, two)]
    assert [(s.model, s.served_by) for s in asked if s] == [(str(p), str(p)) for p in (here, there)]
    for run in (one, two):
        assert run.store.verify() == []
        assert [call.setup for call in open_store(run.store.path).calls(run.id)] == [c.setup for c in run.calls]


def test_other_weights_in_the_same_folder_give_other_keys(here: Path, tmp_path: Path) -> None:
    first = load(here)
    one = talk(tmp_path / "one.db", first)
    small(WORDS, d=16, seed=1).save(here)
    two = talk(tmp_path / "two.db", load(here))
    assert weights_of(first) != weights_of(load(here))
    assert one.calls[1].key != two.calls[1].key
    twin = small(WORDS, d=16, ref=str(here))
    assert weights_of(twin) == weights_of(first), "the weights of a module that goes by a folder's name"
    assert weights_of(small(WORDS, d=16, ref="policy")) == "", "two policies of the same start are told by their refs"
    twin.module.config.rope_parameters["rope_theta"] = 5e5
    renamed: Any = type(twin)(twin.module, renderer=twin.renderer, ref=str(here))
    assert weights_of(renamed) != weights_of(first), "the configuration is part of what the weights are"


def test_a_run_whose_folder_moved_replays_and_forks(here: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "one.db")
    old = load(here)
    run = talk(tmp_path / "one.db", old)
    there = shutil.move(here, tmp_path / "there")
    assert Runner.of(store, run).replay(run).calls == len(run.calls)
    with pytest.raises(Exception, match="no such folder"):
        runner_for(store, ForkRequest(run.id, 1), load)
    request = ForkRequest(run.id, 1, model=str(there), seed="same")
    runner = runner_for(store, request, load)
    fork = runner.fork(run, **request.arguments())[0]
    assert fork.diff(run) is None, "the same weights and the same seed"
    assert other_weights(run, None, runner) == ""
    moved = load(there)
    setup = run.calls[1].setup
    assert setup is not None
    assert answers_for(moved, setup)
    assert answers_for(old, setup)
    shutil.move(there, here)
    small(WORDS, d=16, seed=1).save(here)
    replaced = runner_for(store, ForkRequest(run.id, 1), load)
    assert f"the weights in {here} are not those that sampled this run" in other_weights(run, None, replaced)
    assert not answers_for(load(here), setup)


def test_a_model_over_models_is_known_by_the_weights_below(here: Path, tmp_path: Path) -> None:
    class Through(Forwarding):
        def answered(self, request: Any, completion: Any) -> Any:
            return combined(completion._replace(model="through"), [(self.model, completion)])

    one = talk(tmp_path / "one.db", Through(load(here), "through"))
    assert weights_of(Through(load(here))) == weights_of(load(here))
    two = talk(tmp_path / "two.db", Through(load(shutil.move(here, tmp_path / "there")), "through"))
    below = [run.calls[1].inner[0] for run in (one, two)]
    assert below[0].model != below[1].model
    assert below[0].weights == below[1].weights != ""
    assert [call.key for call in one.calls] == [call.key for call in two.calls]
    assert open_store(tmp_path / "two.db").calls(two.id)[1].inner == two.calls[1].inner
    assert one.calls[1].setup is not None
    assert one.calls[1].setup.weights == "", "a wrapper with a ref of its own is not the weights alone"

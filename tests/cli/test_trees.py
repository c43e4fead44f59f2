"""Trees from the command line: credit beside methods that value steps, and training on them."""

from __future__ import annotations

import json

import pytest

from clew.core.registry import register
from clew.credit.tree import tree
from clew.models.local import small
from clew.store import Group, open_store
from clew.worlds.sums import Sums

register("credits", "tree", tree)
register("tasksets", "sums", Sums)


def test_credit_on_a_tree_is_shown_beside_others(clew):
    model = "markov(corpus='up\\nup up\\nstop\\ndown', tokens=True)"
    clew("run", "player", "--world", "counter(low=1, high=2, steps=4)", "--model", model, "--tasks", 3, "-n", 6)
    done = json.loads(clew("credit", "tree+grpo", "--json").output)
    mine, other = done["methods"]
    assert mine["method"] == "tree"
    assert (mine["groups"], mine["runs"]) == (other["groups"], other["runs"]) == (3, 18)
    assert mine["silent groups"] == pytest.approx(other["silent groups"])
    assert mine["silent groups"] < 1
    assert mine["valued"] > 0
    assert done["pairs"] == [], "tokens and steps are not compared"
    clew("credit", "tree(baseline='mean')", code=2)


def test_training_on_trees(clew, tmp_path):
    """From the command line: groups are trees, the settings of the score arrive, spare tokens are moved."""
    small(Sums(3, 3).vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=64, seed=1).save(tmp_path / "tiny")
    line = ("train", "--name", "wood", "--world", "sums(low=3,high=3)", "--model", "tiny", "--max-tokens", 12,
            "--iterations", 2, "--tasks", 2)  # fmt: skip
    grow = ("--rollouts", "tree", "--selector", "uucb(explored='visits',floor=0.0)", "--budget", 60,
            "--spare", 0.3, "--allocator", "learned")  # fmt: skip
    done = json.loads(clew(*line, *grow, "--json").stdout)
    assert set(done["metrics"]) == {"0", "1"}
    with open_store(tmp_path / ".clew" / "store.db") as store:
        groups = [Group(store, name) for name in store.groups()]
        assert len(groups) == 4
        assert {group.kind for group in groups} == {"tree"}
        assert all(any(run.parent is not None for run in group) for group in groups)
        notes = store.annotations([group.id for group in groups], "growth", "group")
        assert [json.loads(note.data)["budget"] for note in notes] == [60] * 4
    clew(*line, *grow[2:], code=2)
    clew(*line, *grow[:2], "--allocator", "learned", code=2)


def test_trees_where_nothing_can_be_restored_are_refused(clew, tmp_path):
    small(Sums(3, 3).vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=64, seed=1).save(tmp_path / "tiny")
    line = ("train", "--name", "notes", "--world", "notepad(path='notes.txt')", "--model", "tiny", "--iterations", 1)
    told = clew(*line, "--rollouts", "tree", code=2).output
    assert "no tree can grow" in told
    assert "flat rollouts" in told
    with open_store(tmp_path / ".clew" / "store.db") as store:
        assert store.run_ids() == store.groups() == []
    assert not (tmp_path / "notes.txt").exists()

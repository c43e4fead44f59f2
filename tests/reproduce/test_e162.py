"""E162's experiment: trees with known truth, results that are complete, and what the claims rest on."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from clew.harness.trees import selectors
from papers.E162_uucb import chain, learn, proxy, report_chain, report_sums, tier_chain, tier_sums
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E162 = Experiment.find("E162")


def test_committed_results_are_complete() -> None:
    """Every cell has its line, the summary is what the lines give, and the equal-leaf table is in it."""
    lines = load(E162.here / "results" / "chain.jsonl")
    assert {E162.key(line) for line in lines} == {E162.key(cell) for cell in tier_chain.cells(False)}
    made = report_chain.report(lines)
    assert made == (E162.here / "results" / "summary_chain.md").read_text()
    assert "at equal leaves" in made
    del lines[0]["leaves"]
    with pytest.raises(KeyError):
        report_chain.report(lines)


def test_a_forest_keeps_its_books() -> None:
    prompts = chain.chains(50, 2, seed=3)
    forest = chain.grow(prompts, selectors.uucb, tokens=128.0, seed=3)
    assert (forest.used <= 128).all()
    assert (forest.used > 110).all()
    leaf = forest.depth == forest.length
    assert np.array_equal((forest.visits * leaf).sum(axis=1), forest.leaves)
    assert np.array_equal((forest.wins * leaf).sum(axis=1), forest.won)
    assert np.array_equal((forest.visits * leaf * forest.alive).sum(axis=1), forest.won), "outcomes are the raw truth"
    assert np.array_equal(forest.draws.sum(axis=1), forest.used), "each decoded token is one draw of one edge"
    assert np.array_equal(forest.tries.sum(axis=1), forest.leaves)


def test_flat_sampling_has_the_known_chance() -> None:
    prompts = chain.chains(4000, 2, seed=5)
    found = chain.grow(prompts, selectors.flat, leaves=8, seed=5).mixed.mean()
    p = prompts.values[:, 0]
    exact = float(np.mean(1 - p**8 - (1 - p) ** 8))
    assert abs(found - exact) < 3 * np.sqrt(exact * (1 - exact) / 4000)


def test_f_is_submodular_and_the_raw_objective_is_not() -> None:
    violations, excess = proxy.diminishing(np.random.default_rng(0), 1000)
    assert violations == 0
    assert excess <= 1e-9
    assert proxy.greedy_ratio(np.random.default_rng(1), 40) >= 1 - 1 / np.e
    mixed = [1 - 0.3**n - 0.7**n for n in (1, 2, 3)]
    assert mixed[1] - mixed[0] > 0 == mixed[0]
    assert mixed[1] - mixed[0] > mixed[2] - mixed[1]


def test_a_flat_tree_learns_as_grpo_does() -> None:
    """The tree's ascent on independent rollouts is the sum over rollouts of A_i grad log pi over n."""
    prompts = chain.chains(6, 1, depth=4, seed=1)
    forest = chain.grow(prompts, selectors.flat, leaves=8, seed=1)
    found = learn.ascent(forest, "group")
    expected = np.zeros_like(found)
    for lane in np.flatnonzero(forest.mixed):
        q = forest.won[lane] / 8
        for leaf in np.flatnonzero(forest.depth[lane] == 4):
            advantage = (forest.alive[lane, leaf] - q) / np.sqrt(q * (1 - q))
            node = leaf
            while node:
                depth = forest.depth[lane, node] - 1
                step = np.eye(4)[forest.token[lane, node]] - prompts.chance[lane, depth]
                expected[lane, depth] += forest.visits[lane, leaf] * advantage / 8 * step
                node = forest.parent[lane, node]
    assert found == pytest.approx(expected)
    assert np.abs(expected).max() > 0


def test_an_experiment_reports_every_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_chain, "PROMPTS", 120)
    monkeypatch.setattr(report_chain, "unbits", lambda text: tier_chain.unbits(text, 120))
    monkeypatch.setattr(learn, "UPDATES", 2)
    cells = [cell for cell in tier_chain.cells(True) if cell["seed"] == 0]
    monkeypatch.setattr(tier_chain, "cells", lambda quick: iter(cells))
    assert E162.main(quick=True, tier="chain", out=tmp_path, console=Console(quiet=True)) == 0
    text = (tmp_path / "summary_chain.md").read_text()
    assert all(f" P{i} " in text for i in range(1, 9))
    assert (tmp_path / "figure_chain.svg").exists()


def test_committed_results_on_sums_are_complete() -> None:
    lines = load(E162.here / "results" / "sums.jsonl")
    cells = [E162.key(cell) for cell in tier_sums.cells(False)]
    assert sorted(map(E162.key, lines)) == sorted(cells), "each cell once"
    assert report_sums.report(lines) == (E162.here / "results" / "summary_sums.md").read_text()
    for line in lines:
        assert len(line["dead"]) == tier_sums.TASKS
        if line["kind"] != "moved":
            assert len(line["collect_cpu"]) == len(line["flat_cpu"]) == tier_sums.ROUNDS
        assert line["leaves"] == tier_sums.LEAVES if line["kind"] == "leaves" else line["leaves"] > 2


def test_fewer_flat_rollouts_are_counted_exactly() -> None:
    """Against every subset of the rollouts, by hand."""
    won = [0, 1, 3, 6]
    found = report_sums.chance_dead({"leaves": 6.0, "won": won}, 3)
    shares = []
    for w in won:
        picks = list(itertools.combinations([1] * w + [0] * (6 - w), 3))
        shares.append(sum(len(set(pick)) == 1 for pick in picks) / len(picks))
    assert found == pytest.approx(np.mean(shares))
    assert report_sums.needed({"leaves": 6.0, "won": won}, found) == 3
    assert report_sums.needed({"leaves": 6.0, "won": [0]}, 0.5) == 6


def test_marks_on_sums_can_fail() -> None:
    def line(kind: str, arm: str, seed: int, dead: float, tokens: float) -> dict:
        flags = [int(i < 48 * dead) for i in range(48)]
        return {"kind": kind, "arm": arm, "seed": seed, "dead": flags, "tokens": tokens}

    def verdicts(dead: float, tokens: float, budget: float) -> dict[str, bool]:
        made = []
        for seed in range(3):
            made += [line("leaves", "flat", seed, 0.6 + seed / 48, 240), line("leaves", "uucb", seed, 0.6, tokens)]
            made.append(line("tokens", "uucb", seed, dead, budget))
        return {mark.name: mark.met for mark in report_sums.marks(report_sums.Collected(made))}

    assert verdicts(0.3, 120.0, 240.0) == dict.fromkeys(("mix", "equal tokens", "dead groups", "saving"), True)
    assert not verdicts(0.3, 120.0, 240.5)["equal tokens"], "at most flat's, and no more"
    assert verdicts(0.58, 180.0, 250.0) == {
        "mix": True, "equal tokens": False, "dead groups": False, "saving": False,
    }  # fmt: skip

"""E173's experiment: exact MDPs against brute force, results that are complete, and what the claims rest on."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

pytest.importorskip("torch", reason="did not run: torch is not installed")
from clew.worlds.clerk import Clerk
from papers.E173_progress import grading, making, report_clerk, report_tabular, tabular, tier_clerk, tier_tabular
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E173 = Experiment.find("E173")


@pytest.mark.parametrize("tier", ["tabular", "clerk"])
def test_committed_results_are_complete(tier: str) -> None:
    """Every cell has its line, and the summary is what the lines give."""
    lines = load(E173.here / "results" / f"{tier}.jsonl")
    assert {E173.key(line) for line in lines} == {E173.key(cell) for cell in E173.tiers[tier].cells(False)}
    made = E173.reports[tier].report(lines)
    assert made == (E173.here / "results" / f"summary_{tier}.md").read_text()
    assert "NOT MET" in made or "met" in made


def test_the_optimum_is_the_optimum() -> None:
    """No policy does better under reward minus KL than the one that soft induction gives; its value is V."""
    mdp = tabular.make(3, 0.3)
    best = tabular.solve(mdp)

    def worth(policy: np.ndarray) -> np.ndarray:
        value = mdp.pay
        for t in reversed(range(tabular.LAYERS - 1)):
            gap = tabular.BETA * (np.log(np.maximum(policy[t], 1e-300)) - np.log(mdp.ref[t]))
            value = (policy[t] * (mdp.move[t] @ value - gap)).sum(-1)
        return np.asarray(value)

    np.testing.assert_allclose(worth(best.policy), best.value[0], atol=1e-10)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = best.policy * np.exp(0.5 * rng.normal(size=best.policy.shape))
        assert (worth(other / other.sum(-1, keepdims=True)) <= best.value[0] + 1e-12).all()
    np.testing.assert_allclose(mdp.move.sum(-1), 1)


def test_the_gradient_is_the_gradient() -> None:
    mdp = tabular.make(4, 0.3)
    logits = np.log(mdp.ref) + np.random.default_rng(0).normal(size=mdp.ref.shape)

    def value(x: np.ndarray, beta: float) -> float:
        policy = tabular.softmax(x)
        v = mdp.pay
        for t in reversed(range(tabular.LAYERS - 1)):
            v = (policy[t] * (mdp.move[t] @ v - beta * (np.log(policy[t]) - np.log(mdp.ref[t])))).sum(-1)
        return float(v.mean())

    for beta in (0.0, 0.25):
        moved = tabular.ascend(mdp, logits, beta, 1.0) - (logits - logits.max(-1, keepdims=True))
        for place in ((0, 3, 1), (3, 7, 4), (6, 11, 0)):
            step = np.zeros(logits.shape)
            step[place] = 1e-5
            slope = (value(logits + step, beta) - value(logits - step, beta)) / 2e-5
            assert moved[place] == pytest.approx(slope, abs=1e-8)


def test_walks_visit_what_they_should() -> None:
    mdp = tabular.make(5, 0.8)
    rng = np.random.default_rng(1)
    walks = tabular.walk(mdp, mdp.ref, rng.integers(0, tabular.STATES, 20_000), rng)
    expected = tabular.visits(mdp, mdp.ref)
    for t in range(tabular.LAYERS - 1):
        share = np.bincount(walks.state[:, t], minlength=tabular.STATES) / 20_000
        np.testing.assert_allclose(share, expected[t], atol=0.015)
    assert set(np.unique(walks.reward)) <= {0.0, 1.0}


def test_the_tabular_claims_hold_on_fresh_mdps() -> None:
    """Identity and order on MDPs that no committed line holds; where the pair is one model nothing is found."""
    for noise, seed in itertools.product((0.0, 0.3), (100, 101)):
        found = tier_tabular._exact({"noise": noise}, seed)
        assert max(found[k] for k in ("identity", "t1", "t1_kl", "t2")) < 1e-10
        assert found["auroc"]["pa"] > found["auroc"]["policy"] + 0.04
        assert (found["auroc"]["pa"] > 0.999) == (noise == 0)
    mdp = tabular.make(102, 0.3)
    walks, group = tier_tabular._behaviour(mdp, mdp.ref, 0)
    assert tier_tabular._graded(mdp.ref, mdp.ref, walks, group[:, 0], 1.0)["auroc"]["pa"] == 0.5


@pytest.mark.parametrize("kind", ["random", "habit"])
def test_a_mistake_is_the_only_one_and_decides(kind: str) -> None:
    world = Clerk()
    found = grading.mistakes(world, 20, kind, 5)
    assert len(found) == 20
    for mistake in found:
        assert 0 <= mistake.at < len(mistake.steps)
        if kind == "habit":
            assert mistake.steps[mistake.at][1].startswith(("refund", "change"))
    assert len({m.at for m in found}) > 1


def test_weighted_aurocs_are_those_of_repeated_runs() -> None:
    from clew.methods.grade.grade import auroc

    rng = np.random.default_rng(0)
    score, won, weights = rng.integers(0, 9, 80).astype(float), rng.random(80) < 0.4, rng.integers(0, 3, (5, 80))
    want = [auroc(score, won, w) for w in weights]
    np.testing.assert_allclose(report_clerk.aurocs(score, won, weights.astype(float)), want)


def test_a_killed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [c for c in tier_tabular.cells(True) if c["seed"] == 0]
    monkeypatch.setattr(tier_tabular, "cells", lambda quick: cells)
    console = Console(quiet=True)
    lines = E173.compute("tabular", True, tmp_path, console)
    path = tmp_path / "tabular.jsonl"
    path.write_text("".join(path.read_text().splitlines(True)[:-2]) + '{"kind": "nu')
    again = E173.compute("tabular", True, tmp_path, console)
    for line in (*lines, *again):
        line.pop("cpu_s")
    assert again == lines
    assert [f"met: P{i}," in report_tabular.report([{**x, "cpu_s": 0.0} for x in lines]) for i in range(1, 5)] == [
        True
    ] * 4


def test_sizes_are_what_the_readme_says() -> None:
    assert making.FULL.tasks * 8 == 1000
    assert round(grading.DEV * making.FULL.tasks) * 8 == 200
    assert {c["seed"] for c in tier_clerk.cells(False) if c["kind"] == "pair"} == {1, 2, 3, 4, 5}

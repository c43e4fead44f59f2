"""The experiment goes on where it was killed, and a resumed cell has the numbers of an uninterrupted one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from clew.core.errors import BadInput
from papers import stats
from papers.E165_g2po import report_8b, tier_8a, tier_8b
from papers.experiment import Experiment, alone, load

E165 = Experiment.find("E165")

CELLS = [
    {"kind": "learn", "arm": arm, "variant": "clean", "rescale": True, "lr": 2.0, "seed": seed}
    for arm in ("grpo", "g2po")
    for seed in range(3)
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Console:
    """A tier of six cells of 8a."""
    few = SimpleNamespace(cells=lambda quick: iter(CELLS), cost=tier_8a.cost, run=tier_8a.run)
    monkeypatch.setitem(E165.tiers, "small", few)
    return Console(quiet=True)


def results(lines: list[dict]) -> dict[str, tuple[float, float]]:
    return {E165.key(line): (line["auc"], line["final"]) for line in lines}


def test_a_killed_experiment_goes_on(small: Console, tmp_path: Path) -> None:
    whole = E165.compute("small", False, tmp_path, small)
    assert len(results(whole)) == 6
    path = tmp_path / "small.jsonl"
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(text[:3]) + text[3][:40])  # killed while writing the fourth line
    again = E165.compute("small", False, tmp_path, small)
    assert results(again) == results(whole)
    assert [json.loads(line) for line in path.read_text().splitlines()[:3]] == [json.loads(line) for line in text[:3]]
    assert E165.compute("small", False, tmp_path, small) == again, "nothing is left to compute"


@pytest.mark.whole
def test_committed_results_are_complete() -> None:
    """Every cell of tier 8a has its line, and the summary is what the lines give."""
    lines = load(E165.here / "results" / "8a.jsonl")
    assert {E165.key(line) for line in lines} == {E165.key(cell) for cell in tier_8a.cells(False)}
    made = E165.reports["8a"].report(lines)
    assert made == (E165.here / "results" / "summary_8a.md").read_text()


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    with alone(tmp_path / "8a.jsonl"), pytest.raises(BadInput, match="another process"):
        E165.main(quick=True, tier="8a", out=tmp_path, console=Console(quiet=True))


def test_an_unknown_tier_is_refused(tmp_path: Path) -> None:
    assert E165.main(tier="9z", out=tmp_path, console=Console(quiet=True)) == 2


def test_intervals_cover_and_pair() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=24)
    gap = stats.interval("", stats.difference, base + 0.1, base)
    assert gap.low <= gap.estimate <= gap.high
    assert gap.high - gap.low < 1e-9, "a constant difference has no spread once paired"
    assert stats.t_interval("", np.array([1.0, 2.0, 3.0])).estimate == 2.0
    assert stats.t_value(np.array([1.0, 2.0, 3.0])) == pytest.approx(2 / (1 / np.sqrt(3)))


def test_tier_b_reports_only_seeds_that_every_arm_has() -> None:
    def line(arm: str, seed: int, final: float) -> dict:
        shared = {
            "kind": "train",
            "variant": "long",
            "rescale": True,
            "before": 0.1,
            "length": 9.0,
            "length_before": 11.0,
        }
        curve = {"curve": [0.1, 0.2, final], "cpu": [1.0, 2.0, 3.0 + seed], "silent_groups": 0.1, "credit_share": 0.01}
        return shared | curve | {"arm": arm, "seed": seed, "final": final, "cpu_s": 4.0}

    lines = [line(arm, s, 0.3 + 0.1 * s) for arm in ("grpo", "gigpo", "g2po") for s in range(3)]
    found = report_8b.Trainings(lines[:-1], "long", True)
    assert found.seeds == [0, 1]
    text = report_8b.report(lines)
    assert "NOT MET: long" in text
    keys = [E165.key(cell) for cell in tier_8b.cells(False)]
    assert len(keys) == len(set(keys)), "no cell is computed twice"

"""E172's experiment: chains whose potential is exact, released data, results that are complete, marks that can fail."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from clew.methods.cliffs import Counts
from papers.E172_cliffs import (
    chain,
    learners,
    report_data,
    report_model,
    report_toy,
    tier_data,
    tier_model,
    tier_toy,
)  # fmt: skip
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E172 = Experiment.find("E172")
RESULTS = E172.here / "results"


@pytest.mark.parametrize(
    ("name", "tier", "report"), [("toy", tier_toy, report_toy), ("model", tier_model, report_model)]
)
def test_committed_results_are_complete(name, tier, report):
    lines = load(RESULTS / f"{name}.jsonl")
    assert {E172.key(line) for line in lines} == {E172.key(cell) for cell in tier.cells(False)}
    assert report.report(lines) == (RESULTS / f"summary_{name}.md").read_text()
    assert (RESULTS / f"figure_{name}.svg").exists()


def test_released_potentials_are_read_as_committed(shared):
    lines = load(RESULTS / "data.jsonl")
    assert report_data.report(lines) == (RESULTS / "summary_data.md").read_text()
    if not tier_data.PATHS.exists():
        pytest.skip("did not run: ../shared/data/cliffs is absent")
    for cell in tier_data.cells(False):
        made = tier_data.run({"kind": "path", "path": cell["path"]}, [0])[0]
        line = next(x for x in lines if x["path"] == cell["path"])
        assert made["found"] == line["found"]
        assert set(made["listed"]) <= set(made["found"])
        assert [x["p"] for x in made["cliffs"]] == pytest.approx([x["p"] for x in line["cliffs"]])


def test_a_dip_that_its_neighbours_do_not_share_is_not_kept(monkeypatch):
    """One batch of 64 that fell by chance at token 20 fires; at 40 the chance itself falls. No fresh batch is there."""
    right = np.full(60, 40)
    right[20], right[40:] = 20, 16
    path = {"id": "p", "n_rollouts": 64, "potential": (right / 64).tolist(), "cliffs": [], "model": "m"}
    monkeypatch.setattr(tier_data, "load", lambda: [path | {"tokens": [f"t{i}" for i in range(60)]}])
    line = {"kind": "path", "path": "p", "seed": 0, **tier_data.run({"kind": "path", "path": "p"}, [0])[0]}
    assert line["found"] == [20, 40]
    fired, near = (report_data.sure([line], field) for field in ("p", "p near"))
    assert max(fired.values()) < 0.05, "the batch that fired says that both are cliffs"
    assert [q < 0.05 for q in near.values()] == [False, True]
    rows = [row for row in report_data.report([line]).splitlines() if row.startswith("| p |")]
    assert [row.rsplit("|", 2)[1].strip() for row in rows] == ["no", "yes"]


def test_absent_data_is_said(monkeypatch):
    monkeypatch.setattr(tier_data, "PATHS", Path("/nowhere/paths.jsonl.gz"))
    assert list(tier_data.cells(False)) == []
    assert "Did not run" in report_data.report([])


def test_a_low_entropy_forces_the_greedy_chance_up():
    assert tier_data.chances(0.0136, 1)[0] > 0.9
    low, high = tier_data.chances(1.36, 1)
    assert (low, high) == (0.05, pytest.approx(0.734, abs=1e-3))
    p = np.array([0.6, 0.3, 0.1])
    low, high = tier_data.chances(float(-(p * np.log(p)).sum()), 1)
    assert low <= 0.6 <= high
    assert tier_data.chances(2.0, 2) == (0.0, 0.5)


def test_the_potential_is_exact_and_no_sure_token_is_a_cliff():
    made = chain.chains(40, 3)
    rng = np.random.default_rng(0)
    traces = chain.sample(made, 2, rng)
    assert traces.value[:, 0] == pytest.approx(made.start[traces.problem])
    mixed = (made.chance * made.factor).sum(axis=2)[traces.problem] * traces.value[:, :-1] / made.mean[traces.problem]
    assert np.abs(mixed - traces.value[:, :-1]).max() < 1e-12
    assert traces.drop[chain.chances(made, traces) >= 0.9].max() <= 0.1
    ends = rng.random(len(traces.token)) < traces.value[:, -1]
    assert abs(ends.mean() - made.start.mean()) < 0.15
    many = chain.sample(made, 200, rng).value[:, -1].mean()
    assert many == pytest.approx(made.start.mean(), abs=0.01), "V is a martingale: its mean at the end is its start"


def test_pairs_move_success_the_way_they_point():
    made = chain.chains(20, 5)
    decisions = np.argwhere(made.chance[:, :, 0] < 0.9)
    towards = [(int(i), int(t), 0, int(made.factor[i, t].argmin())) for i, t in decisions]
    away = [(i, t, wrong, right) for i, t, right, wrong in towards]
    base = float(made.start.mean())
    assert tier_toy._trained(made, towards) > base + 0.02
    assert tier_toy._trained(made, away) < base - 0.02
    assert tier_toy._trained(made, []) == pytest.approx(base)


def test_a_run_reports_every_mark(tmp_path, monkeypatch):
    monkeypatch.setattr(tier_toy, "TRACES", 120)
    monkeypatch.setattr(tier_toy, "PROBLEMS", 60)
    assert E172.main(quick=True, tier="toy", out=tmp_path, console=Console(quiet=True)) == 0
    text = (tmp_path / "summary_toy.md").read_text()
    assert all(f": C{i}, " in text for i in range(1, 6))
    assert (tmp_path / "figure_toy.svg").exists()


def test_marks_can_fail():
    lines = load(RESULTS / "toy.jsonl")
    good = {(m.name, m.promise): m.met for m in report_toy.marks(report_toy.Lines(lines))}
    for line in lines:
        if line["kind"] == "detect":
            line["B"] = {**line["A"]}
            line["false by kind"] = {"deterministic": 1, "uncertain": 9, "sampled-off": 9, "other": 0}
            line["del - keep"]["deterministic"] = [0.5] * 9
        if line["kind"] == "dpo":
            line["all"] = dict.fromkeys(line["all"], line["base"] + 0.01)
    bad = {(m.name, m.promise): m.met for m in report_toy.marks(report_toy.Lines(lines))}
    turned = {name for (name, promise), met in good.items() if met and not bad[name, promise]}
    assert turned >= {"C2", "C4", "C5"}


def test_a_share_of_two_flags_meets_no_mark():
    found = report_model.marks(report_model.Lines(load(RESULTS / "model.jsonl")))
    few, many = (m for m in found if m.name == "E1")
    assert (few.met, "n=2" in str(few)) == (False, True)
    assert (many.met, many.found.n) == (True, 98)
    assert {m.name for m in found if m.met is None} == {"7d", "E2", "E3"}, "the spec sets no mark for these"


def test_injected_bursts_are_wrong_or_undecided():
    counts = Counts(*(np.array(x) for x in ([60, 30], [3, 34], [1, 0])))
    where = np.array([True, False])
    wrong, told = (learners.injected(counts, where, decided) for decided in (True, False))
    assert [x.tolist() for x in wrong] == [[0, 30], [63, 34], [1, 0]]
    assert [x.tolist() for x in told] == [[0, 30], [0, 34], [64, 0]]


def test_a_budget_ends_by_time_or_by_rollouts():
    budget = learners.Budget(rollouts=10)
    assert not budget.over
    budget.used = 10
    assert budget.over
    assert learners.Budget(seconds=0.0).over

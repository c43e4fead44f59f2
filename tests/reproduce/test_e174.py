"""Every mark of specs/E174 section 9 on a few organisms, and the committed results."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from clew.methods.why.arms import Arm
from papers.E174_forensics import organisms, report_a, tier_a
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E174 = Experiment.find("E174")


def test_committed_results_are_complete_and_meet_their_marks() -> None:
    """Every cell has its line, the summary is what the lines give, and every mark is met."""
    lines = load(E174.here / "results" / "A.jsonl")
    assert {E174.key(line) for line in lines} == {E174.key(cell) for cell in tier_a.cells(False)}
    assert report_a.report(lines) == (E174.here / "results" / "summary_A.md").read_text()
    marks = report_a.pass_marks(lines)
    assert len(marks) == 20
    assert [mark.name for mark in marks if mark.met is False] == []
    assert [mark.name for mark in marks if mark.met is None] == ["or: exact set one at a time"]


@pytest.mark.parametrize("check", ["or", "null", "harness", "sentence", "resampling", "source", "censoring"])
def test_a_committed_line_is_what_the_code_gives(check: str) -> None:
    """The first organisms of a cell, computed again."""
    line = next(x for x in load(E174.here / "results" / "A.jsonl") if (x["check"], x["seed"]) == (check, 1))
    found = tier_a.run({"check": check, "organisms": 3}, [1])[0]["found"]
    for name, values in found.items():
        assert values == pytest.approx(line["found"][name][:3]) if name in ("ratio", "drop") else True
        if name not in ("ratio", "drop", "redrawn", "bounds"):
            assert values == line["found"][name][:3], name


def test_organisms_have_the_rates_they_promise() -> None:
    either = organisms.Motive("or", 1, -2.0, 3.0, ("f0", "f1"), "f5", 0.0)
    high, low = organisms.sigma(1.0), organisms.sigma(-2.0)
    for changes, rate in (((), high), (("f0",), high), (("f1",), high), (("f0", "f1"), low), (("f2",), high)):
        got = either.rollouts(Arm(changes), 0, 4000).outcomes.mean()
        assert got == pytest.approx(rate, abs=4 * np.sqrt(0.25 / 4000))
    both = organisms.Motive("and", 1, -2.0, 3.0, ("f0", "f1"), "f5", 0.0)
    assert both.rate(Arm(("f0",))) == low < both.rate(Arm()) == high
    cut = organisms.Tedium(1, float(np.log(0.3 / 0.7) - 1.5 * np.log(258.0)), 1.5, cut=0.3)
    ends = cut.rollouts(Arm(dose=258.0), 0, 4000)
    assert ends.missing / 4000 == pytest.approx(0.3, abs=0.03)
    assert cut.rollouts(Arm(dose=10.0), 0, 400).missing == 0
    said = organisms.Speaker(1, 0.06, 0.1, 0.7)
    assert said.rollouts(Arm(avoid=organisms.CLASS), 0, 4000).outcomes.mean() == pytest.approx(0.1, abs=0.02)


def test_the_tier_runs_and_resumes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tier_a, "ORGANISMS", dict.fromkeys(tier_a.ORGANISMS, 15))
    console = Console(quiet=True)
    assert E174.main(quick=True, out=tmp_path, console=console) == 0
    lines = (tmp_path / "A.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "A.jsonl").write_text("".join(lines[:3]) + lines[3][:10])
    assert E174.main(quick=True, out=tmp_path, console=console) == 0
    again = [{k: v for k, v in line.items() if k != "cpu_s"} for line in load(tmp_path / "A.jsonl")]
    assert len(again) == len(lines)
    assert "Tier A" in (tmp_path / "summary_A.md").read_text()

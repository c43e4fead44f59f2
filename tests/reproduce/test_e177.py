"""E177's experiment: committed results are complete, reports say what the lines say, cells come out again."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from clew.core.errors import MissingExtra
from papers.E177_kernelpro import tier_cuda, tier_detector, tier_tree, tier_wall
from papers.experiment import Experiment, load, seconds

pytestmark = pytest.mark.whole

E177 = Experiment.find("E177")
RESULTS = E177.here / "results"
needs_gcc = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("objdump")), reason="did not run: no gcc or objdump"
)
needs_nvcc = pytest.mark.skipif(not tier_cuda.present(), reason="did not run: no nvcc or nvdisasm")


@pytest.mark.parametrize("name", E177.tiers)
def test_committed_results_are_complete(name):
    """Every cell has its line, the summary is what the lines give, and no line is of another cell."""
    lines = load(RESULTS / f"{name}.jsonl")
    assert {E177.key(line) for line in lines} == {E177.key(cell) for cell in E177.tiers[name].cells(False)}
    summary = (RESULTS / f"summary_{name}.md").read_text()
    if name != "search":
        assert E177.reports[name].report(lines) == summary
        return
    few = sorted(lines, key=lambda x: len(x["rows"]))[:2]  # all are a minute of searches; a kernel's row stands alone
    rows = [row for row in E177.reports[name].report(few).splitlines() if row.startswith(f"| {few[0]['kind']}")]
    assert rows
    assert set(rows) <= set(summary.splitlines())


@pytest.mark.parametrize("name", E177.tiers)
def test_a_quick_run_is_part_of_the_whole_and_costs_under_five_minutes_with_the_others(name):
    quick, whole = (list(E177.tiers[name].cells(quick)) for quick in (True, False))
    alone = {"quick"}  # a cell of tier tree that only a quick run has
    assert {E177.key(c) for c in quick if c["name"] not in alone} <= {E177.key(c) for c in whole}
    assert sum(seconds(tier, c) for tier in E177.tiers.values() for c in tier.cells(True)) < 700  # forecasts lie high


@needs_gcc
def test_labelled_builds_fire_the_same_rules_again():
    """Other compilers make other loops: the rule that the label is about has to fire all the same."""
    for name in ("sum", "dot"):
        line = next(x for x in load(RESULTS / "detector.jsonl") if (x["kind"], x["name"]) == ("build", name))
        (found,) = tier_detector.run({"kind": "build", "name": name}, [0])
        assert found["label"] == line["label"]
        assert {"WarpStall", "ScalarFallback"} <= set(found["fired"]) & set(line["fired"])
        assert found["metrics"]["chains"] == line["metrics"]["chains"] == 1


@needs_gcc
@pytest.mark.parametrize("cheat", ["all zeros", "stale memory"])
def test_a_cheat_is_refused_for_the_same_reason_again(cheat):
    line = next(x for x in load(RESULTS / "wall.jsonl") if (x["name"], x["arm"]) == ("stencil", cheat))
    (found,) = tier_wall.run({"kind": "cheat", "name": "stencil", "arm": cheat}, [0])
    assert found["refused"] == line["refused"] != ""


def test_cells_of_the_tree_come_out_again():
    for reward in ("log", "linear"):
        lines = [x for x in load(RESULTS / "tree.jsonl") if x["kind"] == "K6" and x["name"] == reward][:3]
        found = tier_tree.run({"kind": "K6", "name": reward}, [x["seed"] for x in lines])
        assert [x["share"] for x in found] == pytest.approx([x["share"] for x in lines])


def test_without_the_compiler_a_quick_run_says_that_tier_cuda_did_not_run(monkeypatch):
    monkeypatch.setattr(tier_cuda, "present", lambda: False)
    assert list(tier_cuda.cells(True)) == []
    assert "did not run: it needs nvcc" in E177.reports["cuda"].report([])
    with pytest.raises(MissingExtra, match="nvcc and nvdisasm"):
        tier_cuda.run({"kind": "pair", "name": "literal"}, [0])


@needs_nvcc
def test_a_pair_of_cuda_kernels_fires_on_the_faulty_one_only():
    line = next(x for x in load(RESULTS / "cuda.jsonl") if x["name"] == "literal")
    (found,) = tier_cuda.run({"kind": "pair", "name": "literal"}, [0])
    assert (found["rule"], found["faulty"], found["sound"]) == (line["rule"], line["faulty"], line["sound"])
    assert (found["faulty"], found["sound"]) == (True, False)

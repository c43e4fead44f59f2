"""E170's experiment: committed results that are complete and come out again, reports that say what the lines say."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from papers.E170_gate import tier_bench, tier_fresh, tier_sim, tier_stream
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E170 = Experiment.find("E170")
RESULTS = E170.here / "results"


@pytest.mark.parametrize("name", E170.tiers)
def test_committed_results_are_complete(name):
    """Every cell has its line, the summary is what the lines give, and a lost field is seen."""
    lines = load(RESULTS / f"{name}.jsonl")
    cells = list(E170.tiers[name].cells(False))
    if name in ("bench", "fresh") and not tier_bench.DATA.exists():
        ours = [x for x in lines if x["kind"] != "std"]
        cells += [{k: x[k] for k in ("kind", "program", "seed")} for x in ours]
    assert {E170.key(line) for line in lines} == {E170.key(cell) for cell in cells}
    assert E170.reports[name].report(lines) == (RESULTS / f"summary_{name}.md").read_text()


def test_cells_of_the_simulation_come_out_again():
    lines = load(RESULTS / "sim.jsonl")
    for level in ("score", "map", "fixture"):
        line = next(x for x in lines if x["level"] == level)
        setting = {k: v for k, v in line.items() if k in E170.settings}
        (found,) = tier_sim.run(setting, [line["seed"]])
        numbers = [k for k, v in found.items() if isinstance(v, float)]
        assert [found[k] for k in numbers] == pytest.approx([line[k] for k in numbers])
        assert {k: v for k, v in found.items() if k not in numbers} == {k: line[k] for k in found if k not in numbers}


def test_streams_come_out_again():
    """The gate's choices over a stream, with the code that ``clew gate`` chooses by."""
    for line in load(RESULTS / "stream.jsonl"):
        if line["seed"] == 3 and line["program"] in ("half", "weak"):
            setting = {k: v for k, v in line.items() if k in E170.settings}
            (found,) = tier_stream.run(setting, [3])
            assert found == {k: line[k] for k in found}


@pytest.mark.skipif(not tier_bench.DATA.exists(), reason="did not run: the HumanEval data are not here (../shared)")
def test_fresh_candidates_are_those_of_the_rule():
    lines = {(x["kind"], x["program"]): x for x in load(RESULTS / "fresh.jsonl")}
    for cell in tier_fresh.cells(False):
        given = tier_fresh.candidates(cell["program"], tier_fresh.SEEDS[cell["kind"]])
        assert len(given) == len(lines[cell["kind"], cell["program"]]["y"])


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_candidates_of_a_function_come_out_again():
    """In another Python its library is another: then only the shape is compared."""
    line = next(x for x in load(RESULTS / "bench.jsonl") if x["program"] == "37 string")
    (found,) = tier_bench.run({"kind": "std", "program": "37 string"}, [0])
    assert set(found) == {*tier_bench.CRITICS, "y", "inputs", "sandbox_s"}
    if sys.version_info[:2] == (3, 11):
        assert {k: found[k] for k in (*tier_bench.CRITICS, "y")} == {k: line[k] for k in (*tier_bench.CRITICS, "y")}

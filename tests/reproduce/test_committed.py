"""Committed reports and figures are, byte for byte, what the committed lines give; experiments are found by name."""

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from clew.core.errors import BadInput
from clew.methods.pins.stacks import STACKS
from clew.sandbox.sandbox import Sandbox
from papers.experiment import Experiment, apart, by_kind, each, grid, load, portions, seconds
from papers.stats import Mark, Report, document, mark, markdown, pooled, show, table

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
CHEAP = [
    *(("E163", tier) for tier in "TSDN"), ("E162", "sums"), ("E164", "R"), ("E164", "B"), ("E169", "R"),
    *(("E166", tier) for tier in ("fast", "service", "plans", "conductor")), ("E168", "flaw"),
    *(("E167", tier) for tier in ("fit", "think", "mask", "replay", "reward", "flatter", "decouple", "warm")),
    ("E170", "bench"),
    ("E171", "organisms"), ("E172", "data"), ("E172", "model"), ("E174", "A"), ("E177", "cuda"), ("E177", "wall"),
    ("E176", "human"), ("E176", "loop"), ("E176", "gate"), ("E178", "equal"), ("E178", "programs"),
]  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize(("paper", "tier"), CHEAP)
def test_a_report_and_its_figure_come_out_again(paper, tier, tmp_path):
    it = Experiment.find(paper)
    lines = load(it.here / "results" / f"{tier}.jsonl")
    assert it.reports[tier].report(lines) == (it.here / "results" / f"summary_{tier}.md").read_text()
    if not importlib.util.find_spec("matplotlib"):
        pytest.skip("did not run on the figure: matplotlib is not installed")
    name = f"figure_{tier}.svg"
    assert it.draw(tier, lines, tmp_path / name)
    assert (tmp_path / name).read_bytes() == (it.here / "results" / name).read_bytes()


def test_a_report_is_never_replaced_by_a_smaller_one(tmp_path, monkeypatch):
    """Where the data or the frameworks are absent a tier has fewer cells, and its committed lines still count."""
    own = {name: stack for name, stack in STACKS.items() if stack.package == "clew"}
    for paper, tier, name, absent in (("E172", "data", "PATHS", Path("nowhere")), ("E164", "A", "STACKS", own)):
        it = Experiment.find(paper)
        monkeypatch.setattr(it.tiers[tier], name, absent)
        assert len(list(it.tiers[tier].cells(False))) < len(load(it.here / "results" / f"{tier}.jsonl"))
        there = tmp_path / paper
        shutil.copytree(it.here / "results", there / "results")
        whole = (there / "results" / f"summary_{tier}.md").read_bytes()
        console = Console(record=True, width=200)
        assert replace(it, here=there).main(tier=tier, console=console) == 0
        assert (there / "results" / f"summary_{tier}.md").read_bytes() == whole
        assert "stand as committed" in console.export_text()


def test_a_paper_is_found_by_its_number_or_its_folder():
    for name in ("E174", "e174_FORENSICS"):
        it = Experiment.find(name)
        assert (it.name, it.here.name, list(it.tiers), list(it.reports)) == ("E174", "E174_forensics", ["A"], ["A"])
    with pytest.raises(BadInput, match="no paper is called 'E1'"):
        Experiment.find("E1")


ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"src/clew/[\w/]+(?:\.\w+)?")
USED = re.compile(r"^(?:from|import) (clew(?:\.\w+)+)(?: import \(?([\w, ]+))?", re.MULTILINE)


@pytest.mark.parametrize("readme", sorted(ROOT.glob("papers/E*/README.md")), ids=lambda path: path.parent.name)
def test_a_paper_names_the_files_of_its_engine(readme):
    """Every file of src that a README names is there; the paper's own code uses one of those named as its engine."""
    text = readme.read_text()
    assert [name for name in NAMED.findall(text) if not (ROOT / name).exists()] == []
    (engine,) = re.findall(r"\*\*Engine\.\*\*(.*?)\n\n", text, re.DOTALL)
    used = set()
    for file in readme.parent.glob("*.py"):
        for module, names in USED.findall(file.read_text()):
            used |= {module, *(f"{module}.{name.strip()}" for name in names.split(","))}
    modules = {
        name.removesuffix(".py").rstrip("/").removeprefix("src/").replace("/", ".") for name in NAMED.findall(engine)
    }
    assert used & modules, f"{readme.parent.name} imports none of {sorted(modules)}"


def test_a_line_without_a_mark_is_neither_met_nor_missed():
    half = pooled(1, 2)
    assert str(Mark("A", "counted", half, None)).startswith("no mark: A, counted; found 0.50 [")
    assert [mark("A", "p", half, **limit).met for limit in ({"least": 0.5}, {"most": 0.4}, {"above": 0.0})] == [1, 0, 1]
    assert mark("A", "p", half, under=0.5).met is False
    assert str(mark("A", "p", half, least=0.6, told="few")) == "NOT MET: A, p; found few"
    assert (pooled(0, 0).n, pooled(0, 0).estimate) == (1, 0.0)
    void = mark("A", "p", half, least=0.5)._replace(counts=False)
    assert str(void) == f"DOES NOT COUNT (else met): A, p; found {half}"


def test_tables_and_documents():
    found = Report(claim="", estimate=0.5, low=0.25, high=0.75, n=4, design="")
    assert show(found) == "0.500 [0.250, 0.750]"
    assert show(found, "+.1f") == "+0.5 [+0.2, +0.8]"
    assert (
        table([{"x": 2.5}], ("x", "x", ".2f"), ("y", lambda item: item["x"] > 2))
        == "| x | y |\n| --- | --- |\n| 2.50 | True |"
    )
    assert markdown("a | b", [[1, "c"]]) == "| a | b |\n| --- | --- |\n| 1 | c |"
    assert document("# T", "", [Mark("A", "p", "q", True)]) == "# T\n\n- met: A, p; found q\n"


def test_grids_of_cells_and_what_runs_them(tmp_path):
    cells = list(grid(kind="a", n=(1, 2), seed=range(2)))
    assert cells[1] == {"kind": "a", "n": 1, "seed": 1}
    assert list(portions(cells)) == [({"kind": "a", "n": n}, [0, 1]) for n in (1, 2)]
    assert list(apart(cells))[1] == ({"kind": "a", "n": 1}, [1])
    run = by_kind({"a": lambda setting, seed: {"sum": setting["n"] + seed}})
    assert run({"kind": "a", "n": 2}, [0, 1]) == [{"sum": 2}, {"sum": 3}]
    assert each(lambda setting, seed: {"seed": seed})({}, [7]) == [{"seed": 7}]
    costs = (3.0, {"a": 3.0}, lambda cell: 3.0)
    assert [seconds(SimpleNamespace(cost=cost), cells[0]) for cost in costs] == [3.0] * 3
    tier = SimpleNamespace(cells=lambda quick: iter(cells), cost=1.0, run=run, portions=apart)
    it = Experiment("E0", tmp_path, ("kind", "n"), {"t": tier}, {})
    assert [line["sum"] for line in it.compute("t", False, tmp_path, Console(quiet=True))] == [1, 2, 2, 3]


BURN = "import time\nwhile time.process_time() < 0.5: pass"


@pytest.mark.parametrize("inside", [False, pytest.param(True, marks=needs_bubblewrap)])
def test_the_cpu_time_of_children_and_of_the_sandbox_is_counted(inside, tmp_path):
    """The clock is the kernel's count of CPU time, not the time of day: the child runs until half a second is used."""

    def one(setting, seed):
        if inside:
            assert Sandbox().run([sys.executable, "-c", BURN]).ok
        else:
            subprocess.run([sys.executable, "-c", BURN], check=True)
        return {}

    tier = SimpleNamespace(cells=lambda quick: iter([{"kind": "a", "seed": 0}]), cost=1.0, run=each(one))
    (line,) = Experiment("E0", tmp_path, ("kind",), {"t": tier}, {}).compute("t", False, tmp_path, Console(quiet=True))
    assert line["cpu_s"] >= 0.4

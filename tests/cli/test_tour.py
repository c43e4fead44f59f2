"""clew tour: stops are walked by lines that run, kept, gone on with after a kill, and shown on a page."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed")
pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")
pytest.importorskip("scipy", reason="did not run: the extra [stats] is not installed")

from clew.cli.touring import journey, tour_page
from clew.cli.touring.stops import PARTS, STOPS, needed
from clew.core.errors import ClewError
from clew.store import open_store
from clew.view.pages.reports import reports
from clew.view.report import escape
from tests.cli.shell import printed

pytestmark = pytest.mark.whole

ROOT = Path(__file__).resolve().parents[2]
PAPERS = {path.name.partition("_")[0] for path in (ROOT / "papers").glob("E*") if path.is_dir()}
SMALL = ("--quick", "--only", "theory", "--only", "memory")
NEED = pytest.mark.skipif(shutil.which("git") is None, reason="did not run: git is not installed")


def lines(text: str) -> list[str]:
    """The lines that a tour typed."""
    return [line.strip()[2:] for line in text.splitlines() if line.strip().startswith("$ clew ")]


def test_every_method_of_the_papers_is_a_stop_and_builds_on_earlier_ones():
    assert {stop.paper for stop in STOPS.values() if stop.paper} == PAPERS
    assert len(PAPERS) == 18
    assert sum(len(stops) for stops in PARTS.values()) == len(STOPS), "no two stops share a name"
    order = list(STOPS)
    for stop in STOPS.values():
        assert all(order.index(other) < order.index(stop.name) for other in stop.after)
        assert stop.asks.endswith(("?", "."))
        assert stop.does.endswith(".")
    assert needed(("world",)) == ["train", "diff", "world"]
    assert needed(()) == order


def test_two_stops_are_walked_shown_filed_and_not_walked_again(clew, tmp_path):
    first = clew("tour", *SMALL)
    typed = lines(first.stderr)
    assert len(typed) == 8, "four items, their runs, the audit, the list, and the theories"
    folder = tmp_path / ".clew" / "tour-quick"
    said = json.loads((folder / "stops" / "memory.json").read_text())
    assert [line["typed"] for line in said["lines"]] == typed[:7]
    assert said["figure"]["low"] < said["figure"]["estimate"] < said["figure"]["high"]
    assert said["control"]["estimate"] > 0 > said["figure"]["estimate"], "the wrong item does harm, the best helps"
    page = (folder / "tour.html").read_text()
    for stop in ("memory", "theory"):
        assert escape(STOPS[stop].asks) in page
        assert STOPS[stop].arxiv in page
    assert page.count("<svg") == 2
    with open_store(folder / "store.db") as store:
        filed = [one for one in reports(store) if one["source"] == "clew tour"]
        assert {one["claim"].partition("?")[0] for one in filed} == {
            STOPS[name].asks.partition("?")[0] for name in ("memory", "theory")
        }
    again = clew("tour", *SMALL, "--json")
    assert lines(again.stderr) == []
    assert [stop["stop"] for stop in json.loads(again.stdout)["stops"]] == ["memory", "theory"]


def test_a_line_that_was_printed_is_one_that_anybody_can_type(clew, tmp_path):
    said = clew("tour", "--quick", "--only", "memory")
    export = next(line.strip()[2:] for line in said.stderr.splitlines() if "$ export" in line)
    name, _, store = shlex.split(export)[1].partition("=")
    listed = next(line for line in lines(said.stderr) if "memory list" in line)
    done = subprocess.run(
        [sys.executable, "-m", "clew.cli", *shlex.split(listed)[1:]],
        cwd=tmp_path, env={**os.environ, name: store}, capture_output=True, check=True,
    )  # fmt: skip
    kept = json.loads((tmp_path / ".clew/tour-quick/lines/memory/07.json").read_text())
    assert json.loads(done.stdout) == json.loads(kept["printed"])
    shown = [line for line in printed(said.output) if line.startswith("clew view")]
    assert any("reports?q=tour" in line for line in shown)
    assert all(shlex.split(line)[-2:] == ["--store", store] for line in shown)


def test_killed_in_the_middle_it_goes_on_at_the_line_at_which_it_was(tmp_path):
    command = [sys.executable, "-m", "clew.cli", "tour", "--quick", "--only", "memory"]
    kept = tmp_path / ".clew/tour-quick/lines/memory"
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        until = time.monotonic() + 120
        while time.monotonic() < until and not (kept / "03.json").exists():
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    done = sorted(path.name for path in kept.glob("*.json"))
    assert done[:3] == ["01.json", "02.json", "03.json"]
    assert len(done) < 7
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(lines(again.stderr)) == 7 - len(done)
    whole = json.loads((tmp_path / ".clew/tour-quick/stops/memory.json").read_text())
    assert len(whole["lines"]) == 7


def test_a_stop_without_its_program_is_left_out_with_a_reason_and_others_that_need_it_too(clew, tmp_path, monkeypatch):
    real = shutil.which
    monkeypatch.setattr("shutil.which", lambda name, *rest: None if name == "cc" else real(name, *rest))
    done = clew("tour", "--quick", "--only", "kernel", "--only", "theory", code=1)
    assert "kernel: cc is not installed" in done.output
    assert "cc is not installed" in (tmp_path / ".clew/tour-quick/tour.html").read_text()


def test_a_line_that_fails_is_told_with_what_it_said_and_the_next_stop_is_walked(clew, tmp_path):
    folder = tmp_path / ".clew" / "tour-quick"
    folder.mkdir(parents=True)
    (folder / "returns.jsonl").write_text("no json\n")
    done = clew("tour", *SMALL, code=1)
    assert "failed: `clew run" in done.stderr
    assert "returns.jsonl" in done.stderr
    assert "1 stops" in done.stdout
    assert "memory: returns.jsonl:1 is not JSON" in done.stdout


def test_names_that_are_no_stop_are_refused_and_all_are_listed(clew):
    assert "the tour has no stop 'cliff'" in clew("tour", "--only", "cliff", code=2).output
    listed = json.loads(clew("tour", "--list", "--json").stdout)
    assert [one["stop"] for one in listed] == list(STOPS)
    assert all(word in clew("tour", "--list").output for word in ("cliffs", "E172", "At which token was the run lost?"))


def test_what_a_line_printed_is_text_on_the_page():
    hostile = {"claim": "<script>alert(1)</script>", "estimate": 0.5, "low": 0.2, "high": 0.8, "n": 3, "design": "<b>"}
    stop = {
        "stop": "why", "paper": "E174", "arxiv": "1", "method": "<i>", "asks": "<u>?", "does": "x.", "unit": "",
        "figure": hostile, "control": hostile, "means": "<img src=x onerror=alert(1)>", "place": "run/<a>",
        "lines": [{"typed": "clew show '<script>'"}], "seconds": 1.0, "cpu": 1.0,
    }  # fmt: skip
    page = tour_page.page([stop], {"<s>": "<hr>"}, "<store>", {"<line>": "<why>"})
    for tag in ("<script", "<i>", "<u>", "<img", "<b>", "<s>", "<hr", "<store>", "run/<a>", "<line>", "<why>"):
        assert tag not in page


def test_a_line_that_prints_something_else_than_asked_for_is_a_failure(tmp_path):
    walk = journey.Walk(tmp_path, "x", True)
    with pytest.raises(ClewError, match="printed no object"):
        walk.type("worlds")
    open_store(tmp_path / "store.db", create=True).close()
    with pytest.raises(ClewError, match="found nothing"):
        walk.rows("log tag:nothing")
    with pytest.raises(ClewError, match="ended with exit code 2"):
        walk.type("show nothing")


def test_a_project_whose_defaults_would_change_the_lines_is_refused(clew, tmp_path):
    (tmp_path / "clew.toml").write_text('agent = "mine.py:agent"\n')
    said = clew("tour", "--only", "theory", code=2).output
    assert "would take defaults from" in said
    assert "clew.toml" in said


@NEED
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="did not run: bubblewrap is not installed")
def test_a_folder_whose_name_needs_quoting_serves(clew, tmp_path):
    said = clew("tour", "--quick", "--only", "gate", "--folder", "a tour's $folder")
    found = json.loads((tmp_path / "a tour's $folder/stops/gate.json").read_text())
    assert found["control"]["n"] == 6, "six runs of the coder"
    assert found["figure"]["estimate"] > 0
    assert "a tour" in said.output


@NEED
def test_eight_reports_find_their_files_and_the_past_says_which_check_is_needed(clew, tmp_path):
    clew("tour", "--quick", "--only", "bug")
    said = json.loads((tmp_path / ".clew/tour-quick/stops/bug.json").read_text())
    assert said["figure"]["n"] == 8
    assert said["figure"]["low"] > said["control"]["estimate"]

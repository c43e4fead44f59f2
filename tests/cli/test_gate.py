"""clew gate in a repository of two files, in the sandbox and outside of it."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from clew.coding.gate.candidates import Checks
from clew.core import registry

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
ORACLE = f"{sys.executable} test_m.py"
TEST = "import m\nassert m.clip(5, 0, 3) == 3 and m.clip(-1, 0, 3) == 0 and m.clip(3, 0, 4) == 3\n"


@pytest.fixture
def repo(tmp_path, monkeypatch):
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "m.py").write_text("def clip(x, low, high):\n    return low if x < low else high if x > high else x\n")
    (folder / "test_m.py").write_text(TEST)
    registry.register("tasksets", "checks", Checks)
    monkeypatch.chdir(folder)
    return folder


@needs_bubblewrap
def test_a_change_is_learnt_from_then_decided(clew, repo):
    line = ("gate", "m.py", "--critic", "grep -q def {file}", "--oracle", ORACLE, "--repo", repo, "--store", "s.db")
    first = clew(*line)
    assert "nothing is known of these commands yet" in first.output
    assert "ship, verified" in first.output
    found = json.loads(clew(*line, "--json").output)
    assert found["verdict"] == "ship"
    assert found["learnt"] is False
    assert {"action", "belief", "values", "information", "reason"} <= set(found["decisions"][0])
    assert "verify" in clew("show", found["run"], "--store", "s.db").output
    assert "calls equal" in clew("replay", found["run"], "--store", "s.db").output
    (repo / "m.py").write_text("def clip(x, low, high):\n    return x\n")
    assert "stop" in clew(*line, "--learn", code=1).output


@needs_bubblewrap
def test_mutants_teach_the_critics_rates_and_not_the_prior(clew, repo):
    line = ("gate", "m.py", "--critic", "grep -q low {file}", "--oracle", ORACLE, "--repo", repo, "--store", "s.db")
    done = clew(*line, "--mutants", "3", "--json")
    found = json.loads(done.stdout)
    assert found["broken"] + found["passed"] == 3
    assert found["broken"] >= 1
    assert "belief 0.50" in clew(*line).output  # the prior is still unknown


def test_what_cannot_be_used_is_named(clew, repo):
    (repo / "b.bin").write_bytes(b"\0")
    for words, why in (
        (("nothing.py", "--oracle", "true"), "there is no file nothing.py"),
        (("b.bin", "--oracle", "true"), "no text"),
        (("m.py", "--oracle", "true 'x"), "no command"),
        (("m.py", "--oracle", "true", "--horizon", "3"), "without --refine"),
        (("m.py", "--oracle", "true", "--mutants", "0"), "'--mutants': 0"),
        (("m.py", "--oracle", "true", "--reward", "-1"), "reward"),
    ):
        done = clew("gate", *words, "--repo", repo, "--outside", "--store", "s.db", code=2)
        assert why in done.output


def test_outside_runs_in_the_repository_itself(clew, repo):
    line = ("gate", "m.py", "--oracle", f"touch seen; {ORACLE}", "--repo", repo, "--store", "s.db", "--outside")
    assert "ship" in clew(*line).output
    assert (repo / "seen").exists()


@needs_bubblewrap
@pytest.mark.parametrize(
    ("oracle", "why"),
    [
        ("kill -SEGV $$", "ended by SIGSEGV"),
        ("nosuchcommand", "exit 127: is not installed here"),
        ("exit 7", "exit 7: neither passed nor failed"),
        ("sleep 9", "ended for its limit: wall"),
    ],
)
def test_an_oracle_that_gives_no_verdict_is_undecided_and_says_why(clew, repo, oracle, why):
    line = ("gate", "m.py", "--oracle", oracle, "--repo", repo, "--store", "s.db", "--timeout", "0.5")
    done = clew(*line, code=1)
    assert f"({why})" in done.output
    assert "\nundecided; belief" in done.output
    if why.startswith("exit 127"):
        told = clew(*line, "--mutants", "2", code=2).output
        assert "the oracle decided nothing about 2 mutants: exit 127: is not installed here" in told


@needs_bubblewrap
def test_critics_that_hang_or_flip_are_told_and_not_counted(clew, repo):
    flips = 'python3 -c "import time; raise SystemExit(time.time_ns() // 1000 % 2)"'
    line = ("gate", "m.py", "--critic", "sleep 9", "--critic", flips, "--oracle", ORACLE, "--repo", repo)
    line = (*line, "--store", "s.db", "--timeout", "5", "--learn")
    shown = []
    for _ in range(12):
        shown.append(clew(*line[:3], *line[5:]).output)  # the one that hangs once only: it takes its time
        if "flips: it said" in shown[-1]:
            break
    assert "not counted" in shown[-1]
    hung = clew(*(w if w != "5" else "0.5" for w in line)).output
    assert hung.count("undecided   0.5") == 2
    assert "(ended for its limit: wall)" in hung
    assert "ship, verified" in hung

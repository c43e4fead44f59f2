"""clew gate in a repository of two files, in the sandbox and outside of it."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from clew.core import registry
from clew.methods.gate.candidates import Checks
from clew.store import open_store

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
    assert (found["learnt"], found["explored"], found["before"]) == (False, True, False)
    assert {"action", "lot", "verdicts", "left"} == set(found["decisions"][0])
    assert "verify" in clew("show", found["run"], "--store", "s.db").output
    assert "calls equal" in clew("replay", found["run"], "--store", "s.db").output
    (repo / "m.py").write_text("def clip(x, low, high):\n    return x\n")
    assert "stop, broken" in clew(*line, "--learn", code=1).output
    known = json.loads(clew("gate", "--oracle", ORACLE, "--repo", repo, "--store", "s.db", "--json").output)
    assert (known["good"], known["broken"], known["best"]["rule"]) == (1, 1, "verify always")


@needs_bubblewrap
def test_what_was_verified_before_is_not_verified_again(clew, repo):
    line = ("gate", "m.py", "--oracle", ORACLE, "--repo", repo, "--store", repo.parent / "s.db")
    first = json.loads(clew(*line, "--json").output)
    second = json.loads(clew(*line, "--json").output)
    assert (second["run"], second["before"], second["verdict"]) == (first["run"], True, "ship")
    assert "--again verifies them anew" in clew(*line).output
    third = json.loads(clew(*line, "--again", "--json").output)
    assert third["run"] != first["run"]
    known = json.loads(clew("gate", "--oracle", ORACLE, "--repo", repo, "--store", line[-1], "--json").output)
    assert known["candidates"] == 1
    (repo / "test_m.py").write_text(TEST + "# more\n")
    assert json.loads(clew(*line, "--json").output)["before"] is False


@needs_bubblewrap
def test_the_lottery_is_drawn_anew_each_time_and_its_seed_is_recorded(clew, repo):
    line = ("gate", "m.py", "--oracle", ORACLE, "--repo", repo, "--store", repo.parent / "s.db", "--again", "--json")
    runs = [json.loads(clew(*line).output)["run"] for _ in range(3)]
    with open_store(repo.parent / "s.db") as store:
        assert len({store.row(run).seed for run in runs}) == 3
    runs = [json.loads(clew(*line, "--seed", "7").output)["run"] for _ in range(2)]
    with open_store(repo.parent / "s.db") as store:
        assert len({store.row(run).seed for run in runs}) == 1


@needs_bubblewrap
def test_a_diff_from_stdin_and_the_words_for_a_change(clew, repo):
    patch = (
        "--- a/m.py\n+++ b/m.py\n@@ -1,2 +1,2 @@\n def clip(x, low, high):\n"
        "-    return low if x < low else high if x > high else x\n+    return max(low, x)\n"
    )
    line = ("--oracle", ORACLE, "--repo", repo, "--store", "s.db")
    (repo / "x.diff").write_text(patch)
    assert "stop, broken" in clew("gate", "x.diff", *line, code=1).output
    assert "stop, broken" in clew("gate", "-", *line, input=patch, code=1).output
    assert (repo / "m.py").read_text().endswith("else x\n")
    assert "there is no file HEAD" in clew("gate", "HEAD", *line, code=2).output


def test_verdicts_of_the_project_give_the_rule(clew, tmp_path):
    checks = []
    for i in range(200):
        good = i % 5 > 1
        said = {"e2e": good, "unit": good or i % 5 == 0, "\x1b[31mlint": i % 7 > 0}
        checks += [
            {"name": name, "headSha": f"{i:040x}", "conclusion": "success" if passed else "failure"}
            for name, passed in said.items()
        ]
    (tmp_path / "checks.json").write_text(json.dumps(checks))
    done = clew("gate", "--from", tmp_path / "checks.json", "--oracle", "e2e")
    assert "200 candidates: 120 good, 80 broken" in done.output
    assert "best: verify if unit passes: oracle runs saved 20% [15%, 26%]; good ones lost 0 of 120" in done.output
    assert "\x1b" not in done.output
    assert "[31mlint" in done.output
    found = json.loads(clew("gate", "--from", tmp_path / "checks.json", "--oracle", "e2e", "--json").output)
    assert found["best"]["critics"] == ["unit"]
    assert found["held_out"]["saved"]["share"] == pytest.approx(0.2)
    assert "there are no verdicts" in clew("gate", code=2).output
    assert "no file nothing" in clew("gate", "--from", "nothing", code=2).output


@needs_bubblewrap
def test_verdicts_of_the_project_are_known_to_a_decision(clew, repo):
    checks = [
        {"name": name, "headSha": f"{i:040x}", "conclusion": "success" if i % 2 else "failure"}
        for i in range(100) for name in ("tests", "quick")
    ]  # fmt: skip
    (repo.parent / "checks.json").write_text(json.dumps(checks))
    (repo / "m.py").write_text("def clip(x, low, high):\n    return x\n")
    line = ("gate", "m.py", "--critic", "quick: false", "--oracle", f"tests: {ORACLE}", "--repo", repo)
    line = (*line, "--from", repo.parent / "checks.json", "--store", repo.parent / "s.db", "--again")
    assert "critics twice" in clew(*line, code=1).output  # the commands' times are not known yet
    done = clew(*line, "--audit", "0.0001", code=1)
    assert "verify" not in done.output.split("best:")[1].split("\n", 1)[1]
    assert "\nstop; belief 0." in done.output


@needs_bubblewrap
def test_mutants_teach_the_critics_rates_and_not_the_prior(clew, repo):
    line = ("gate", "m.py", "--critic", "grep -q low {file}", "--oracle", ORACLE, "--repo", repo, "--store", "s.db")
    done = clew(*line, "--mutants", "3", "--json")
    found = json.loads(done.stdout)
    assert found["broken"] + found["passed"] == 3
    assert found["broken"] >= 1
    assert found["rates"]["grep -q low {file}"]["broken"]["of"] == found["broken"]
    said = clew("gate", "--oracle", ORACLE, "--repo", repo, "--store", "s.db", "--json").output
    assert json.loads(said)["rules"][0]["saved"]["n"] == 0  # they say nothing of how often good ones come


def test_what_cannot_be_used_is_named(clew, repo):
    (repo / "b.bin").write_bytes(b"\0")
    for words, why in (
        (("nothing.py", "--oracle", "true"), "there is no file nothing.py"),
        (("b.bin", "--oracle", "true"), "no text"),
        (("m.py", "--oracle", "true 'x"), "no command"),
        (("m.py", "--oracle", "true", "--horizon", "3"), "without --refine"),
        (("m.py", "--oracle", "true", "--mutants", "0"), "'--mutants': 0 is out of bounds"),
        (("m.py",), "no oracle is named"),
        (("m.py", "--oracle", "true", "--lose", "2"), "'--lose': 2 is out of bounds"),
        (("m.py", "--oracle", "true", "--audit", "0"), "'--audit': 0 is out of bounds"),
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

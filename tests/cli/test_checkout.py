"""clew gateway --workspace and clew checkout: a foreign program's files, at each of its requests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clew.store import open_store

AGENT = """
import json, os, subprocess, urllib.request
from pathlib import Path
messages = [{"role": "user", "content": "work"}]

def ask():
    body = json.dumps({"model": "any", "messages": messages}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                     {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.extend([reply, {"role": "user", "content": "next"}])

ask()
Path("new.py").write_text("one")
Path("made").mkdir()
ask()
Path("new.py").write_text("two")
Path("given.txt").unlink()
os.symlink("/etc/passwd", "out")
subprocess.run(["git", "init", "-q", "."], check=False)
ask()
Path("new.py").write_text("three")
"""


def line(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", "import clew.cli; clew.cli.main()", *map(str, words)]
    return subprocess.run(start, capture_output=True, text=True, timeout=120, cwd=folder, env=os.environ)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("workspace")
    work = place / "work"
    work.mkdir()
    (place / "agent.py").write_text(AGENT)
    (work / "given.txt").write_text("given")
    (work / ".gitignore").write_text("made\n")
    words = ("--workspace", ".", "--model", "echo", "--name", "first", "--store", place / "s.db")
    done = line("gateway", *words, "--", sys.executable, place / "agent.py", folder=work)
    assert done.returncode == 0, done.stderr
    assert "Next:\n  clew checkout " in done.stdout
    return place


def shown(place: Path) -> list[dict]:
    return json.loads(line("checkout", "first", "--json", "--store", "s.db", folder=place).stdout)


def test_what_changed_between_requests_is_listed(recorded):
    rows = shown(recorded)
    assert [row["call"] for row in rows][-1] == "end"
    assert len(rows) == 4
    assert rows[0]["changed"] == []
    assert rows[1]["changed"] == ["+made", "+new.py"]
    changed = rows[2]["changed"]
    assert {"-given.txt", "*new.py", "+out"} <= set(changed)
    assert rows[3]["changed"] == ["*new.py"]
    table = line("checkout", "first", "--store", "s.db", folder=recorded).stdout
    assert "+made +new.py" in table
    assert "Next: clew checkout " in table


def test_each_step_is_shown_as_patches(recorded):
    text = line("show", "first", "--files", "--store", "s.db", folder=recorded).stdout
    assert "  + new.py\n      @@ -0,0 +1,2 @@\n      +one\n" in text
    assert "      -one\n      +two\n" in text
    assert "a link to /etc/passwd" in text
    assert text.count("  * .git\n") == 1
    assert ".git/HEAD" not in text
    rows = json.loads(line("show", "first", "--files", "--json", "--store", "s.db", folder=recorded).stdout)
    assert [row["to"] for row in rows][-1] == "end"
    assert {"path": "new.py", "sign": "*", "text": "@@ -1,2 +1,2 @@\n-two\n+three\n (no newline at the end)"} in rows[
        -1
    ]["changed"]


def test_the_files_of_two_places_are_compared(recorded):
    seqs = [row["call"] for row in shown(recorded)]
    words = ("diff", f"first@{seqs[1]}", "first", "--files", "--store", "s.db")
    text = line(*words, folder=recorded).stdout
    assert "      -one\n      +three\n" in text
    same = line("diff", "first", "first", "--files", "--store", "s.db", folder=recorded).stdout
    assert "equal: both runs have the same files there" in same


def test_files_come_back_as_they_stood_at_a_call_and_the_folder_stays_as_it_is(recorded, tmp_path):
    seqs = [row["call"] for row in shown(recorded)]
    for seq, text in ((seqs[1], "one"), (seqs[2], "two")):
        back = tmp_path / f"at{seq}"
        done = line("checkout", f"first@{seq}", back, "--store", "s.db", folder=recorded)
        assert done.returncode == 0, done.stderr
        assert (back / "new.py").read_text() == text
        assert (back / "made").is_dir()
        assert (back / "given.txt").exists() is (text == "one")
    assert os.readlink(tmp_path / f"at{seqs[2]}" / "out") == "/etc/passwd"
    end = line("checkout", "first", tmp_path / "end", "--store", "s.db", folder=recorded)
    assert end.returncode == 0
    assert (tmp_path / "end" / "new.py").read_text() == "three"
    again = line("checkout", "first", tmp_path / "end", "--store", "s.db", folder=recorded)
    assert "nothing is ever restored in place" in again.stderr
    assert (recorded / "work" / "new.py").read_text() == "three"


def test_a_fork_has_the_files_of_what_it_goes_on_from(recorded):
    from clew.serve.gateway.run_files import files_at, files_of
    from clew.store import Run

    store = open_store(recorded / "s.db")
    run = Run(store, store.find("tag:first")[0])
    known = files_of(run)
    assert [one.seq for one in known[:-1]] == sorted(one.seq for one in known[:-1])
    assert files_at(run, run.at(known[1].seq + 1)) == known[1]
    assert files_at(run, None) == known[-1]
    store.close()


COMMITS = """
import json, os, subprocess, sys, urllib.request
from pathlib import Path
messages = [{"role": "user", "content": "work in " + os.getcwd()}]

def ask():
    body = json.dumps({"model": "any", "messages": messages}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                     {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append(reply)
    return reply["content"]

ask()
here = os.getcwd()
Path(here, "count.txt").write_text(str(int(Path(here, "count.txt").read_text()) + 1))
git = "git init -q . && git add -A && git -c user.name=a -c user.email=b commit -qm one && git rev-parse HEAD"
hash = subprocess.run(git, shell=True, capture_output=True, text=True).stdout
messages.append({"role": "user", "content": hash})
said = ask()
Path(here, "said.txt").write_text(said + os.environ.get("MORE", ""))
messages.append({"role": "user", "content": "end"})
ask()
"""


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no folder can be mounted here")
    place = tmp_path_factory.mktemp("program")
    work = place / "work"
    work.mkdir()
    (place / "agent.py").write_text(COMMITS)
    (work / "count.txt").write_text("0")
    (work / ".env").write_text("ignored")
    words = ("--workspace", ".", "--model", "echo", "--name", "first", "--store", place / "s.db")
    done = line("gateway", *words, "--", sys.executable, place / "agent.py", folder=work)
    assert done.returncode == 0, done.stderr
    return place


def test_a_replay_starts_the_program_in_the_files_of_its_beginning(commits):
    words = ("gateway", "--replay", "first", "--store", "s.db", "--into")
    done = line(*words, "again", "--", sys.executable, commits / "agent.py", folder=commits)
    assert done.returncode == 0, done.stderr
    for place in ("request 0", "request 1", "request 2", "the end"):
        assert f"{place}: equal files" in done.stderr  # the commit too, whose hash is in a request
    assert (commits / "again" / "count.txt").read_text() == "1"
    assert (commits / "work" / "count.txt").read_text() == "1"  # that of the recording, which was not begun again
    full = line(*words, "again", "--", sys.executable, commits / "agent.py", folder=commits)
    assert "nothing is ever restored in place" in full.stderr.lower()
    assert full.returncode != 0


def test_a_fork_takes_another_way_in_its_own_files(commits):
    known = json.loads(line("show", "first", "--json", "--store", "s.db", folder=commits).stdout)[0]["calls"]
    asks = [call["seq"] for call in known if call["kind"] == "ask"]
    sends = [call["seq"] for call in known if call["action"].startswith('["","send"')]
    words = ("gateway", "--fork", f"first@{asks[1]}", "--reply", "another", "--into", "branches", "-n", 2)
    done = line(*words, "--store", "s.db", "--", sys.executable, commits / "agent.py", folder=commits)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("request 1: equal files") == 2
    branches = sorted((commits / "branches").iterdir())
    assert [(b / "said.txt").read_text() for b in branches] == ["another"] * 2
    assert [(b / "count.txt").read_text() for b in branches] == ["1"] * 2
    known = json.loads(line("checkout", branches[0].name, "--json", "--store", "s.db", folder=commits).stdout)
    assert known[-1]["call"] == "end"
    assert (commits / "work" / "said.txt").read_text() != "another"
    wrong = line(
        "gateway", "--fork", f"first@{sends[0]}", "--reply", "x", "--store", "s.db", "--", "true", folder=commits
    )
    assert f"call {sends[0]} asks no model, so it has no reply" in wrong.stderr


def test_files_that_differ_are_named(commits):
    words = ("gateway", "--replay", "first", "--store", "s.db", "--into", "other", "--", "env", "MORE=x")
    done = line(*words, sys.executable, commits / "agent.py", folder=commits)
    assert "request 1: equal files" in done.stderr
    assert "request 2: said.txt differs from the recorded files" in done.stderr


def test_where_a_program_cannot_begin_again_is_named(commits, recorded):
    assert (
        "--into is where the PROGRAM of a fork" in line("gateway", "--into", "x", "--", "true", folder=commits).stderr
    )


def test_bad_places_are_named(clew, tmp_path, store):
    (tmp_path / "inside").mkdir()
    assert "is no folder" in clew("gateway", "--workspace", "missing", "--", "true", code=2).output
    assert "is a root or a home folder" in clew("gateway", "--workspace", "/", "--", "true", code=2).output
    assert "whose files would hold themselves" in clew("gateway", "--workspace", ".", "--", "true", code=2).output
    run = open_store(store).run_ids()[0]
    text = clew("checkout", run, "there", "--store", store, code=None).output
    assert "was recorded without its files" in text


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_the_gate_decides_over_what_a_program_changed_and_why_says_what_it_needs(recorded):
    words = ("--oracle", "grep -q three new.py && test ! -e given.txt", "--store", "s.db")
    done = line("gate", "--run", "first", *words, folder=recorded)
    assert "ship, verified" in done.stdout, done.stderr
    assert line("gate", "--run", "first@3", *words, folder=recorded).returncode == 1
    assert "gate 1" in line("show", "first", "--store", "s.db", folder=recorded).stdout
    why = line("audit", "why", "first", "--edits", "*.py", "--store", "s.db", folder=recorded)
    assert "keep no files" in why.stderr

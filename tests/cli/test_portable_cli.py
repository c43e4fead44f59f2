"""A portable run end to end: recorded, exported, imported elsewhere, shown, checked out, forked; no credential."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from clew.exchange.portable.credentials import unpacked
from clew.store import open_store

AGENT = """
import json, os, subprocess, sys, urllib.request
from pathlib import Path
messages = [{"role": "user", "content": "work"}]

def ask(say):
    body = json.dumps({"model": "any", "messages": messages}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                     {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.extend([reply, {"role": "user", "content": say}])

ask("next")
Path("new.py").write_text("one")
ask(sys.argv[1] if len(sys.argv) > 1 else "next")
Path("new.py").write_text("two")
ask("last")
Path("new.py").write_text("three")
ask("end")
"""
KEY = "sk-proj-" + "Ab3dEf6h" * 3
SECRET = "planted-value-4711"
PLAIN = {name: value for name, value in os.environ.items() if name not in ("CLEW_STORE", "OPENAI_API_KEY")}


def line(*words: object, folder: Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", "import clew.cli; clew.cli.main()", *map(str, words)]
    done = subprocess.run(start, capture_output=True, text=True, timeout=120, cwd=folder, env=PLAIN | environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def recorded(place: Path, *says: str) -> Path:
    work = place / "work"
    work.mkdir(parents=True)
    (place / "agent.py").write_text(AGENT)
    (work / "given.txt").write_text("given")
    (work / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    (work / "settings.txt").write_text(f"password: {SECRET}\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q", "."], cwd=work, check=True)
    subprocess.run([*git, "add", "-A"], cwd=work, check=True)
    subprocess.run([*git, "commit", "-qm", "all"], cwd=work, check=True)
    words = ("--workspace", ".", "--model", "echo", "--name", "first", "--store", place / "s.db")
    line("gateway", *words, "--", sys.executable, place / "agent.py", *says, folder=work)
    return place


def inside(file: Path) -> bytes:
    """All that lies in a portable run, with what is packed in its members."""
    found = []
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            found += [name.encode(), data, *unpacked(data)]
    return b"\n".join([file.read_bytes(), *found])


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that says no credential, whose files hold two."""
    place = recorded(tmp_path_factory.mktemp("portable"))
    done = line("export", "bug.clew", "first", "--store", "s.db", folder=place, DB_PASSWORD=SECRET)
    assert "bug.clew: 1 runs, " in done.stdout
    assert "Next: clew import bug.clew --store elsewhere.db" in done.stdout
    assert "files that hold a credential are left out" in done.stderr
    for path, kind in (
        (".env", "a key of OpenAI"),
        ("settings.txt", "the value of DB_PASSWORD"),
        (".git/objects/", ""),
    ):
        assert f"{path} ({kind}" in done.stderr or (not kind and path in done.stderr)
    assert "erased" not in done.stderr
    return place


def test_the_planted_credentials_are_nowhere_in_the_file(clean):
    everything = inside(clean / "bug.clew")
    assert b"given" in everything
    assert KEY.encode() not in everything
    assert SECRET.encode() not in everything
    open_ = line("export", "open.clew", "first", "--store", "s.db", folder=clean)
    assert "settings.txt" not in open_.stderr, "a value is a secret only where the environment says so"
    assert SECRET.encode() in inside(clean / "open.clew")


@pytest.mark.whole
def test_ids_digests_and_show_are_equal_elsewhere(clean, tmp_path):
    said = line("import", clean / "bug.clew", "--store", "new/t.db", folder=tmp_path).stdout
    assert ": 1 runs, " in said
    assert "Next: clew show " in said
    here, there = open_store(clean / "s.db"), open_store(tmp_path / "new" / "t.db")
    run = here.run("first").id
    assert there.run_ids() == [run]
    assert there.calls(run) == here.calls(run)
    assert there.row(run) == here.row(run)
    assert [n.key for n in there.each_node()] == [n.key for n in here.each_node()]
    assert there.tags() == here.tags()
    both = ("s.db", tmp_path / "new" / "t.db")
    shown = [json.loads(line("show", "first", "--json", "--store", p, folder=clean).stdout) for p in both]
    left = [a for a in shown[1][0]["annotations"] if a["params"].startswith("left-out-")]
    assert len(left) == 1, "what was left out is noted, and is all that differs"
    shown[1][0]["annotations"].remove(left[0])
    assert shown[0] == shown[1]
    plain = [line("show", "first", "--store", p, folder=clean).stdout for p in both]
    assert plain[0] == plain[1]
    assert len(plain[0]) > 100
    assert "1 runs, no faults" in line("store", "verify", "--store", "new/t.db", folder=tmp_path).stdout
    again = line("import", clean / "bug.clew", "--store", "new/t.db", folder=tmp_path).stdout
    assert "nothing new" in again


def test_the_files_come_back_without_those_that_held_a_credential(clean, tmp_path):
    line("import", clean / "bug.clew", "--store", "t.db", folder=tmp_path)
    rows = json.loads(line("checkout", "first", "--json", "--store", "t.db", folder=tmp_path).stdout)
    assert rows == json.loads(line("checkout", "first", "--json", "--store", "s.db", folder=clean).stdout)
    done = line("checkout", f"first@{rows[2]['call']}", "back", "--store", "t.db", folder=tmp_path)
    assert (tmp_path / "back" / "new.py").read_text() == "two"
    assert (tmp_path / "back" / "given.txt").read_text() == "given"
    assert not (tmp_path / "back" / ".env").exists()
    assert ".env" in done.stderr
    line("import", clean / "bug.clew", "--store", "s.db", folder=clean)
    whole = line("checkout", "first", tmp_path / "whole", "--store", "s.db", folder=clean)
    assert (tmp_path / "whole" / ".env").read_text() == f"OPENAI_API_KEY={KEY}\n", "what a shelf has stays there"
    assert "left out" not in whole.stderr


@pytest.mark.whole
def test_it_is_replayed_and_forked_elsewhere(clean, tmp_path):
    line("import", clean / "bug.clew", "--store", "t.db", folder=tmp_path)
    store = open_store(tmp_path / "t.db")
    run = store.run("first")
    program = ("--store", "t.db", "--", sys.executable, clean / "agent.py")
    line("gateway", "--replay", run.id, *program, folder=tmp_path)
    asks = [call.seq for call in run.calls if call.kind == "ask"]
    line("gateway", "--model", "echo", "--fork", f"{run.id}@{asks[2]}", "--reply", "other", *program, folder=tmp_path)
    fork = store.run(next(iter(store.forks())))
    assert fork.reply(asks[2]).message.text == "other"
    assert fork.calls[: asks[2]] == run.calls[: asks[2]]
    assert store.verify() == []
    line("export", "fork.clew", fork.id, "--store", "t.db", folder=tmp_path)
    told = line("import", "fork.clew", "--store", "u.db", "--json", folder=tmp_path).stdout
    assert json.loads(told)["fork.clew"]["along"] == [run.id]
    line("checkout", f"{fork.id}@{asks[1]}", "then", "--store", "u.db", folder=tmp_path)
    assert (tmp_path / "then" / "new.py").read_text() == "one"


@pytest.mark.whole
def test_a_credential_in_a_message_is_erased_told_and_the_rest_can_be_forked(tmp_path):
    place = recorded(tmp_path / "a", f"the key is {KEY}, use it")
    done = line("export", "bug.clew", "first", "--store", "s.db", folder=place, DB_PASSWORD=SECRET)
    run = open_store(place / "s.db").run("first")
    received = next(c.seq for c in run.calls if KEY in c.text)
    assert "a credential stood in these calls and messages" in done.stderr
    assert f"{run.id}@{received}" in done.stderr
    everything = inside(place / "bug.clew")
    assert KEY.encode() not in everything
    assert SECRET.encode() not in everything
    line("import", "../a/bug.clew", "--store", tmp_path / "b/t.db", folder=place)
    there = open_store(tmp_path / "b" / "t.db")
    assert there.verify() == []
    assert [c.key for c in there.calls(run.id)] == [c.key for c in run.calls]
    assert [c.done for c in there.calls(run.id)] == [c.done for c in run.calls]
    rows = json.loads(line("checkout", "first", "--json", "--store", "t.db", folder=tmp_path / "b").stdout)
    assert len(rows) == 4, "the files of a request that is erased are not found by its call"
    program = ("--store", "t.db", "--", sys.executable, place / "agent.py", f"the key is {KEY}, use it")
    told = line("gateway", "--replay", run.id, *program, folder=tmp_path / "b", code=2).stderr
    assert f"call {received} of run {run.id} was redacted" in told
    before = [c.seq for c in run.calls if c.kind == "ask" and c.seq < received][-1]
    line("gateway", "--model", "echo", "--fork", f"{run.id}@{before}", *program, folder=tmp_path / "b")
    assert there.verify() == []
    line("import", "bug.clew", "--store", "s.db", folder=place)
    kept = open_store(place / "s.db")
    assert KEY in kept.calls(run.id)[received].text, "what a store holds is not erased by a file"
    assert kept.tombstones() == {}
    assert kept.verify() == []


def test_what_does_not_fit_is_refused_in_a_sentence(clean, tmp_path):
    (tmp_path / "no.clew").write_text("no zip")
    assert "no.clew is no portable run" in line("import", "no.clew", folder=tmp_path, code=2).stderr
    assert "gone.clew" in line("import", "gone.clew", folder=tmp_path, code=2).stderr
    mixed = line("import", "no.clew", "x.jsonl", folder=tmp_path, code=2).stderr
    assert "portable runs are taken as they are" in mixed
    said = line("export", "x.jsonl", "first", "--no-files", "--store", "s.db", folder=clean, code=2).stderr
    assert "--no-files is of portable runs" in said
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "s.db").write_bytes((clean / "s.db").read_bytes())
    assert "the shelf lacks files" in line("export", "x.clew", "first", "--store", "s.db", folder=alone, code=2).stderr
    assert not (alone / "x.clew").exists()
    line("export", "x.clew", "first", "--store", "s.db", "--no-files", folder=alone)
    line("import", "x.clew", "--store", "t.db", folder=alone)
    assert "recorded without its files" in line("checkout", "first", "--store", "t.db", folder=alone, code=2).stderr


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_a_run_in_a_workspace_goes_elsewhere_with_its_files(clew, tmp_path):
    Path("project").mkdir()
    Path("project/a.py").write_text("one")
    Path("project/key.env").write_text("sk-ant-api03-" + "Ab1" * 30)
    Path("coder.py").write_text(
        "from clew.models.fakes import Scripted, tool_call\n"
        "class Model(Scripted):\n"
        "    def __init__(self):\n"
        "        super().__init__([tool_call('bash', command='echo two > a.py'), 'done'])\n"
    )
    clew("run", "coder", "--world", "workspace(folder='project')", "--task", "write", "--model", "coder.py:Model")
    with open_store(".clew/store.db") as store:
        (run,) = store.find("")
    line = ("run", "coder", "--world", "workspace(folder='project')", "--task", "write", "--model", "coder.py:Model")
    elsewhere = ("run", "coder", "--world", "workspace(folder='project',shelf='shelf')", *line[4:])
    assert "is not beside the store" in clew(*elsewhere, "--store", "other/s.db", code=2).output
    clew(*line, "--store", "other/s.db")
    with open_store("other/s.db") as store:
        (other,) = store.find("")
    clew("checkout", other, "there-too", "--store", "other/s.db")
    assert Path("there-too/a.py").read_text() == "two\n"
    said = clew("export", "bug.clew", run).output
    assert "key.env" in said
    Path("there").mkdir()
    clew("import", "bug.clew", "--store", "there/s.db")
    assert "no fault" in clew("store", "verify", "--store", "there/s.db").output
    told = clew("checkout", run, "back", "--store", "there/s.db").output
    assert Path("back/a.py").read_text() == "two\n"
    assert not Path("back/key.env").exists()
    assert "key.env" in told
    clew("export", "bare.clew", run, "--no-files")
    Path("bare").mkdir()
    clew("import", "bare.clew", "--store", "bare/s.db")
    assert clew("show", run, "--store", "bare/s.db").output == clew("show", run).output

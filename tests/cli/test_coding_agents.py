"""A small program in the ways of published coding agents, recorded, forked and replayed in its files and its home."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clew.cli.shared.own_folder import in_own_folder
from clew.store import Run, open_store

KEY = "sk-ant-" + "a1b2c3d4" * 5
AGENT = """
import datetime, json, os, subprocess, sys, tempfile, urllib.error, urllib.request, uuid
from pathlib import Path

home = Path.home()
settings = json.loads((home / ".agent" / "settings.json").read_text()) if (home / ".agent").is_dir() else {}
device = settings.setdefault("device", uuid.uuid4().hex)
(home / ".agent").mkdir(exist_ok=True)
(home / ".agent" / "settings.json").write_text(json.dumps(settings))
(home / ".agent" / (str(uuid.uuid4()) + ".jsonl")).write_text("a session")
log = Path(".aider.chat.history.md")
now = datetime.datetime.now()
log.write_text((log.read_text() if log.exists() else "") + "started " + now.isoformat() + chr(10))
os.environ.get("LATE") and Path("late.txt").write_text("late")
prompt = f"You work in {os.getcwd()} for {device}, at home in {home}. Today's date is {now:%Y-%m-%d}." + os.environ.get("MORE", "")
messages = [{"role": "system", "content": prompt}, {"role": "user", "content": "msg_" + str(uuid.uuid4()) + " do it"}]

def ask():
    body = json.dumps({"model": "any", "messages": messages, "user": uuid.uuid4().hex}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                     {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    while True:
        try:
            reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            print("refused", error.code, json.load(error)["error"]["message"], file=sys.stderr)
            if os.environ.get("STUBBORN"):
                continue
            sys.exit(7)
        messages.append(reply)
        return reply["content"]

def tool(command):
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    output = json.dumps({"returncode": done.returncode, "output": done.stdout + done.stderr})
    messages.append({"role": "tool", "tool_call_id": "c", "content": output})

ask()
Path("count.txt").write_text("1")
tool("ls -la; mktemp -d; cat count.txt")
said = ask()
if os.environ.get("EARLY"):
    sys.exit(0)
Path("said.txt").write_text(said)
tool("git init -q . ; git add count.txt; git -c user.name=a -c user.email=b commit -qm one; git rev-parse HEAD; false")
ask()
"""  # noqa: E501


def line(*words: object, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", "import clew.cli; clew.cli.main()", *map(str, words)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")} | more
    return subprocess.run(start, capture_output=True, text=True, timeout=120, cwd=folder, env=env)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("agent")
    if subprocess.run(in_own_folder(made, ["true"]), capture_output=True, check=False).returncode:
        pytest.skip("did not run: no folder can be mounted here")
    work, home = made / "work", made / "settings"
    work.mkdir()
    (made / "agent.py").write_text(AGENT)
    (work / "given.txt").write_text("given")
    (home / ".agent").mkdir(parents=True)
    (home / ".agent" / "settings.json").write_text('{"device": "d00d"}')
    (home / ".agent" / ".credentials.json").write_text('{"pass": "word"}')
    (home / ".agent" / "notes.txt").write_text(f"remember {KEY}")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_ed25519").write_text("secret")
    os.symlink("settings.json", home / ".agent" / "link.json")
    words = ("--workspace", ".", "--home", "../settings", "--model", "echo", "--name", "first", "--store", "../s.db")
    done = line("gateway", *words, "--", sys.executable, "../agent.py", folder=work, SOME_VALUE="x" + KEY[7:])
    assert done.returncode == 0, done.stderr
    told = "left out of the program's home, which is recorded, for a credential: "
    assert f"{told}.agent/.credentials.json, .agent/notes.txt, .ssh/" in done.stderr
    assert "again-" in done.stdout
    return made


AGAIN = ("gateway", "--replay", "first", "--store", "../s.db", "--into")


def test_a_run_has_a_home_of_its_own_without_credentials(place: Path) -> None:
    home = (place / "s.db.homes" / "first").resolve()
    assert len(list((place / "settings" / ".agent").iterdir())) == 4, "what was given is left as it is"
    assert len(list((home / "home" / ".agent").glob("*.jsonl"))) == 1
    store = open_store(place / "s.db")
    run = Run(store, store.find("tag:first")[0])
    prompt = store.thread(next(c for c in run.calls if c.kind == "ask").node_in)[0].message.text
    assert f"for d00d, at home in {home}/home." in prompt
    begun = next(row.data for row in store.annotations([run.id], "files") if row.params == "begin")
    facts = json.loads(begun)["facts"]
    assert {"SOME_VALUE", "PATH"} <= set(facts["variables"])
    assert facts["system"].startswith(os.uname().sysname)
    assert "day" in facts
    store.close()
    secrets = [b"a1b2c3d4", b'{"pass": "word"}', b"secret"]
    kept = [path.read_bytes() for path in place.glob("files/**/*") if path.is_file()] + [(place / "s.db").read_bytes()]
    assert any(b"d00d" in data for data in kept)
    assert not any(secret in data for secret in secrets for data in kept)


def test_a_replay_begins_in_its_files_and_its_home_and_says_what_it_left_out(place: Path) -> None:
    done = line(
        *AGAIN, "../again", "--", sys.executable, "../agent.py", folder=place / "work", TZ="Etc/GMT+12", NEW="1"
    )
    assert done.returncode == 0, done.stderr
    for where in ("request 0", "request 1", "request 2", "the end"):
        assert f"{where}: equal files" in done.stderr  # though the log that it keeps of itself holds another time
    told = next(row for row in done.stderr.splitlines() if "left out of the comparison" in row)
    for name in ("codex: item (3)", "field user (3)", "ls: the folder above", "temporary name"):
        assert name in told
    assert "all 3 recorded requests were made again" in done.stderr
    assert "note: variables that were set then and are not now: SOME_VALUE" in done.stderr
    assert "note: variables that are set now and were not then: NEW" in done.stderr
    log = ".aider.chat.history.md"
    assert (place / "again" / log).read_text() != (place / "work" / log).read_text()


def test_to_the_letter_it_is_stopped_with_the_field_and_both_values(place: Path) -> None:
    words = (*AGAIN, "../exact", "--match", "exact", "--", sys.executable, "../agent.py")
    done = line(*words, folder=place / "work")
    assert done.returncode == 7
    assert "refused 404 " in done.stderr
    told = [row for row in done.stderr.splitlines() if "is not among those recorded" in row]
    assert "messages[1].text: " in told[-1]
    assert " instead of " in told[-1]
    assert "request 0 of the 3 recorded was not made again" in done.stderr


def test_what_no_mask_knows_is_taken_by_its_place_and_told(place: Path, tmp_path: Path) -> None:
    start = ("--", "env", "MORE= It rains", sys.executable, "../agent.py")
    stopped = line(*AGAIN, tmp_path / "stopped", *start, folder=place / "work")
    assert stopped.returncode == 7
    assert "It rains" in stopped.stderr
    done = line(*AGAIN, tmp_path / "again", "--match", "position", *start, folder=place / "work")
    assert done.returncode == 0, done.stderr
    told = [
        row for row in done.stderr.splitlines() if "differs, and is answered for its place: messages[0].text: " in row
    ]
    assert len(told) == 3
    assert all("It rains" in row for row in told)
    assert "the end: equal files" in done.stderr


@pytest.mark.whole
def test_a_mask_is_kept_with_its_run(place: Path, tmp_path: Path) -> None:
    words = (
        "--workspace",
        ".",
        "--model",
        "echo",
        "--name",
        "sunny",
        "--store",
        tmp_path / "s.db",
        "--mask",
        "It \\w+s",
    )
    start = (sys.executable, place / "agent.py")
    (tmp_path / "work").mkdir()
    home = {"HOME": str(place / "s.db.homes" / "first" / "home")}
    done = line("gateway", *words, "--", "env", "MORE= It shines", *start, folder=tmp_path / "work", **home)
    assert done.returncode == 0, done.stderr
    again = ("gateway", "--replay", "sunny", "--store", tmp_path / "s.db", "--into", tmp_path / "again")
    done = line(*again, "--", "env", "MORE= It rains", *start, folder=tmp_path / "work", **home)
    assert done.returncode == 0, done.stderr
    assert "own It \\w+s (3)" in done.stderr


@pytest.mark.whole
def test_a_fork_takes_another_way_from_the_same_beginning(place: Path, tmp_path: Path) -> None:
    known = json.loads(line("show", "first", "--json", "--store", "s.db", folder=place).stdout)[0]["calls"]
    at = [call["seq"] for call in known if call["kind"] == "ask"][1]
    words = (
        "gateway",
        "--fork",
        f"first@{at}",
        "--reply",
        "another",
        "--store",
        "s.db",
        "--into",
        tmp_path / "branches",
    )
    done = line(*words, "-n", 2, "--", sys.executable, place / "agent.py", folder=place)
    assert done.returncode == 0, done.stderr
    branches = sorted((tmp_path / "branches").iterdir())
    assert [(b / "said.txt").read_text() for b in branches] == ["another"] * 2
    assert done.stderr.count("request 1: equal files") == 2
    assert done.stderr.count("all 2 recorded requests were made again") == 2
    for branch in branches:
        assert (place / "s.db.homes" / branch.name / "home" / ".agent" / "settings.json").is_file()
    store = open_store(place / "s.db")
    calls = Run(store, branches[0].name).calls
    told = [json.loads(c.text) for c in calls if c.kind == "note" and c.action == "masked"]
    assert told[0]["masks"]["codex: item"] == 1
    assert not [c for c in calls if c.kind == "note" and c.action == "drift"]
    assert not store.verify()
    store.close()
    rows = json.loads(line("checkout", branches[0].name, "--json", "--store", "s.db", folder=place).stdout)
    assert [row["exits"] for row in rows] == [[], [0], [1], []]
    table = line("checkout", branches[0].name, "--store", "s.db", folder=place).stdout
    assert "exit" in table.splitlines()[0]


@pytest.mark.whole
def test_a_program_that_asks_on_after_it_was_refused_is_ended(place: Path, tmp_path: Path) -> None:
    start = ("--", "env", "MORE=other", "STUBBORN=1", sys.executable, "../agent.py")
    done = line(*AGAIN, tmp_path / "again", *start, folder=place / "work")
    assert done.returncode not in (0, 7)
    assert "asks on after it left the recorded course, and is ended" in done.stderr
    assert done.stderr.count("run first: the program's request is not") <= 1


def test_a_program_that_asks_less_is_told(place: Path, tmp_path: Path) -> None:
    done = line(
        *AGAIN, tmp_path / "again", "--", "env", "EARLY=1", sys.executable, "../agent.py", folder=place / "work"
    )
    assert done.returncode == 1
    assert "request 2 of the 3 recorded was not made again" in done.stderr
    assert re.search("^the end: said.txt and [0-9]+ more differ from the recorded files$", done.stderr, re.MULTILINE)


def test_files_that_the_program_makes_otherwise_are_named(place: Path, tmp_path: Path) -> None:
    done = line(*AGAIN, tmp_path / "again", "--", "env", "LATE=1", sys.executable, "../agent.py", folder=place / "work")
    assert "request 0: late.txt differs from the recorded files" in done.stderr
    assert done.returncode == 7, "what it lists next holds the file, too"


def test_without_its_files_a_run_says_that_it_had_a_home(place: Path) -> None:
    done = line(*AGAIN[:-1], "--", "true", folder=place / "work")
    assert "the run had a home of its own, which comes back with --into FOLDER" in done.stderr


def test_a_home_that_is_gone_is_named_with_what_makes_it(place: Path, tmp_path: Path) -> None:
    moved = place / "s.db.homes" / "moved"
    os.rename(place / "s.db.homes" / "first", moved)
    try:
        done = line(*AGAIN, tmp_path / "again", "--", sys.executable, "../agent.py", folder=place / "work")
    finally:
        os.rename(moved, place / "s.db.homes" / "first")
    assert done.returncode == 2
    assert f"mkdir -p {place.resolve()}/s.db.homes/first" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--home", "fresh", "--", "true"), "--home is of a PROGRAM whose files are kept"),
        (("--workspace", ".", "--home", "fresh"), "--home is of a PROGRAM whose files are kept"),
        (("--workspace", ".", "--home", "missing", "--", "true"), "--home missing is no folder"),
        (("--workspace", ".", "--home", "HOME", "--", "true"), "is a root or your own home, which would be recorded"),
        (("--workspace", ".", "--home", "/", "--", "true"), "is a root or your own home"),
        (("--match", "position", "--", "true"), "--match is of a fork or a replay"),
        (("--replay", "first", "--mask", "(", "--", "true"), "is no regular expression"),
        (("--replay", "first", "--mask", "x*", "--", "true"), "fits the empty text"),
    ],
)
def test_options_that_do_not_go_together_are_named(place: Path, words: tuple[str, ...], told: str) -> None:
    given = [str(place / "settings") if word == "HOME" else word for word in words]
    done = line(
        "gateway", "--store", "../s.db", "--model", "echo", *given, folder=place / "work", HOME=str(place / "settings")
    )
    assert done.returncode == 2
    assert told in done.stderr


def test_a_home_that_is_too_large_is_refused(place: Path, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.mkdir()
    with (large / "cache.bin").open("wb") as file:
        file.truncate(65 << 20)
    words = ("--workspace", ".", "--home", large, "--model", "echo", "--store", tmp_path / "s.db", "--", "true")
    done = line("gateway", *words, folder=place / "work")
    assert done.returncode == 2
    assert "a file of more than 64 MiB" in done.stderr
    assert "--home fresh" in done.stderr

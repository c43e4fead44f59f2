"""clew gateway around a real program in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clew.store import Run, open_store

PROGRAM = """
import json, os, sys, urllib.request
messages = [{"role": "user", "content": "say a number"}]
for turn in range(3):
    body = json.dumps({"model": "any", "messages": messages, "max_tokens": 5}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                     {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages += [reply, {"role": "user", "content": "and another"}]
    print(json.dumps(reply["content"]))
sys.exit(3)
"""


def clew(*words: str, store: Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", "import clew.cli; clew.cli.main()", *words[:1], "--store", str(store), *words[1:]]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=folder)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str, list[str]]:
    folder = tmp_path_factory.mktemp("gateway")
    script = folder / "agent.py"
    script.write_text(PROGRAM)
    made = clew(
        "gateway",
        "--model",
        "markov(tokens=True)",
        "--name",
        "first",
        "--",
        sys.executable,
        str(script),
        store=folder / "s.db",
    )
    assert made.returncode == 3, made.stderr  # the program's own exit code
    store = open_store(folder / "s.db")
    (run,) = store.find("tag:first")
    return folder / "s.db", script, run, made.stdout.splitlines()


def test_a_program_is_started_recorded_and_named(recorded: tuple[Path, Path, str, list[str]]) -> None:
    path, _, run, said = recorded
    view = Run(open_store(path), run)
    replies = [view.store.node(c.node_out).message.text for c in view.calls if c.kind == "ask"]
    assert [json.loads(line) for line in said] == replies
    assert len(replies) == 3
    assert view.stop == "program_failed"
    assert view.calls[-1].error == "the program ended with exit status 3"
    assert "the program ended with exit status 3" in clew("show", run, store=path).stdout
    assert "program_failed" in clew("log", store=path).stdout
    assert all(c.logprobs is not None and view.store.node(c.node_out).ids for c in view.calls if c.kind == "ask")


def test_its_record_answers_the_program_again(recorded: tuple[Path, Path, str, list[str]]) -> None:
    path, script, run, said = recorded
    again = clew("gateway", "--replay", run, "--", sys.executable, str(script), store=path)
    assert again.returncode == 3, again.stderr
    assert again.stdout.splitlines() == said
    assert open_store(path).find("") == [run]
    assert clew("replay", run, store=path).returncode == 0


def test_forks_restart_the_program_and_part_at_the_call(recorded: tuple[Path, Path, str, list[str]]) -> None:
    path, script, run, said = recorded
    second = [c.seq for c in Run(open_store(path), run).calls if c.kind == "ask"][1]
    words = ("--fork", f"{run}@{second}", "-n", "2", "--one-folder", "--", sys.executable, str(script))
    forked = clew("gateway", *words, store=path)
    assert forked.returncode == 3, forked.stderr
    store = open_store(path)
    forks = [Run(store, r) for r in store.find("") if store.row(r).parent]
    assert len(forks) == 2
    for fork in forks:
        replies = [store.node(c.node_out).message.text for c in fork.calls if c.kind == "ask"]
        assert json.dumps(replies[0]) == said[0]
        assert len(replies) == 3
        assert (fork.stop, fork.calls[-1].error) == ("program_failed", "the program ended with exit status 3")
    assert not store.verify()


EDITOR = """
import json, os, sys, urllib.request
from pathlib import Path
place = Path("FOLDER") / "counts.txt"
place.write_text(place.read_text() + "started\\n")
messages = [{"role": "user", "content": "edit"}]
for turn in range(2):
    body = json.dumps({"model": "any", "messages": messages, "max_tokens": 5}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                     {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    for call in reply.get("tool_calls") or ():
        place.write_text(place.read_text() + call["function"]["name"] + call["function"]["arguments"] + "\\n")
    messages += [reply, {"role": "user", "content": "go on"}]
place.write_text(place.read_text() + os.environ["CLEW_RUN"] + "\\n")
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0
    and subprocess.run(["unshare", "--mount", "--map-current-user", "true"], capture_output=True).returncode != 0,
    reason="did not run: no user namespaces here",
)
def test_two_forks_work_each_in_a_folder_of_its_own_at_the_recorded_place(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "counts.txt").write_text("")
    (folder / "agent.py").write_text(EDITOR.replace("FOLDER", str(folder)))
    path = folder / ".clew" / "s.db"
    path.parent.mkdir()
    start = ("--", sys.executable, "agent.py")
    made = clew("gateway", "--model", "echo", "--name", "first", *start, store=path, folder=folder)
    assert made.returncode == 0, made.stderr
    before = (folder / "counts.txt").read_text()
    (run,) = open_store(path).find("tag:first")
    first = next(c.seq for c in Run(open_store(path), run).calls if c.kind == "ask")
    forked = clew("gateway", "--fork", f"first@{first}", "-n", "2", *start, store=path, folder=folder)
    assert forked.returncode == 0, forked.stderr
    assert (folder / "counts.txt").read_text() == before, "the folder itself is as it was"
    copies = sorted((folder / ".clew" / "s.db.forks").iterdir())
    assert len(copies) == 2
    for copy in copies:
        assert (copy / "counts.txt").read_text() == f"{before}started\n{copy.name}\n"
        assert not (copy / ".clew" / "s.db").exists()


def test_a_fork_gets_a_tool_call_and_its_run_is_named_by_a_prefix_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "counts.txt").write_text("")
    (tmp_path / "agent.py").write_text(EDITOR.replace("FOLDER", str(tmp_path)))
    path, start = tmp_path / "s.db", ("--", sys.executable, "agent.py")
    made = clew("gateway", "--model", "echo", "--name", "first", *start, store=path, folder=tmp_path)
    assert made.returncode == 0, made.stderr
    (run,) = open_store(path).find("tag:first")
    first = next(c.seq for c in Run(open_store(path), run).calls if c.kind == "ask")
    reply = json.dumps({"tool_calls": [{"function": {"name": "shell", "arguments": '{"do": "ls"}'}}]})
    words = ("--fork", f"{run[:6]}@{first}", "--reply-json", reply)
    forked = clew("gateway", *words, *start, store=path, folder=tmp_path)
    assert forked.returncode == 0, forked.stderr
    assert 'shell{"do": "ls"}' in (tmp_path / "counts.txt").read_text()
    for name in (run[:6], "first"):
        again = clew("gateway", "--replay", name, *start, store=path, folder=tmp_path)
        assert again.returncode == 0, again.stderr
    wrong = clew("gateway", "--fork", f"{run}@{first}", "--reply-json", '{"tool_calls": [3]}', *start, store=path)
    assert wrong.returncode == 2
    assert "--reply-json is no chat message" in wrong.stderr
    nowhere = clew("gateway", "--fork", run, *start, store=path)
    assert "Write RUN@CALL" in nowhere.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--replay", "nothing", "--", "true"), "nothing"),
        (("--host", "0.0.0.0"), "there is no token"),
        (("--name", "a", "--replay", "b", "--", "true"), "exclude each other"),
        (("--model", "echo", "--", "no-such-program"), "cannot be started"),
        (("--model", "echo", "--upstream", "http://x/v1"), "exclude each other"),
    ],
)
def test_bad_input(recorded: tuple[Path, Path, str, list[str]], words: tuple[str, ...], told: str) -> None:
    found = clew("gateway", *words, store=recorded[0])
    assert found.returncode == 2, found.stderr
    assert told in found.stderr
    assert "Traceback" not in found.stderr

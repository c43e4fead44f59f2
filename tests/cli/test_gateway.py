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


def clew(*words: str, store: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", "import clew.cli; clew.cli.main()", *words[:1], "--store", str(store), *words[1:]]
    return subprocess.run(line, capture_output=True, text=True, timeout=120)


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
    assert view.stop == "returned"
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
    words = ("--fork", f"{run}@{second}", "-n", "2", "--", sys.executable, str(script))
    forked = clew("gateway", *words, store=path)
    assert forked.returncode == 3, forked.stderr
    store = open_store(path)
    forks = [Run(store, r) for r in store.find("") if store.row(r).parent]
    assert len(forks) == 2
    for fork in forks:
        replies = [store.node(c.node_out).message.text for c in fork.calls if c.kind == "ask"]
        assert json.dumps(replies[0]) == said[0]
        assert len(replies) == 3
    assert not store.verify()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--replay", "nothing", "--", "true"), "nothing"),
        (("--host", "0.0.0.0"), "there is no token"),
        (("--name", "a", "--replay", "b"), "exclude each other"),
        (("--model", "echo", "--", "no-such-program"), "cannot be started"),
        (("--model", "echo", "--upstream", "http://x/v1"), "exclude each other"),
    ],
)
def test_bad_input(recorded: tuple[Path, Path, str, list[str]], words: tuple[str, ...], told: str) -> None:
    found = clew("gateway", *words, store=recorded[0])
    assert found.returncode == 2, found.stderr
    assert told in found.stderr
    assert "Traceback" not in found.stderr

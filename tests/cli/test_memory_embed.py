"""Vectors on the command line: made with their cost told first, used by the verbs that recall, done without."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from clew.harness.memory import Memory
from clew.harness.memory.recalled import ranked_in, shown_in
from clew.store import Run, open_store
from tests.cli.shell import printed
from tests.models.server import failing, serving
from tests.serve.meanings import answered

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")

PROGRAM = """
import json, os, urllib.request
messages = [{"role": "user", "content": "settle the bill"}]
for turn in range(2):
    body = json.dumps({"model": "any", "messages": messages}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    asked = urllib.request.Request(url, body, {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    messages += [json.load(urllib.request.urlopen(asked))["choices"][0]["message"], {"role": "user", "content": "more"}]
"""


@pytest.fixture(scope="module")
def served():
    with serving(("embeddings",)) as peer:
        yield peer


@pytest.fixture
def peer(served, monkeypatch):
    served.bodies.clear()
    served.headers.clear()
    served.answer = lambda body, count: answered(body)
    monkeypatch.setenv("CLEW_API_KEY", "sk-of-the-environment")
    return served


@pytest.fixture
def path(tmp_path) -> Path:
    with open_store(tmp_path / "runs.db") as store:
        for text in ("pay an invoice only once", "whales sing", "the bakery opens at six"):
            Memory(store, "shop").add("fact", {"text": text}, by="ann")
    return tmp_path / "runs.db"


def sent(peer) -> list[str]:
    return [text for body in peer.bodies for text in body["input"]]


def test_vectors_are_made_once_and_anew_where_that_is_asked_for(clew, peer, path):
    line = ("memory", "embed", "shop", f"{peer.url}#m", "--store", path)
    dry = clew(*line, "--dry").output
    assert "3 items of memory shop have no vector" in dry
    assert "tokens" in dry
    assert peer.bodies == []
    done = clew(*line)
    assert "3 vectors made; 3 tokens counted there" in done.output
    assert peer.headers[0]["authorization"] == "Bearer sk-of-the-environment"
    assert len(sent(peer)) == 3
    for next_line in printed(done.output):
        assert shlex.split(next_line)[1] == "run"
        assert "--embed" in next_line
    assert "0 vectors made" in clew(*line).output
    assert len(sent(peer)) == 3
    assert json.loads(clew(*line, "--again", "--json").stdout) == {"made": 3, "refused": 0, "tokens": 3}
    assert len(sent(peer)) == 6
    peer.say(failing(404, "no such model"))
    refused = clew("memory", "embed", "shop", f"{peer.url}#other", "--store", path)
    assert "0 vectors made, 3 were refused" in refused.output


def test_a_run_with_a_memory_ranks_by_vectors(clew, peer, path):
    line = ("run", "--world", "household(rooms=2,steps=1)", "--tasks", "1", "--model", "echo", "--store", path)
    first = clew(*line, "--memory", "shop", "--embed", f"{peer.url}#m")
    assert "3 items of memory shop have no vector" in first.stderr
    second = clew(*line, "--memory", "shop", "--embed", f"{peer.url}#m")
    assert "no vector" not in second.stderr
    assert [sent(peer).count(text) for text in ("pay an invoice only once", "whales sing")] == [1, 1]
    peer.say(failing(401, "a wrong key"))
    failed = clew(*line, "--memory", "shop", "--embed", f"{peer.url}#other")
    assert "3 of 3 items are ranked by their words alone" in failed.stderr
    with open_store(path) as store:
        told = [[(call.kind, call.text) for call in run.calls] for run in reversed(store.runs())]
        ranked = [[ranked_in(text)["by"] for kind, text in calls if kind == "recall"] for calls in told]
        assert ranked == [["words and vectors"], ["words and vectors"], ["words"]]
        noted = [[json.loads(text)["why"] for kind, text in calls if kind == "note"] for calls in told]
        assert noted[:2] == [[], []]
        assert "a wrong key" in noted[2][0]
        assert "sk-of-the-environment" not in str(told)


def test_the_line_that_starts_a_program_again_without_the_memory(clew, peer, path, tmp_path):
    (tmp_path / "agent.py").write_text(PROGRAM)
    start = ("--", sys.executable, str(tmp_path / "agent.py"))
    line = ("gateway", "--model", "echo", "--memory", "shop", "--embed", f"{peer.url}#m", "--name", "first")
    made = clew(*line, "--store", path, *start)
    (again,) = [one for one in printed(made.stdout) if "--without-memory" in one]
    asked = len(peer.bodies)
    clew(*shlex.split(again)[1:])
    assert len(peer.bodies) == asked, "a fork asks no endpoint"
    with open_store(path) as store:
        fork, run = store.runs()
        recall = next(call.seq for call in run.calls if call.kind == "recall")
        asking = [call.seq for call in run.calls if call.kind == "act" and call.seq < recall]
        assert str(fork.parent) == f"{run.id}@{asking[-1]}", "the program's request is made anew, and sent as it is now"
        assert [len(given(one)) for one in (run, fork)] == [3, 0]
        assert "pay an invoice" in str(said(run))
        assert "pay an invoice" not in str(said(fork))
        assert len(said(fork)) == len(said(run)) - 1, "all but the block"
        item = Memory(store, "shop").item(given(run)[0])
        other = given(run)[1]
    # one item by name, from the line of its page
    shown = clew("memory", "show", "shop", item.id, "--store", path).output
    (of_item,) = [one for one in printed(shown) if "--without-memory" in one]
    assert of_item.endswith(" -- PROGRAM")
    words = shlex.split(of_item)[1:-2]
    clew(*words, *start)
    with open_store(path) as store:
        assert given(store.runs()[0]) == [one for one in given(run_of(store, "first")) if one != item.id]
    # `clew fork` names the line
    wrong = clew("fork", "first", "--without-memory", other, "--store", path, code=2)
    told = " ".join(wrong.stderr.split())
    assert "starts that program again" in told
    assert f"clew gateway --fork {run.id} --without-memory {other} --store {path} -- PROGRAM" in told


def given(run: Run) -> list[str]:
    return [item.id for call in run.calls if call.kind == "recall" for item in shown_in(call.text)]


def said(run: Run) -> list[str]:
    return [node.message.text for node in run.conversation() if node.message.role in ("system", "user")]


def run_of(store, name: str) -> Run:
    (run,) = [one for one in store.runs(f"tag:{name}") if not one.parent]
    return run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("memory", "embed", "shop", "small"), "'small' names no embedding model"),
        (("memory", "embed", "none", "http://localhost:1/v1#m"), "holds no items"),
        (("run", "--memory", "shop", "--embed", "http://u:pw@h/v1"), "names no embedding model"),
        (("memory", "mcp", "shop", "--embed", "http://h/v1"), "names no embedding model"),
        (("gateway", "--embed", "http://h/v1#m", "--", "true"), "Name one with --memory"),
        (("gateway", "--without-memory", "all", "--", "true"), "Name the run with --fork"),
    ],
)
def test_bad_input(clew, path, words, told):
    verb, rest = (words[:2], words[2:]) if words[0] == "memory" else (words[:1], words[1:])
    done = clew(*verb, "--store", path, *rest, code=2)
    assert told in done.output
    assert "pw" not in done.output
    assert "Traceback" not in done.output

"""clew memory: items are listed, shown, written, taken elsewhere, deleted; each line it prints runs as printed."""

from __future__ import annotations

import json
import shlex

import pytest

from clew.harness import Runner
from clew.harness.memory import Memory
from clew.models.fakes import Echo
from clew.store import open_store
from tests.cli.shell import printed

ATTACK = "\x1b[31mred‮\x07"
AGENT = """
async def agent(run):
    chat = run.chat()
    found = await run.memory("shop").recall(run.task.prompt)
    chat.say("user", f"{found.text}\\n{run.task.prompt}")
    await chat.ask()
"""


@pytest.fixture
def say(clew, store):
    return lambda *args, **more: clew("memory", *args, "--store", store, **more)


@pytest.fixture
def told(say):
    return lambda *args, **more: json.loads(say(*args, "--json", **more).stdout)


def test_a_memory_from_its_first_item_to_its_last(clew, say, told, store, tmp_path):
    assert "begins one: clew memory add NAME" in say("list").output
    with open_store(store) as opened:
        run = opened.find()[0]
    fact = told("add", "shop", "--kind", "fact", "--text", f"opens at six {ATTACK}", "--from", f"{run[:6]}@1")
    assert fact["provenance"] == [f"{run}@1"]
    out = say(
        "add", "shop", "--kind", "pitfall", "--trigger", "a", "--mistake", "b", "--consequence", "c", "--by", "ann"
    )
    assert [clew(*shlex.split(line)[1:]).exit_code for line in printed(out.output)] == [0]
    new = told("edit", "shop", fact["id"][:6], "--text", "opens at seven", "--why", "it changed", "--by", "bob")
    assert (new["scope"], new["by"], new["provenance"]) == ([], "bob", fact["provenance"])
    shown = say("show", "shop", fact["id"]).output
    assert f"superseded by {new['id']}, it changed" in shown
    assert "red⟨RLO⟩␇" in shown
    assert "success: none judged of the runs that were given it, none judged of the others" in shown
    listed = say("list", "shop", "--state", "active").output
    assert "opens at seven" in listed
    assert "opens at six" not in listed
    for line in (*printed(listed), *printed(say("list").output), *printed(shown)):
        clew(*shlex.split(line)[1:])
    say("export", "shop", "shop.jsonl")
    other = json.loads(clew("memory", "import", "bakery", "shop.jsonl", "--store", "other.db", "--json").output)
    assert other == {"added": 3, "known": 0, "deleted": 0, "copied": 0}
    assert told("retire", "shop", new["id"], "--why", "closed")["state"] == "retired"
    asked = say("delete", "shop", new["id"], code=130, input="n\n").output
    assert "2 items will be deleted" in asked
    assert told("list")["shop"] == {"superseded": 1, "active": 1, "retired": 1}
    gone = say("delete", "shop", new["id"], "--yes").output
    assert "deleted 2 items, erased 0 places" in gone
    for line in printed(gone):
        clew(*shlex.split(line)[1:])
    assert len(told("list", "shop")) == 1
    again = say("import", "shop", "shop.jsonl").output
    assert "0 items added, 1 known before, 2 deleted before and left out" in again, "what was deleted stays deleted"
    copied = say("import", "stall", "shop.jsonl").output
    assert "1 items added, 0 known before, 2 deleted before and left out\n1 of those added have ids" in copied
    assert len(told("list", "stall")) == 1
    assert not any(b"opens at" in file.read_bytes() for file in tmp_path.glob("store.db*"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("add shop --kind fact --text x", "comes from nowhere"),
        ("add shop --kind fact --by ann", "a fact without text"),
        ("add shop --kind fact --text x --fix y --by ann", "has no field 'fix'"),
        ("add shop --kind fact --text x --from nobody@1", "no run is called 'nobody'"),
        ("add 'my shop' --kind fact --text x --by ann", "cannot be a name"),
        ("show shop nobody", "memory shop has no item 'nobody'"),
        ("retire shop nobody", "memory shop has no item 'nobody'"),
        ("delete shop nobody --yes", "memory shop has no item 'nobody'"),
        ("export shop out.jsonl", "memory 'shop' holds no items"),
        ("import shop bad.jsonl", "line 1 is no item: it is no JSON"),
    ],
)
def test_bad_input_is_told_in_a_sentence(say, tmp_path, line, says):
    (tmp_path / "bad.jsonl").write_text("{\n")
    done = say(*shlex.split(line), code=None)
    assert done.exit_code != 0
    assert says in done.output
    assert "--debug" not in done.output


def test_a_run_is_told_what_a_memory_has(clew, say, store, tmp_path):
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "which number has the door", "answer": "seven"}) + "\n")
    line = ("run", "--data", "q.jsonl", "--reward", "exact", "--held-out", 0, "--tasks", 1, "--model", "echo")
    refused = clew(*line, "--memory", "shop", "--store", store, code=2).output
    assert "the store has no memory 'shop'" in refused
    assert "--select chooses among the items of a memory" in clew(*line, "--select", 2, "--store", store, code=2).output
    say("add", "shop", "--kind", "fact", "--text", "The door has number seven.", "--by", "ann")
    clew(*line, "--memory", "shop", "--store", store)
    with open_store(store) as opened:
        run = next(run for run in opened.runs() if run.row.agent.endswith(":remembering"))
        assert "The door has number seven." in run.conversation(0)[0].message.text
        (item,) = Memory(opened, "shop").items()
        assert [given.place for given in item.given] == [f"{run.id}@{run.calls[1].seq}"]


def test_a_fork_without_an_item_and_what_success_says(clew, say, told, tmp_path):
    pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")
    from clew.core.records import Annotation
    from clew.core.values import Task

    (tmp_path / "agent.py").write_text(AGENT)
    item = told("add", "shop", "--kind", "fact", "--text", "the bakery opens at six", "--by", "ann")["id"]
    other = told("add", "shop", "--kind", "fact", "--text", "milk is cheap", "--by", "ann")["id"]
    with open_store(tmp_path / "store.db") as store:
        runner = Runner(f"{tmp_path / 'agent.py'}:agent", None, Echo(), store)
        runs = runner.collect([Task("a", "when does the bakery open"), Task("b", "is milk cheap")], n=2).runs
        for run in runs:
            store.annotate([Annotation("run", "reward", float(run.task_id == "a"), run.id)])
        store.commit()
    shown = say("show", "shop", item).output
    assert "success: 2 of 2 [0.34, 1.00] of the runs that were given it, 0 of 2 [0.00, 0.66] of the others" in shown
    assert "n=4; no causal claim" in shown
    line = next(line for line in printed(shown) if line.startswith("clew fork"))
    forks = json.loads(clew(*shlex.split(line)[1:], "--model", "echo", "--json").output)["forks"]
    assert len(forks) == 1
    run = told("show", "shop", item)["given"][0]["place"].partition("@")[0]
    at = ("--model", "echo", "--json", "--store", tmp_path / "store.db")
    place = json.loads(clew("fork", run, "--without-memory", "all", *at).stdout)
    assert place["at"] == f"{run}@1"
    assert len(told("show", "shop", item)["given"]) == 2, "a fork counts for nothing"
    done = clew("fork", run, "--without-memory", other, "--store", tmp_path / "store.db", code=None)
    assert f"recalled nothing of {other}" in done.output
    gone = told("delete", "shop", item, "--yes")
    assert gone["items"] == [item]
    assert len(gone["erased"]) >= 4
    assert json.loads(clew("store", "verify", "--json", "--store", tmp_path / "store.db").output)["faults"] == []
    assert not any(b"bakery opens at six" in file.read_bytes() for file in tmp_path.glob("store.db*"))

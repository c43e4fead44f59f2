"""What is redacted is in no byte of a store or beside it, stays out, and every reader says so."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode

import pytest

from clew.core.errors import BadInput, ReplayDiverged
from clew.core.records import Annotation, GroupRow, Report
from clew.core.values import Attempt, Inner, Message, Task, ToolSpec
from clew.harness import Runner
from clew.methods.recoveries import trails
from clew.models.fakes import Scripted
from clew.store import MemoryStore, Run
from clew.store.contract.script import SETUP, Script, fork_at
from clew.store.entries import entry
from clew.store.sqlite import SQLiteStore

SECRET = 'Zebra "77" \u00e9'  # quotes and a letter with an accent: JSON has several spellings of it


def everywhere(store) -> tuple[str, str]:
    """A run that says the secret in each place where a store keeps what people write; and a run that does not."""
    script = Script(store, "told", prompt=f"keep {SECRET}")
    picture = json.dumps({"media": [{"type": "image", "data": b64encode(SECRET.encode() * 120).decode()}]})
    script.open("a door", extra=picture)
    script.ask(f"my word is {SECRET}", "yes")
    script.act(json.dumps({"k": SECRET}), f"did {SECRET}", snapshot=store.put_blob(f"state {SECRET}".encode()))
    script.ask("go on", f"so: {SECRET}", inner=(Inner("small", text=SECRET),))
    tool = SETUP._replace(tools=(ToolSpec("look", f"For {SECRET}.", {}),))
    script.put("ask", **{n: getattr(store.calls("told")[3], n) for n in ("node_in", "node_out", "conversation")},
               head=1, forced=2, setup=tool, attempts=(Attempt(1.0, 500, f"no {SECRET}"),), finish="stop")  # fmt: skip
    script.put("note", action="plan", text=json.dumps({"said": SECRET}))
    script.put("end", action="agent_error", text=SECRET, error=f"raised {SECRET}")
    quiet = Script(
        store, "quiet", meta=json.dumps({"import": {"fields": {"from": SECRET}}}), config=json.dumps({"q": SECRET})
    )
    quiet.open("another door")
    quiet.ask("nothing", "at all")
    quiet.end()
    begun = Script(store, "begun")
    begun.open("a third door")
    begun.put("act", action=f"say {SECRET}", done=-1)  # the intent of an act that was never answered
    store.commit()
    store.label("told", by="ann", note=f"it says {SECRET}")
    store.annotate([Annotation("run", "judge", 1.0, "quiet", data=json.dumps({"why": f"of {SECRET}"}))])
    store.put_group(GroupRow("g", "iid", "t", ("told", "quiet"), f"about {SECRET}"))
    store.put_report(Report(claim=f"c {SECRET}", estimate=1, low=0, high=1, n=1, design="d", runs=("told",)))
    store.put_entries([entry("m", "i1", 1.0, "add", {"text": SECRET}), entry("m", "i2", 1.0, "add", {"text": "else"})])
    store.put_entries([entry("m", "i2", 2.0, "selected", {"place": "told@1", "query": SECRET})])
    store.put_blob(f"an orphan {SECRET}".encode())
    store.commit()
    return "told", "quiet"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_text_is_gone_from_every_place(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "a.db")
    told, quiet = everywhere(store)
    assert store.find("text:zebra") == ["begun", told]
    keys = [[call.key for call in store.calls(run)] for run in (told, quiet)]
    core = [b"Zebra"]
    assert sum(store.holding(core).values()) >= 12
    assert store.redact_text(SECRET)
    assert store.holding(core) == {}
    assert store.find("text:zebra") == []
    if kind == "sqlite":
        for file in tmp_path.iterdir():
            assert b"Zebra" not in file.read_bytes(), file.name
    assert store.verify() == []
    assert [[call.key for call in store.calls(run)] for run in (told, quiet)] == keys
    assert [e.item for _, e in store.entries("m") if e.what == "add"] == ["i2"], "an item that says it is deleted"
    assert store.labels()[0].note == "(redacted)"
    assert store.calls(quiet)[1].key
    assert not store.calls(quiet)[1].redacted
    assert store.calls(told)[0].text == "(redacted)"
    assert store.calls(told)[6].action == "agent_error"
    assert Run(store, told).conversation()[0].message == Message("user", "(redacted)", extra='{"redacted":true}')
    assert json.loads(store.row(quiet).meta)["redacted"] == ["config"]
    assert store.redact_text(SECRET) == []


def test_a_short_text_is_refused():
    with pytest.raises(BadInput, match="at least 4"):
        MemoryStore().redact_text("a")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_run_goes_whole_with_its_task_notes_and_forks(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "a.db")
    short, other = Script(store, "r", prompt="Zebra one"), Script(store, "s", prompt="Zebra one")
    for script in (short, other):
        script.open("Zebra two")
        script.ask(f"Zebra {script.run}", f"Zebra reply {script.run}")
        script.put("act", action=json.dumps(["1", "f", '{"k":"Zebra"}']), text="Zebra three", finish="tool")
        script.end()
    fork = fork_at(store, Run(store, "r"), 3)
    fork.ask("and", "Zebra reply r")
    fork.end()
    store.commit()
    store.label("r", by="ann", note="Zebra, in short")
    places = store.redact_runs(["r"])
    assert {"r@0", "r@1", "r@2", "r@3", f"{fork.run}@3"} <= {*places}
    assert store.find("text:zebra") == ["s"]
    assert store.verify() == []
    assert [label.note for label in store.labels()] == ["(redacted)"]
    assert json.loads(store.row("r").task) == {"id": "task-1", "prompt": "(redacted)", "data": {}, "limits": {}}
    store.redact_runs(["s"])
    assert store.holding([b"Zebra"]) == {}
    assert store.verify() == []


@pytest.mark.parametrize("how", ["place", "run", "text"])
def test_merging_an_older_copy_brings_nothing_back(how, tmp_path):
    store, copy = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "b.db")
    script = Script(store, "r", prompt="the Zebra that nobody else may read about")
    script.open()
    script.ask(
        "the Zebra that nobody else may read about",
        "A Zebra.",
    )
    script.act("A Zebra.", "seen", snapshot=store.put_blob(b"Zebra in a snapshot"))
    script.end()
    store.commit()
    copy.merge(store)
    other = Script(copy, "more")
    other.open("news")
    other.end()
    copy.commit()
    if how == "run":
        store.redact_runs(["r"])
    elif how == "text":
        store.redact_text("Zebra")
    else:
        store.redact(store.calls("r")[1].node_in.hex())
        store.redact("r@1")
    store.gc(dry_run=False)  # the run and its content are gone altogether, its tombstones stay
    for _ in range(2):
        taken = store.merge(copy)
        assert taken["messages and calls that stay redacted"] >= 2
        assert store.find("text:zebra") == []
        assert sorted(store.run_ids()) == ["more", "r"]
        assert store.verify() == []
        for file in tmp_path.glob("a.db*"):
            assert b"Zebra" not in file.read_bytes(), file.name
    assert copy.holding([b"Zebra"]), "the other store is left as it is"


def test_what_was_redacted_is_neither_replayed_nor_forked(tmp_path):
    async def agent(run):
        chat = run.chat()
        await chat.ask("Say it.")
        await chat.ask("Once more.")

    store = MemoryStore()
    runner = Runner(agent, None, Scripted(["a Zebra", "no"]), store)
    run = runner.collect([Task("t", "")], n=1).runs[0]
    store.redact(f"{run.id}@1")
    for follow in (lambda: runner.replay(run), lambda: runner.fork(run, 2, reply="x")):
        with pytest.raises(ReplayDiverged, match="was redacted") as raised:
            follow()
        assert "copy of" not in raised.value.remedy
        assert "restore" not in raised.value.remedy
    assert runner.fork(run, 1, reply="again")[0].reply(1).message.text == "again", "before it, it can be forked"
    before = len(store.run_ids())
    with pytest.raises(ReplayDiverged, match="redacted"):
        runner.fork(run, 2, reply="x")
    assert len(store.run_ids()) == before, "nothing is stored of a fork that cannot be made"


KILLED = """
import sys
from clew.store.sqlite import SQLiteStore, database
def killed(self, what):
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
database.Database._scrub = killed
SQLiteStore(sys.argv[1]).redact_text("Zebra")
"""


def test_a_redaction_that_was_killed_is_finished_by_the_next(tmp_path):
    path = tmp_path / "a.db"
    store = SQLiteStore(path)
    everywhere(store)
    store.close()
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == -9
    store = SQLiteStore(path)
    store.redact_text("Zebra")
    for file in tmp_path.iterdir():
        assert b"Zebra" not in file.read_bytes(), file.name
    assert store.verify() == []
    store.close()


def test_a_redacted_run_teaches_nothing():
    store = MemoryStore()
    runs = [Script(store, f"r{number}", task=f"t{number}").play(2, 1.0) for number in range(2)]
    assert [trail.run for trail in trails(runs)] == ["r0", "r1"]
    store.redact_runs(["r0"])
    assert [trail.run for trail in trails([Run(store, run.id) for run in runs])] == ["r1"]

"""What only a file can get wrong: its shape, its disk, its rights, other writers, death."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clew.core.errors import (
    BadInput,
    LeaseHeld,
    StoreBroken,
    StoreError,
    StoreFull,
    StoreNewer,
    StoreReadOnly,
    UnknownName,
)
from clew.core.keys import blob_key
from clew.core.records import Annotation, RunRow, Segment, Setup
from clew.core.values import Sampling, Task
from clew.harness import Runner
from clew.models.fakes import Scripted
from clew.store import Keeper, MemoryStore, Run, open_store
from clew.store.bundles.chosen import copy_run
from clew.store.contract import Script, fork_at
from clew.store.contract.script import PICTURE, make_node, same
from clew.store.sql.listing import Listing
from clew.store.sql.row_codec import dump
from clew.store.sql.run_tables import Records
from clew.store.sql.word_index import WordIndex
from clew.store.sqlite import SQLiteStore, migrations
from clew.store.summary import document, says, summarise, words

HERE = Path(__file__).parent


def filled(path: Path, runs: int = 3) -> SQLiteStore:
    store = SQLiteStore(path)
    for number in range(runs):
        Script(store, f"run{number}", created=float(number)).play(2, float(number % 2))
    return store


def test_open_store_makes_passes_and_forgets(tmp_path):
    store = open_store(tmp_path / "new" / "store.db")
    assert (tmp_path / "new" / "store.db").exists()
    assert open_store(store) is store
    assert isinstance(open_store(":memory:"), MemoryStore)
    store.close()


def test_reopened_store_has_everything(tmp_path):
    store = filled(tmp_path / "a.db")
    calls = store.calls("run1")
    store.put_run(RunRow("late", "x"))
    store.close()  # commits
    again = SQLiteStore(tmp_path / "a.db")
    assert again.calls("run1")[-1] == calls[-1]
    assert again.row("late").agent == "x"
    assert again.verify() == []
    assert [r.reward for r in again.runs("sort:id has:reward")] == [0.0, 1.0, 0.0]
    again.close()


def test_a_closed_store_says_so(tmp_path):
    with filled(tmp_path / "a.db") as store:
        script = Script(store, "last")
        script.open()
    store.close()
    with pytest.raises(StoreError, match="closed") as caught:
        store.row("run0")
    assert "again" in caught.value.remedy
    with SQLiteStore(tmp_path / "a.db") as again:
        assert len(again.calls("last")) == 1


def test_uncommitted_is_unseen_by_others_and_a_commit_is_whole(tmp_path):
    store, other = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "a.db")
    Script(store, "r").open()
    with pytest.raises(UnknownName):
        other.row("r")
    store.commit()
    assert len(other.calls("r")) == 1
    store.close()
    other.close()


# shape


@pytest.mark.parametrize("upto", range(len(migrations.STEPS)))
def test_every_past_shape_opens(tmp_path, upto):
    """A file as each past version left it is brought up to date, once, and proves itself."""
    path = tmp_path / "old.db"
    old = sqlite3.connect(path, isolation_level=None)
    migrations.migrate(old, True, migrations.STEPS[: upto + 1])
    old.close()
    store = filled(path)
    assert store.verify() == []
    assert migrations.migrate(store._db, True) == []
    store.close()
    again = SQLiteStore(path)
    assert migrations.applied(again._db) == [name for name, _ in migrations.STEPS]
    again.close()


def test_fixture_of_the_first_shape_still_verifies(tmp_path):
    """A file written when there was one step only; never to be written again."""
    shutil.copy(HERE / "fixtures" / "001-ground.db", tmp_path / "old.db")
    store = SQLiteStore(tmp_path / "old.db")
    assert store.verify() == []
    assert len(store.find("world=toy")) == 3
    assert store.run("old0").reply(1).message.text == "> act 0"
    store.close()


def test_images_as_older_versions_kept_them_stay_as_they_are(tmp_path):
    """Once they stood in the row of a node; such a row is read, proved and merged, and its key is what it was."""
    path = tmp_path / "old.db"
    store = SQLiteStore(path)
    run = Script(store, "old")
    run.open()
    asked = run.ask("look", "a dot")
    told = make_node(run.tip, "user", "see", extra=PICTURE)
    store.put_nodes([told])
    run.end()
    store.close()
    old = sqlite3.connect(path)
    old.execute("UPDATE node SET more = ? WHERE key = ?", (json.dumps(["", [], None, PICTURE]), told.key))
    old.execute("DELETE FROM blob WHERE key = ?", (blob_key(bytes(range(256)) * 8),))
    old.commit()
    before = old.execute("SELECT key, more FROM node ORDER BY key").fetchall()
    old.close()
    store = SQLiteStore(path)
    assert store.verify() == []
    assert store.node(told.key) == told
    other = SQLiteStore(tmp_path / "new.db")
    other.merge(store)
    assert other.node(told.key) == told
    assert other.verify() == []
    assert other.calls("old")[1].key == asked.key
    assert other.blob(blob_key(bytes(range(256)) * 8))
    other.close()
    store.close()
    old = sqlite3.connect(path)
    assert old.execute("SELECT key, more FROM node ORDER BY key").fetchall() == before
    old.close()


def test_settings_move_out_of_meta(tmp_path):
    """What Clew once kept among an importer's words gets a column of its own; the rest, and what is no JSON, stays."""
    ours = {"sampling": {"stop": ["a"], "temperature": 0.7}, "limits": {"cost": float("inf"), "steps": None}}
    ours |= {"snapshot_every": 16, "name": "n\ud800", "fork_limits": {"steps": 3}}
    theirs = {"import": {"format": "x", "fields": {"name": "kept"}}}
    metas = ["{}", json.dumps(ours), json.dumps(theirs), json.dumps(theirs | ours), "[1]", "no JSON", "\ud800"]
    store = SQLiteStore(tmp_path / "old.db")
    for no, meta in enumerate(metas):
        store.put_run(RunRow(f"run{no}", "a:b", meta=meta))
    store.close()
    old = sqlite3.connect(tmp_path / "old.db")
    old.execute("ALTER TABLE run DROP COLUMN settings")
    old.execute("DELETE FROM migration WHERE name = '002-settings'")
    old.commit()
    old.close()
    store = SQLiteStore(tmp_path / "old.db")
    found = [store.row(f"run{no}") for no in range(len(metas))]
    assert [json.loads(row.settings) for row in found] == [{}, ours, {}, ours, {}, {}, {}]
    assert [row.meta for row in found] == ["{}", "{}", metas[2], json.dumps(theirs), *metas[4:]]
    row = found[3]._replace(id="new")
    store.put_run(row)
    store.commit()
    assert SQLiteStore(tmp_path / "old.db").row("new") == row
    store.close()


def test_steps_are_idempotent_and_only_added(tmp_path):
    db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    names = [name for name, _ in migrations.STEPS]
    assert migrations.migrate(db, True) == names
    assert migrations.migrate(db, True) == []
    for name, step in migrations.STEPS:  # a process that died before the name was noted runs the step again
        db.execute("DELETE FROM migration WHERE name = ?", (name,))
        step(db)
    assert migrations.migrate(db, True) == names
    assert names == sorted(set(names))
    db.close()


def test_newer_store(tmp_path):
    filled(tmp_path / "a.db").close()
    db = sqlite3.connect(tmp_path / "a.db")
    db.execute("INSERT INTO migration VALUES ('999-telepathy', 0)")
    db.commit()
    db.close()
    with pytest.raises(StoreNewer, match="999-telepathy") as caught:
        SQLiteStore(tmp_path / "a.db")
    assert "upgrade" in caught.value.remedy
    assert str(tmp_path / "a.db") in str(caught.value)


def test_not_a_store(tmp_path):
    (tmp_path / "garbage").write_bytes(b"this is no database, it is a poem" * 100)
    with pytest.raises(StoreBroken, match="garbage"):
        SQLiteStore(tmp_path / "garbage")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE poems(line)")
    other.commit()
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(StoreBroken, match="not a store"):
        SQLiteStore(tmp_path / "other.db")
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("poems",)]
    other.close()
    assert b"migration" not in before
    with pytest.raises(StoreBroken, match="folder"):
        SQLiteStore(tmp_path)
    with pytest.raises(StoreError, match="no such store"):
        SQLiteStore(tmp_path / "absent.db", readonly=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError):
        SQLiteStore(tmp_path / "file" / "store.db")


def test_damaged_file_is_named(tmp_path):
    store = filled(tmp_path / "a.db", 40)
    store.close()
    data = bytearray((tmp_path / "a.db").read_bytes())
    for at in range(8192, len(data), 4096):
        data[at : at + 4096] = b"\xa5" * len(data[at : at + 4096])
    (tmp_path / "a.db").write_bytes(data)
    with pytest.raises(StoreBroken, match=r"a\.db"):
        SQLiteStore(tmp_path / "a.db").verify()


def test_flipped_bytes_in_content_are_found(tmp_path):
    store = filled(tmp_path / "a.db")
    store._db.execute("UPDATE node SET text = 'another' WHERE rowid = 2")
    store._db.execute("UPDATE blob SET body = x'00' WHERE rowid = 1")
    store._db.execute("UPDATE node SET text_key = x'01' WHERE rowid = 4")
    said = " ".join(fault.what for fault in store.verify())
    assert "not what its key says" in said
    assert "text key" in said
    assert "a blob that is not" in said
    store.close()


# disk and rights


def test_full_disk_keeps_what_was_committed_and_what_waits(tmp_path):
    store = filled(tmp_path / "a.db")
    held = store.find()
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    script = Script(store, "big")
    script.open("x" * 100_000)
    for _ in range(2):
        with pytest.raises(StoreFull, match=r"a\.db") as caught:
            store.commit()
    assert "room" in caught.value.remedy
    other = SQLiteStore(tmp_path / "a.db", readonly=True)
    assert other.find() == held
    other.close()
    assert store.calls("big")[0].text == "x" * 100_000  # still seen by its writer
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.commit()
    assert set(store.find()) == {*held, "big"}
    assert store.verify() == []
    store.close()


def test_a_list_needs_no_room(tmp_path):
    """Derived tables that cannot be filled are read from the record instead."""
    store = filled(tmp_path / "a.db")
    store._db.execute("PRAGMA max_page_count = 1")
    assert store.find("text:result steps=2 sort:id") == ["run0", "run1", "run2"]
    assert not store._has_table("summary_2")
    store._db.execute("PRAGMA max_page_count = 1000000")
    assert store.find("text:result steps=2 sort:id") == ["run0", "run1", "run2"]
    assert store._has_table("summary_2")
    store.close()


def test_readonly_store_reads_everything_and_writes_nothing(tmp_path):
    filled(tmp_path / "a.db").close()
    store = SQLiteStore(tmp_path / "a.db", readonly=True)
    assert len(store.find("text:result sort:-return")) == 3
    assert store.verify() == []
    assert Run(store, "run0").steps
    store.put_run(RunRow("x", "y"))
    for write in (store.commit, lambda: store.tag("run0", "t"), lambda: store.put_metrics("t", 0, {"x": 1.0})):
        with pytest.raises(StoreReadOnly, match=r"a\.db"):
            write()
    store._rows.clear()
    store.close()


ON_READONLY_MEDIUM = """
import os, sys
from clew.core.errors import StoreReadOnly
from clew.store import contract, open_store, query, summary, verify
from clew.store.sqlite import store
if os.getuid() == 0:  # who may write anywhere
    os.setgid(65534); os.setuid(65534)
store = open_store(sys.argv[1])
assert store.readonly and len(store.find("text:result")) == 3 and not store.verify()
try:
    store.tag("run0", "x")
except StoreReadOnly as error:
    print("refused", error.remedy)
"""


def test_file_without_write_permission(tmp_path):
    """As on a read-only mount: neither file nor folder can be written, and no log lies beside it."""
    folder = Path("/tmp") / f"clew-readonly-{os.getpid()}"
    folder.mkdir()
    try:
        filled(folder / "a.db").close()
        (folder / "a.db").chmod(0o444)
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", ON_READONLY_MEDIUM, str(folder / "a.db")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.startswith("refused Copy"), done.stderr
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_busy_store_says_so(tmp_path):
    store = filled(tmp_path / "a.db")
    store._db.execute("PRAGMA busy_timeout = 20")
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    Script(store, "later").open()
    with pytest.raises(StoreError, match="locked") as caught:
        store.commit()
    assert "process" in caught.value.remedy
    other.execute("ROLLBACK")
    store.commit()
    assert store.calls("later")
    other.close()
    store.close()


def test_one_store_per_process(tmp_path):
    store = filled(tmp_path / "a.db")
    store._pid += 1  # as after os.fork
    store.put_run(RunRow("x", "y"))
    with pytest.raises(StoreError, match="another process"):
        store.commit()
    store._pid -= 1
    store.close()


# other writers


WRITER = """
import sys
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1])
name = sys.argv[2]
scripts = [Script(store, f"{name}-{number}") for number in range(20)]
for script in scripts:
    store.lease(script.run, name, 60)
    script.open()
for step in range(49):
    for script in scripts:
        script.ask(f"{name} sees {step}", f"> do {step}")
        script.act(f"> do {step}", f"done {step}", reward=0.5)
    store.commit()
for script in scripts:
    script.end()
    store.release(script.run, name)
store.close()
"""

RACER = """
import sys
from clew.core.errors import LeaseHeld
from clew.store.contract import fork_at, Script
from clew.store import Run
from clew.store.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1])
sys.stdin.readline()
try:
    store.lease("contested", sys.argv[2], 60)
except LeaseHeld as error:
    print("lost", error.remedy)
else:
    print("won")
    store.close()
"""


def test_four_writers_lose_nothing(tmp_path):
    """Bar 9: 2,000 Calls each (20 runs of 100) into one file."""
    path = tmp_path / "a.db"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), f"w{n}"], stderr=subprocess.PIPE) for n in range(4)
    ]
    for writer in writers:
        assert writer.wait(120) == 0, writer.stderr.read().decode()
        writer.stderr.close()
    store = SQLiteStore(path)
    assert len(store.run_ids()) == 80
    assert sum(len(store.calls(run)) for run in store.run_ids()) == 8_000
    assert store.verify() == []
    assert store.leased() == []
    assert len(store.find("stop=done steps=49")) == 80
    store.close()


def test_one_of_two_wins_a_run(tmp_path):
    path = tmp_path / "a.db"
    store = SQLiteStore(path)
    Script(store, "contested").open()
    store.commit()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path), f"r{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(2)
    ]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    said = sorted(racer.communicate(timeout=60)[0].split()[0] for racer in racers)
    assert said == ["lost", "won"]
    assert store.leased() == ["contested"]
    store.close()


def test_writer_whose_lease_was_taken_over_is_refused_and_the_rest_is_kept(tmp_path):
    slow, quick = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "a.db")
    lost, kept = Script(slow, "lost"), Script(slow, "kept")
    for script in (lost, kept):
        script.open()
        slow.lease(script.run, "slow", 0.0 if script is lost else 60)
    slow.commit()
    quick.lease("lost", "quick", 60)
    with pytest.raises(LeaseHeld, match="kept"):
        quick.lease("kept", "quick", 60)
    lost.act("mine", "?")
    kept.act("also mine", "!")
    with pytest.raises(LeaseHeld, match="lost"):
        slow.commit()
    assert len(slow.calls("lost")) == 1
    assert len(quick.calls("kept")) == 2  # what shared the commit was not lost with it
    with pytest.raises(LeaseHeld):
        lost.act("again", "?")
    lost.seq = 1
    stranger = Script(quick, "other")
    stranger.open()
    quick.commit()
    quick.put_call("kept", slow.calls("kept")[1]._replace(seq=2))
    with pytest.raises(LeaseHeld, match="kept"):
        quick.commit()
    quick.release("lost", "quick")
    slow.lease("lost", "slow", 60)
    lost.act("mine again", "ok")
    slow.commit()
    assert len(quick.calls("lost")) == 2
    slow.close()
    quick.close()


def test_release_goes_with_the_last_calls(tmp_path):
    one, two = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "a.db")
    script = Script(one, "r")
    script.open()
    one.lease("r", "one", 60)
    one.commit()
    script.end()
    one.release("r", "one")
    with pytest.raises(LeaseHeld):
        two.lease("r", "two", 60)
    one.commit()
    two.lease("r", "two", 60)
    assert two.calls("r")[-1].kind == "end"
    one.close()
    two.close()


def test_threads_share_a_store(tmp_path):
    store = SQLiteStore(tmp_path / "a.db")
    errors = []

    def work(name: int) -> None:
        try:
            for number in range(5):
                run = Script(store, f"t{name}-{number}").play(4, 1.0)
                assert len(run.calls) == 10
                store.find("steps>1", 3)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(store.run_ids()) == 20
    assert store.verify() == []
    store.close()


# death


DYING = """
import sys
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1])
script = Script(store, sys.argv[2])
script.open()
while True:
    script.ask("see", "> do")
    script.act("> do", "done")
    store.commit()
    print(script.seq, flush=True)
"""


def test_kill_9_loses_no_committed_call(tmp_path):
    path = tmp_path / "a.db"
    for number in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", DYING, str(path), f"r{number}"], stdout=subprocess.PIPE, text=True
        )
        told = 0
        for _ in range(7 + 13 * number):
            told = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        told = max([told, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        store = SQLiteStore(path)
        calls = store.calls(f"r{number}")
        assert len(calls) >= told
        assert len(calls) % 2 == 1, "half a commit"
        assert store.verify() == []
        store.close()


# content leaves the file


def test_redacted_content_is_in_no_byte_of_the_file(tmp_path):
    path = tmp_path / "a.db"
    store = SQLiteStore(path)
    secret = "hunter2-is-the-word-nobody-may-read-again"
    script = Script(store, "r")
    script.open()
    script.ask("Say it.", secret)
    snapshot = store.put_blob(secret.encode())
    script.put("act", action=f"say {secret}", text=f"You say {secret}", legal=(f"say {secret}",), snapshot=snapshot)
    script.end()
    store.commit()
    assert store.find("text:nobody") == ["r"]
    assert secret.encode() in path.read_bytes() + Path(f"{path}-wal").read_bytes()
    store.redact("r@1")
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes(), file.name
        assert b"hunter2" not in file.read_bytes(), file.name
    assert store.verify() == []
    store.close()


def test_redaction_reaches_the_prompt_of_the_task(tmp_path):
    store = SQLiteStore(tmp_path / "a.db")
    script = Script(store, "r", task="a prompt that gives far too much away")
    script.open()
    asked = script.ask("solve a prompt that gives far too much away", "> no")
    script.end()
    store.commit()
    store.redact(asked.node_in.hex())
    assert json.loads(store.row("r").task)["prompt"] == "(redacted)"
    assert store.find("text:gives") == []
    store.close()


def test_redaction_reaches_what_a_fork_was_given(tmp_path):
    """The edit in the row of the fork, the rows of forks made from it, and the agent's arguments where they say it."""
    path, secret = tmp_path / "a.db", "my secret is 4711, which nobody may ever read"
    store = SQLiteStore(path)

    async def agent(run, beside=""):
        chat = run.chat()
        await chat.ask("Say it.")
        await chat.ask("Once more.")

    runner = Runner(agent, None, Scripted(["no", "no"]), store, config={"beside": f"so: {secret}"})
    run = runner.collect([Task("t", "", {"told": [secret]})], n=1).runs[0]
    fork = runner.fork(run, 1, reply=secret)[0]
    again = runner.fork(fork, 2, reply="yes")[0]
    store.commit()
    assert b"4711" in path.read_bytes() + Path(f"{path}-wal").read_bytes()
    store.redact(f"{fork.id}@1")
    rows = [store.row(one.id) for one in (fork, again)]
    assert [[edit["value"] for edit in json.loads(row.changes)["edits"]] for row in rows] == [
        ["(redacted)"],
        ["(redacted)", "yes"],
    ]
    assert [json.loads(row.config) for row in rows] == [{"beside": "(redacted)"}] * 2
    assert [json.loads(row.task)["data"] for row in rows] == [{"told": ["(redacted)"]}] * 2
    assert store.verify() == []
    store.close()
    for file in tmp_path.iterdir():
        assert b"4711" not in file.read_bytes(), file.name


# twins


def test_summaries_counted_in_sql_equal_those_of_the_calls(tmp_path):
    store = filled(tmp_path / "a.db")
    fork = fork_at(store, store.run("run1"), 3)
    fork.end("step_limit")
    empty = Script(store, "empty")
    store.commit()
    live = Script(store, "live")
    live.open()
    live.ask("x", "y")
    for _ in range(2):
        for made in store.summaries():
            twin = summarise(store.row(made.run), store.calls(made.run))
            assert made._replace(reward=None) == twin
    assert empty.run in store.run_ids()
    store._db.execute("UPDATE summary_2 SET steps = 99")
    assert "summary is out of date" in " ".join(f.what for f in store.verify())
    assert store.verify(rebuild=True) == []
    store.close()


def test_index_of_words_finds_what_reading_finds(tmp_path):
    store = SQLiteStore(tmp_path / "a.db")
    texts = [
        "Öl im Fass, 2 Äpfel",
        "open the fridge-door",
        'say "hi" * AND OR NOT',
        "snake_case x² naïve",
        "日本語 text",
    ]
    for number, text in enumerate(texts):
        script = Script(store, f"w{number}", task="t")
        script.open(text)
        script.end()
    store.commit()
    phrases = [
        "öl",
        "fridge door",
        "the fridge",
        "hi and",
        "or not",
        "snake case",
        "case",
        "äpfel",
        "日本語",
        "naïve",
        "dge",
    ]
    for phrase in phrases:
        slow = {run for run in store.run_ids() if says(document(store, run), words(phrase))}
        assert store.search(words(phrase)) == slow, phrase
    store.close()


def test_surrogates_in_every_text(tmp_path):
    store = SQLiteStore(tmp_path / "a.db")
    script = Script(store, "r", task="t\ud800")
    script.open("sees \udcff")
    script.ask("\ud83d", "answers \udfff", sampled=1)
    script.act("does \ud801", "\ud802")
    script.end()
    store.annotate([Annotation("run", "judge", 1.0, "r", data='{"why": "\ud803"}')])
    store.commit()
    run = store.run("r")
    assert run.calls[0].text == "sees \udcff"
    assert run.reply(1).message.text == "answers \udfff"
    assert store.find("text:answers") == ["r"]
    assert store.find("task:t") == ["r"]
    assert store.annotations(method="judge")[0].data == '{"why": "\ud803"}'
    assert store.verify() == []
    store.close()


def test_numbers_given_out_in_a_failed_commit_are_not_kept(tmp_path):
    """A rolled-back transaction must not leave names behind that other processes number otherwise."""
    one, two = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "a.db")
    one._db.execute("PRAGMA max_page_count = 1")
    Script(one, "first").open("x" * 50_000)
    with pytest.raises(StoreFull):
        one.commit()
    Script(two, "second").play(1)
    one._db.execute("PRAGMA max_page_count = 1000000")
    one.commit()
    assert one.calls("first")[0].text[:1] == "x"
    assert same(tuple(one.calls("second")), tuple(two.calls("second")))
    assert two.calls("first")[0].run == "first"
    assert two.verify() == []
    one.close()
    two.close()


def test_what_is_gone_is_interned_anew_by_others(tmp_path):
    """One process removes blobs while another remembers having kept them."""
    one, two = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "a.db")
    Script(one, "a").play(1)
    assert two.gc(dry_run=False).runs == ["a"]
    Script(one, "b").play(1)
    assert one.verify() == []
    assert two.verify() == []
    one.close()
    two.close()


def test_bad_values_do_not_block_the_commit_of_others(tmp_path):
    store = SQLiteStore(tmp_path / "a.db")
    script = Script(store, "r")
    script.open()
    with pytest.raises(BadInput):
        script.act("x", "y", reward=float("nan"))
    store.commit()
    assert len(store.calls("r")) == 1
    store.close()


def test_parts_of_the_store_are_siblings():
    """No part builds on another: each needs the record alone, so it can be read or replaced without the rest."""
    searching, *parts, database, keeper = SQLiteStore.__bases__
    assert keeper is Keeper
    assert searching.__bases__ == (WordIndex, Listing, database)
    assert {part.__bases__ for part in (*parts, WordIndex, Listing)} == {(Records,)}


def test_a_grammar_is_kept_and_settings_without_one_are_written_as_before(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    script = Script(store)
    asked = [Sampling(16, 0.7, stop=("\n",)), Sampling(16, grammar='json:{"type": "object"}')]
    for sampling in asked:
        script.put("note", setup=Setup("tiny", 1, sampling, None))
    store.commit()
    store.close()
    again = SQLiteStore(tmp_path / "s.db")
    assert [call.setup.asked for call in again.calls(script.run)] == asked  # type: ignore[union-attr]
    plain = json.dumps(["tiny", 1, [16, 0.7, 1.0, 0, ["\n"]], None, [], ""], separators=(",", ":"))
    assert again.blob(blob_key(plain.encode())) == plain.encode()


BUSY = """
import sys, time
from pathlib import Path
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore
store, number = SQLiteStore(sys.argv[1]), 0
while not Path(sys.argv[1] + ".over").exists():
    Script(store, f"{sys.argv[2]}-{number}", created=float(number)).play(1, 1.0)
    store.commit()
    if number % 3 == 0:
        store.summaries()  # whoever lists moves the summaries of ended runs into the file
    time.sleep(0.02)
    number += 1
store.close()
"""


def test_no_list_shows_a_run_twice_while_others_write(tmp_path):
    """Seven views of one server, twenty pollers of their own, four writing processes: each list is of one moment."""
    path, faults, polls = tmp_path / "busy.db", list[str](), list[int]()
    shared = SQLiteStore(path)
    writers = [subprocess.Popen([sys.executable, "-c", BUSY, str(path), f"w{n}"]) for n in range(4)]

    def poll(store: SQLiteStore, kind: int) -> None:
        most = 0
        while not faults and len(polls) < 1000:
            page = store.page("steps>0 sort:-created" if kind == 2 else "", None if kind else 50)
            rows = [row.run for row in page.rows]
            groups = [row.run for fold in store.folds("", 20).groups for row in fold] if kind == 1 else []
            for runs in (rows, groups):
                if len(set(runs)) < len(runs):
                    faults.append(f"poller {kind}: {len(runs) - len(set(runs))} rows twice among {len(runs)}")
            if kind and page.total != len(rows):
                faults.append(f"poller {kind}: says {page.total} runs and lists {len(rows)}")
            if page.total < most:
                faults.append(f"poller {kind}: {most} runs became {page.total}")
            most = page.total
            polls.append(most)

    while shared.page().total < 8:
        time.sleep(0.05)
    stores = [shared] * 7 + [SQLiteStore(path) for _ in range(20)]
    threads = [threading.Thread(target=poll, args=(store, n % 3)) for n, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Path(f"{path}.over").touch()
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0, 0]
    assert faults == []
    assert len(polls) >= 1000
    assert max(polls) > 20  # the writers wrote while they polled
    for store in {id(s): s for s in stores}.values():
        store.close()


def test_a_small_merge_does_not_read_the_large_store(tmp_path):
    large, small = filled(tmp_path / "large.db", 30), SQLiteStore(tmp_path / "small.db")
    Script(small, "other", created=99.0).play(2, 1.0)
    copy_run(small, large, "run3")  # one run that both hold
    small.annotate([Annotation("run", "style", 0.5, run="run3"), Annotation("group", "mean", 1.0, run="g")])
    small.commit()
    read = list[str]()
    large._db.set_trace_callback(read.append)
    taken = large.merge(small)
    large._db.set_trace_callback(None)
    assert (taken["runs"], taken["annotations"]) == (1, 3)
    whole = [sql for sql in read if sql.startswith("SELECT") and " WHERE " not in sql]
    assert [
        sql for sql in whole if any(f"FROM {table}" in sql for table in ("node", "blob", "call", "run", "annotation"))
    ] == []
    assert len(large.run_ids()) == 31
    assert not large.verify()
    read.clear()
    for store in (large, small):
        store._db.set_trace_callback(read.append)
    assert not any(large.merge(small).values())
    assert [sql for sql in read if "node_in" in sql] == [], "no Call that both hold is read again"
    for store in (large, small):
        store._db.set_trace_callback(None)
    large.close()
    small.close()


def test_kept_json_is_compact_sorted_and_without_nan():
    assert dump({"b": [1, 2.5, None], "a": "\ud800"}) == '{"a":"\\ud800","b":[1,2.5,null]}'
    for value in (float("nan"), [float("inf")], {"x": {1, 2}}, {(1, 2): 3}):
        with pytest.raises(BadInput, match="cannot be kept as JSON"):
            dump(value)


def test_a_forks_conversations_are_those_before_its_cursor(tmp_path):
    """What its parent asked later is none of the fork's, whether it is in the file or still waits for a commit."""
    store = SQLiteStore(tmp_path / "a.db")
    parent = Script(store, "parent")
    parent.open()
    parent.ask("see", "> do")
    parent.ask("aside", "yes")
    Script(store, "fork", lineage=(Segment("parent", 0, 2),), parent="parent@2")
    later = store.calls("parent")[2]._replace(conversation=7, seq=2)
    store.put_call("parent", later)
    for _ in range(2):
        assert store.conversations("fork") == [0]
        assert store.conversations("parent") == [0, 7]
        store.commit()
    store.close()

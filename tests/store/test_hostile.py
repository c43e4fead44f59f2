"""Store files that others altered or that were torn: each is refused in one sentence, and every way of reading ends."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from clew.core.errors import ClewError
from clew.store import MemoryStore, Run
from clew.store.bundles.chosen import copy_run
from clew.store.contract import Script
from clew.store.sqlite import SQLiteStore


def filled(path: Path, runs: int) -> SQLiteStore:
    store = SQLiteStore(path)
    for number in range(runs):
        Script(store, f"run{number}", created=float(number)).play(2, float(number % 2))
    return store


HOSTILE = {
    "a node that is its own parent": "UPDATE node SET parent = key",
    "nodes in a circle": "UPDATE node SET parent = (SELECT max(key) FROM node)",
    "a kind that is none": "UPDATE call SET kind = 99",
    "numbers that are none": "UPDATE call SET logprobs = x'010203' WHERE kind = 1",
    "packed samples nested deep": "UPDATE call SET packed = replace(hex(zeroblob(60000)), '0', '[') WHERE kind = 1",
    "settings that are no JSON": "UPDATE blob SET body = '{'",
    "a lineage that is none": "UPDATE run SET lineage = '[[1]]'",
    "a lineage without end": "UPDATE run SET lineage = '[[\"run0\", 0, 16777216]]'",
    "ids that are none": "UPDATE node SET ids = x'01'",
    "a message that is none": "UPDATE node SET more = '7'",
    "text that is no UTF-8": "UPDATE node SET text = CAST(x'ff' AS TEXT)",
    "a string without a number": "DELETE FROM ident WHERE no > 0",
    "a trigger": "CREATE TRIGGER evil AFTER INSERT ON run BEGIN DELETE FROM call; END",
    "a view in the place of a table": "ALTER TABLE tag RENAME TO tags; CREATE VIEW tag AS SELECT 1 AS name, 1 AS run",
    "a summary that is none": "INSERT INTO summary_2(run, stop) VALUES (1, 7) ON CONFLICT DO UPDATE SET steps = 'many'",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_others_altered_is_refused_in_a_sentence(tmp_path, what):
    """Every way of reading ends soon: with an answer, or with one error of ours."""
    path = tmp_path / "hostile.db"
    store = filled(path, 2)
    store.find()
    store.close()
    with sqlite3.connect(path) as db:
        db.executescript(HOSTILE[what])
    db.close()
    told = list[str]()

    def tried(work) -> None:
        try:
            work()
        except ClewError as error:
            told.append(str(error))

    def all_of_it() -> None:
        store = SQLiteStore(path)
        for work in (
            lambda: [store.thread(store.calls("run1")[2].node_out), store.thread(store.node_keys()[-1])],
            lambda: [Run(store, run).steps for run in store.run_ids()],
            lambda: [store.row(run) for run in store.run_ids()],
            lambda: store.find("steps>0 sort:-tokens"),
            lambda: store.find("text:door"),
            store.summaries,
            store.verify,
            lambda: MemoryStore().merge(store),
            lambda: copy_run(MemoryStore(), store, "run1"),
            lambda: store.tags(),
            store.close,
        ):
            tried(work)

    tried(all_of_it)
    for said in told:
        assert said.split("\n")[0].isprintable()
        assert len(said) < 500
    if what not in ("a summary that is none", "a lineage without end"):
        assert told, "nothing was noticed"


def test_a_run_that_is_its_own_child_or_parent_ends_too(tmp_path):
    path = tmp_path / "circle.db"
    store = filled(path, 2)
    script = Script(store, "mother")
    script.open()
    script.put("spawn", action="agent", child="mother")
    script.end()
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE run SET parent = 'mother@1'")
    db.close()
    store, into = SQLiteStore(path), MemoryStore()
    copy_run(into, store, "mother")
    assert into.run_ids() == ["mother"]
    assert store.gc(dry_run=True).runs == ["run0", "run1", "mother"]
    store.close()


@pytest.mark.parametrize("at", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("how", ["cut", "zeros", "noise"])
def test_a_torn_file_is_refused_in_a_sentence(tmp_path, at, how):
    path = tmp_path / "torn.db"
    filled(path, 12).close()
    data = bytearray(path.read_bytes())
    place = int(len(data) * at)
    data[place : place + 4096] = {"cut": b"", "zeros": bytes(4096), "noise": bytes(range(256)) * 16}[how]
    path.write_bytes(data[:place] if how == "cut" else data)
    told = list[str]()
    try:
        store = SQLiteStore(path)
        told += [str(fault) for fault in store.verify()]
        store.close()
    except ClewError as error:
        told.append(str(error))
    assert told
    assert all(said.split("\n")[0].isprintable() for said in told)

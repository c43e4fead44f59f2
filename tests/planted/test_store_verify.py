"""Damages that must not pass as "no faults", and stores of which nothing can be said."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.core.records import RunRow
from clew.store.contract.script import PICTURE, Script
from clew.store.sqlite import SQLiteStore

DAMAGES = {
    "removed logprobs": "UPDATE call SET logprobs = NULL WHERE kind = 1",
    "a token count below zero": "UPDATE call SET completion = -1 WHERE kind = 1",
    "a token count that is a word": "UPDATE call SET prompt = 'many' WHERE kind = 1",
    "an infinite cost": "UPDATE call SET cost = 9e999 WHERE kind = 1",
    "a reply cut short": "UPDATE node SET text = substr(text, 1, 3) WHERE ids NOTNULL",
    "results of two acts swapped": (
        "UPDATE call SET text = CASE text WHEN 'result 0' THEN 'result 1' ELSE 'result 0' END WHERE kind = 2"
    ),
    "a better reward": "UPDATE call SET reward = 1.0 WHERE kind = 2",
    "a Call taken out": "DELETE FROM call WHERE kind = 2 AND rowid = (SELECT min(rowid) FROM call WHERE kind = 2)",
    "a run's task put to another": "UPDATE run SET task = (SELECT max(task) FROM run)",
    "a tombstone over a sound Call": "INSERT INTO tombstone SELECT 'r0@1', 1.0, zeroblob(16)",
    "a tombstone over a sound message": "INSERT INTO tombstone SELECT lower(hex(key)), 1.0, x'' FROM node LIMIT 1",
    "an image that is another": "UPDATE blob SET body = randomblob(length(body)) WHERE length(body) > 2000",
    "a run's row that is gone": "DELETE FROM run WHERE no = (SELECT min(no) FROM run)",
    "a report without numbers": """INSERT INTO report VALUES ('x', '{"claim": "c"}')""",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "s.db"
    store = SQLiteStore(path)
    for number in range(2):
        script = Script(store, f"r{number}", task=f"task-{number}")
        script.open(extra=PICTURE)
        for step in range(2):
            script.ask(f"view {step} {number}", f"> act {step}")
            script.act(f"> act {step}", f"result {step}", reward=0.0)
        script.end()
    store.close()
    return path


def verify(path, code: int) -> str:
    done = CliRunner().invoke(verbs, ["store", "verify", "--store", str(path)])
    assert done.exit_code == code, done.output
    return done.output


def test_a_sound_store_passes(sound):
    assert verify(sound, 0) == "2 runs, no faults\n"
    told = json.loads(CliRunner().invoke(verbs, ["store", "verify", "--store", str(sound), "--json"]).output)
    assert told["comparisons"]["tested"]
    assert told["comparisons"]["made"] == told["comparisons"]["could_differ"] > 12


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damage_is_named(sound, tmp_path, what):
    path = tmp_path / "s.db"
    shutil.copy(sound, path)
    db = sqlite3.connect(path)
    db.executescript(DAMAGES[what])
    db.close()
    told = verify(path, 1)
    assert "no faults" not in told
    assert "Traceback" not in told


def test_one_damaged_row_hides_no_other(sound, tmp_path):
    path = tmp_path / "s.db"
    shutil.copy(sound, path)
    db = sqlite3.connect(path)
    db.execute("UPDATE node SET ids = x'01' WHERE rowid = 1")
    db.execute("UPDATE run SET lineage = '[[1]]' WHERE no = (SELECT min(no) FROM run)")
    db.execute("UPDATE call SET text = 'another' WHERE kind = 2")
    db.commit()
    db.close()
    told = verify(path, 1)
    assert "column ids" in told
    assert "column lineage" in told
    assert told.count("r1@") >= 2, told


def test_a_store_without_calls_says_that_nothing_was_tested(tmp_path):
    for name, runs in (("empty.db", 0), ("begun.db", 1)):
        store = SQLiteStore(tmp_path / name)
        for number in range(runs):
            store.put_run(RunRow(f"r{number}", "a.py:f"))
        store.close()
        told = verify(tmp_path / name, 0)
        assert "no faults" not in told
        assert "not tested: the store holds no recorded calls" in told

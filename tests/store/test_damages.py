"""Every column of every table is given hostile values: ``verify`` names the damage, or the docs say that it cannot."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clew.core.errors import ClewError
from clew.core.records import Annotation, GroupRow, Report
from clew.core.values import Attempt, Inner
from clew.store import Run
from clew.store.contract.script import PICTURE, Script, fork_at
from clew.store.entries import Vector, entry
from clew.store.sqlite import SQLiteStore

EDITS = 520
DEEP = "[" * 3000
HOSTILE: tuple[Any, ...] = (
    None, "text \u03a9", "", 7, -5, 2**62, -(2**62), 1e300, float("inf"), -0.5, b"", b"\x01\x02\x03", b"\xff\xfe" * 8,
    DEEP, '{"a": NaN}', "[[1]]", "null",
)  # fmt: skip
# What no key covers and no rule binds: another value of the right kind is told from the true one by nobody.
# The same list stands in docs/record.md.
OUTSIDE = {
    "ident": {"id"},
    "run": {"agent", "taskset", "model", "agent_digest", "config", "seed", "grp", "ord", "parent", "changes", "created"}
    | {"origin", "meta", "settings", "spawned_by", "task_id", "task"},
    "call": {"prompt", "completion", "cached", "cost", "started", "seconds", "attempts", "snapshot"},
    "grp": {"kind", "task_id", "runs", "name"},
    "series": {"method", "version", "params", "scope"},
    "annotation": {"value", "vals", "data", "target", "node", "run", "series", "seq"},
    "lease": {"owner", "until", "run"},
    "tag": {"name", "run"},
    "report": {"id", "body"},
    "outcome": {"method", "cursor", "seeds", "outcomes", "costs"},
    "metric": {"training", "step", "name", "value"},
    "tombstone": {"place", "at", "issue"},
    "migration": {"name", "at"},
    "entry": {"no"},
    "vector": {"no", "item", "model", "text", "body"},
}


def rich(path: Path) -> None:
    """A store with a row in each table, and in each column something that can be damaged."""
    store = SQLiteStore(path)
    script = Script(
        store, "run0", config='{"a": 1}', meta='{"b": 2}', settings='{"name": "c"}', group="g", order=(1, 2)
    )
    script.open("a door", extra=PICTURE)
    script.ask("view", "> go", inner=(Inner("small", text="x"),), attempts=(Attempt(1.0, 500, "no"),), kept=b"\2\0\0\0")
    script.act("> go", "gone", reward=0.5, snapshot=store.put_blob(b"a world"))
    script.ask("more", "> stay")
    script.put("note", action="plan", text='{"p": 1}')
    script.end()
    other = Script(store, "run1", task="task-2").play(1, 1.0)
    fork = fork_at(store, Run(store, "run0"), 3, changes='{"edits": [], "keep": false}')
    fork.ask("else", "> no")
    fork.end()
    gone = Script(store, "run2").play(1)
    store.commit()
    store.redact(f"{gone.id}@1")
    store.tag("run0", "keep")
    store.put_group(GroupRow("g", "iid", "task-1", ("run0", other.id), "two"))
    store.put_report(Report(claim="c", estimate=1.0, low=0.5, high=1.5, n=3, design="d", runs=("run0",)))
    store.put_outcomes("m", "run0@1", [1, 2], [0.5, 1.0], [0.0, 0.0])
    store.put_metrics("t", 1, {"loss": 2.0})
    store.put_entries([entry("m", "i", 1.0, "add", {"text": "x"}), entry("m", "j", 2.0, "add", {"text": "y"})])
    store.put_vectors([Vector("i", "e", b"k" * 16, b"\0" * 8)])
    reply = store.node(store.calls("run0")[1].node_out)
    values = np.linspace(0, 1, len(reply.ids or ()), dtype=np.float32)
    store.annotate(
        [Annotation("tokens", "adv", None, "run0", 1, values=values), Annotation("call", "v", 0.5, "run0", 1)]
    )
    store.annotate([Annotation("node", "w", 1.0, "", node=reply.key, data='{"z": 1}')])
    store.commit()
    store.lease(other.id, "me", 60)
    store.commit()
    store.close()


def edits(path: Path, seed: int, count: int) -> Iterator[tuple[str, str, int, Any]]:
    """Table, column, row and new value: each column of each table in turn, at least four values of each."""
    draw = random.Random(seed)
    db = sqlite3.connect(path)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    tables = [name for name in tables if not re.match(r"sqlite_|words_|worded_|summary_", name)]
    columns = [(table, c) for table in tables for _, c, *_ in db.execute(f"PRAGMA table_info({table})").fetchall()]
    assert len(columns) > 100
    made, turn = 0, 0
    while made < count:
        table, column = columns[turn % len(columns)]
        values = [value for (value,) in db.execute(f"SELECT {column} FROM {table}")]
        row = draw.randrange(len(values))
        was = values[row]
        others = [value for value in values if value != was]
        cut = [was[:-1]] if isinstance(was, (str, bytes)) and was else []
        new = draw.choice([*HOSTILE, *cut * 3, *others[:3]])
        turn += 1
        if new != was or type(new) is not type(was):
            made += 1
            yield table, column, row, new
    db.close()


def changed(path: Path, table: str, column: str, row: int, new: Any) -> bool:
    """Edit a store file; whether it was taken, and holds something else now."""
    db = sqlite3.connect(path)
    try:
        keys = [c for _, c, *_, key in db.execute(f"PRAGMA table_info({table})").fetchall() if key]
        before = db.execute(f"SELECT {', '.join(keys)}, {column} FROM {table}").fetchall()
        is_it = " AND ".join(f"{name} IS ?" for name in keys)
        with db:
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {is_it}", (new, *before[row][:-1]))
        return before != db.execute(f"SELECT {', '.join(keys)}, {column} FROM {table}").fetchall()
    except (sqlite3.IntegrityError, OverflowError):
        return False
    finally:
        db.close()


def verdict(path: Path) -> list[str]:
    """What `verify` says of a file, or why it is not opened; an error that is not ours goes through."""
    try:
        store = SQLiteStore(path)
    except ClewError as error:
        return [str(error)]
    try:
        return [f"{fault.where}: {fault.what}" for fault in store.verify()]
    finally:
        store.close()


def test_the_store_is_sound_before(tmp_path):
    rich(tmp_path / "base.db")
    assert verdict(tmp_path / "base.db") == []


def test_each_damage_is_named_or_told_as_outside(tmp_path):
    base, path = tmp_path / "base.db", tmp_path / "a.db"
    rich(base)
    tried, unseen, raw = 0, list[str](), list[str]()
    for table, column, row, new in edits(base, 39, EDITS * 3):
        shutil.copy(base, path)
        if tried == EDITS or not changed(path, table, column, row, new):
            continue
        tried += 1
        told = f"{table}.{column} of row {row} set to {new!r:.60}"
        try:
            found = verdict(path)
        except Exception as error:
            raw.append(f"{told}: {type(error).__name__}: {error}")
            continue
        if not found and column not in OUTSIDE.get(table, ()):
            unseen.append(told)
    assert tried == EDITS
    assert not raw, f"{len(raw)} raw errors: {raw[:20]}"
    assert not unseen, f"{len(unseen)} unseen: {unseen[:40]}"


def test_the_docs_name_what_verify_cannot_see():
    """The table of docs/record.md has each column that a plausible value can be put into unseen, and no other."""
    text = (Path(__file__).parents[2] / "docs" / "record.md").read_text()
    told = {
        table: set(columns.split(", ")) for table, columns in re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|$", text, re.M)
    }
    assert told == OUTSIDE

"""The entries of memories in a file: none leaves a byte behind; two processes may write one memory and be killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from clew.harness.memory.fold import Kept, fold
from clew.store import MemoryStore
from clew.store.entries import Vector, entry
from clew.store.sqlite import SQLiteStore

KILLS = int(os.environ.get("CLEW_KILLS", "2"))
SECRET = "hunter2-is-the-word-nobody-may-read-again"
WRITER = """
import sys
from clew.store.entries import entry
from clew.store.sqlite import SQLiteStore
store, name = SQLiteStore(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
for n in range(100_000):
    new = f"{name}-{n}"
    lines = [entry("shop", new, n + 1.0, "add", {"text": "x" * 2000})]
    if n:
        lines.append(entry("shop", f"{name}-{n - 1}", n + 1.0, "supersede", {"by": new}))
    store.put_entries(lines)
    print(n, flush=True)
"""


def test_a_forgotten_item_is_in_no_byte_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SQLiteStore(path)
    store.put_entries(
        [entry("shop", f"i{n}", float(n), "add", {"text": f"{SECRET} {'.' * n * 40}"}) for n in range(90)]
    )
    store.put_entries([entry("shop", "i7", 200.0, "selected", {"place": "r@1", "query": SECRET})])
    store.put_entries([entry("shop", "kept", 1.0, "add", {"text": "stays"})])
    assert SECRET.encode() in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    store.forget([f"i{n}" for n in range(90)])
    for file in tmp_path.iterdir():
        assert SECRET.encode() not in file.read_bytes(), file.name
    assert [*fold(one for _, one in store.entries())] == ["kept"]
    assert store.verify() == []
    store.close()
    for file in tmp_path.iterdir():
        assert b"hunter2" not in file.read_bytes(), file.name


def test_the_vectors_of_a_forgotten_item_are_in_no_byte_of_the_files(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    store.put_entries([entry("shop", item, 1.0, "add", {"text": item}) for item in ("gone", "kept")])
    marks = [f"{word} vector ".encode() * 300 for word in ("first", "second", "staying")]
    for item, mark in zip(("gone", "gone", "kept"), marks, strict=True):
        store.put_vectors([Vector(item, "m", bytes(16), mark)])
    store.forget(["gone"])
    for closed in (False, True):
        if closed:
            store.close()
        said = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert [mark[:12] in said for mark in marks] == [False, False, True]


def test_a_union_with_a_tombstone_leaves_no_byte_either(tmp_path: Path) -> None:
    store, other = SQLiteStore(tmp_path / "a.db"), MemoryStore()
    store.put_entries([entry("shop", "a", 1.0, "add", {"text": SECRET})])
    other.merge(store)
    other.forget(["a"])
    store.merge(other)
    for file in tmp_path.iterdir():
        assert b"hunter2" not in file.read_bytes(), file.name
    store.close()


def test_an_altered_entry_is_found(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    store.put_entries([entry("shop", "a", 1.0, "add", {"text": "as it was"})])
    with store._write() as db:
        db.execute("""UPDATE entry SET body = '{"text": "as it never was"}'""")
    assert [(fault.where, "key" in fault.what) for fault in store.verify()] == [("shop/a", True)]
    store.close()


def _start(path: Path, name: str) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def _killed(child: subprocess.Popen[str]) -> int:
    """Kill it; the last number it said was committed."""
    child.send_signal(signal.SIGKILL)
    assert child.stdout is not None
    told = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    return int(told[-1]) if told else -1


def _whole(items: dict[str, Kept], name: str, told: int) -> None:
    mine = sorted((item for id, item in items.items() if id.startswith(f"{name}-")), key=lambda item: item.at)
    assert len(mine) > told, "what was committed is there"
    for n, item in enumerate(mine):
        assert item.id == f"{name}-{n}"
        assert item.content == {"text": "x" * 2000}
        last = n == len(mine) - 1
        assert (item.state, item.replaced_by) == (("active", "") if last else ("superseded", f"{name}-{n + 1}"))


def test_two_processes_write_one_memory_and_are_killed_at_any_moment(tmp_path: Path) -> None:
    """A few kills here, more by ``make nightly``. Nothing committed is lost, and no item is superseded by half."""
    dice = random.Random(5)
    for kill in range(KILLS):
        path = tmp_path / f"{kill}.db"
        SQLiteStore(path).close()
        children = {name: _start(path, name) for name in ("ann", "bob")}
        time.sleep(dice.random() * 0.2)
        told = {name: _killed(child) for name, child in children.items()}
        store = SQLiteStore(path)
        items = fold(one for _, one in store.entries("shop"))
        for name, number in told.items():
            _whole(items, name, number)
        numbers = [no for no, _ in store.entries()]
        assert numbers == sorted(set(numbers))
        assert store.verify() == []
        store.close()


def test_the_order_in_which_entries_came_does_not_matter() -> None:
    lines = [
        entry("shop", "a", 1.0, "add", {"text": "a"}),
        entry("shop", "a", 3.0, "promote", {"by": "t", "why": "three times"}),
        entry("shop", "a", 2.0, "selected", {"place": "r@1", "query": "first"}),
        entry("shop", "a", 2.5, "selected", {"place": "r@1", "query": "again, after a crash"}),
        entry("shop", "b", 1.0, "add", {"text": "b"}),
        entry("shop", "b", 4.0, "supersede", {"by": "a", "why": "same"}),
        entry("shop", "b", 5.0, "retire", {"why": "later"}),
        entry("shop", "c", 1.0, "retire"),
    ]
    found = fold(lines)
    dice = random.Random(2)
    for _ in range(20):
        dice.shuffle(lines)
        assert fold(lines) == found
    assert (found["a"].state, found["a"].replaced_by, found["a"].why) == ("promoted", "t", "three times")
    assert [(given.place, given.query) for given in found["a"].given] == [("r@1", "first")]
    assert (found["b"].state, found["b"].why) == ("superseded", "same")
    assert "c" not in found, "an item whose content is not there yet"
    assert json.loads(lines[0].body) is not None

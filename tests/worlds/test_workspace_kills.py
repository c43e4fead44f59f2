"""Kills in the midst of snapshots and restores, and sweeps in the midst of recording: a shelf stays whole."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clew.core.keys import digest
from clew.worlds.workspace import Scan, TreeShelf, restore, tree_shelf
from clew.worlds.workspace.tree_shelf import CONTENT, LISTING
from clew.worlds.workspace.tree_upkeep import erase, faults, keep_only, reached

pytestmark = pytest.mark.whole

KILLS = 50 * int(os.environ.get("CLEW_KILLS", "1"))
PROGRAM = """
import os, random, signal, sys, time
from pathlib import Path
from clew.worlds.workspace import Scan, TreeShelf, restore

root, shelf, log, back, kills, what = (Path(word) for word in sys.argv[1:])
dice = random.Random(str(what))

def snapshots(seed):
    dice, scan = random.Random(seed), Scan(root, TreeShelf(shelf))
    while True:
        for _ in range(8):
            data = dice.randbytes(dice.randrange(20000))
            (root / f"d{dice.randrange(6)}" / f"f{dice.randrange(30)}").write_bytes(data)
        found = scan.snapshot()
        with log.open("a") as file:
            file.write(f"{found.tree} {found.state}\\n")

def restores(seed):
    held = TreeShelf(shelf)
    for number in range(10**6):
        for line in log.read_text().splitlines():
            restore(held, line.split()[0], back / f"{seed}.{number}.{line[:8]}")

began = time.monotonic()
if str(what) == "snapshots":
    Scan(root, TreeShelf(shelf)).snapshot()
took = time.monotonic() - began  # a busy machine takes longer, and is killed later
for number in range(int(str(kills))):
    child = os.fork()
    if child == 0:
        try:
            (snapshots if str(what) == "snapshots" else restores)(number)
        finally:
            os._exit(1)  # it ends only where something failed
    time.sleep(dice.random() * max(0.06, 6 * took))
    ended, _ = os.waitpid(child, os.WNOHANG)
    assert ended == 0, "it ended before it was killed"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def killed(tmp_path: Path, what: str, kills: int = KILLS) -> None:
    """Start what takes or restores snapshots again and again, and kill each at a random moment."""
    words = [tmp_path / "work", tmp_path / "shelf", tmp_path / "log", tmp_path / "back", str(kills), what]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", PROGRAM, *words], env=env, check=True, timeout=60 + kills)


@pytest.fixture
def place(tmp_path) -> Path:
    for number in range(6):
        (tmp_path / "work" / f"d{number}").mkdir(parents=True)
        for name in range(30):
            (tmp_path / "work" / f"d{number}" / f"f{name}").write_bytes(bytes([number, name]) * 500)
    TreeShelf(tmp_path / "shelf")
    (tmp_path / "log").touch()
    return tmp_path


def test_after_kills_in_snapshots_every_noted_one_is_whole_and_nothing_half_is_left(place):
    killed(place, "snapshots")
    noted = dict(line.split() for line in (place / "log").read_text().splitlines() if len(line) == 65)
    assert len(noted) >= 5
    shelf = TreeShelf(place / "shelf")
    assert list((place / "shelf" / "new").iterdir()) == []
    for path in (place / "shelf").glob("??/*"):  # those of snapshots that were never noted, too
        data, key = path.read_bytes(), path.parent.name + path.name
        assert key in (digest(CONTENT, data).hex(), digest(LISTING, data).hex())
    assert list(faults(shelf, noted)) == []
    for number, (tree, state) in enumerate(random.Random(0).sample(sorted(noted.items()), 20)):
        back = place / f"back{number}"
        restore(shelf, tree, back)
        again = Scan(back, TreeShelf(place / "other")).snapshot()
        assert (again.tree, again.state) == (tree, state)
        shutil.rmtree(back)
    for mark in (place / "shelf" / "recent").iterdir():
        os.utime(mark, (1, 1))
    keep_only(shelf, lambda: noted)
    left = {path.parent.name + path.name for path in (place / "shelf").glob("??/*")}
    assert left == reached(shelf, noted)[0]  # what kills left whole and unnamed is gone, and nothing else


def test_a_scan_that_remembers_what_was_swept_keeps_it_again(place):
    shelf = TreeShelf(place / "shelf")
    scan = Scan(place / "work", shelf)
    first = scan.snapshot()
    for mark in (place / "shelf" / "recent").iterdir():
        os.utime(mark, (1, 1))
    assert keep_only(TreeShelf(place / "shelf"), list)[0] == 187
    assert list(faults(shelf, [first.tree]))
    assert scan.snapshot() == first
    assert list(faults(shelf, [first.tree])) == []


def test_kills_in_restores_change_nothing_on_the_shelf(place):
    (place / "back").mkdir()
    shelf = TreeShelf(place / "shelf")
    snapshot = Scan(place / "work", shelf).snapshot()
    (place / "log").write_text(f"{snapshot.tree} {snapshot.state}\n")
    before = {path: path.stat().st_mtime_ns for path in shelf.folder.glob("??/*")}
    killed(place, "restores")
    assert {path: path.stat().st_mtime_ns for path in shelf.folder.glob("??/*")} == before
    assert list(faults(TreeShelf(place / "shelf"), [snapshot.tree])) == []
    half = sorted((place / "back").iterdir())
    assert half
    restore(shelf, snapshot.tree, place / "again")
    assert Scan(place / "again", shelf).snapshot().tree == snapshot.tree


def test_a_kill_in_the_midst_of_erasing_leaves_nothing_of_the_content(place, monkeypatch):
    shelf = TreeShelf(place / "shelf")
    (place / "work" / "secret").write_bytes(b"secret" * 100)
    snapshot = Scan(place / "work", shelf).snapshot()
    key = next(entry.key for entry in shelf.listing(snapshot.tree) if entry.name == "secret")

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("clew.worlds.workspace.tree_upkeep._overwrite", dies)
        with pytest.raises(KeyboardInterrupt):
            erase(shelf, [key])
    assert key not in TreeShelf(place / "shelf")
    missing = list[str]()
    restore(TreeShelf(place / "shelf"), snapshot.tree, place / "back", erased=missing)
    assert missing == ["secret"]


def test_sweeps_in_the_midst_of_recording_take_nothing_that_is_needed(place, monkeypatch):
    monkeypatch.setattr(tree_shelf, "RECENT", 0.5)
    root, noted, broken, ended = place / "work", dict[int, str](), list[object](), threading.Event()

    def record(number: int) -> None:
        """As a gateway: files come, go and come back; a snapshot is named a while after it was taken."""
        shelf, dice = TreeShelf(place / "shelf"), random.Random(number)
        (place / f"work{number}").mkdir()
        scan = Scan(place / f"work{number}", shelf)
        while not ended.is_set():
            for name in range(20):
                path = place / f"work{number}" / f"f{name}"
                if dice.random() < 0.3:
                    path.write_bytes(bytes([dice.randrange(4)]) * 3000)
            tree = scan.snapshot().tree
            time.sleep(dice.random() * 0.02)
            noted[number] = tree  # the one before is needed no more
            if found := list(faults(shelf, [tree])):
                broken.append(found)

    Scan(root, TreeShelf(place / "shelf")).snapshot()
    workers = [threading.Thread(target=record, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    sweeper, removed, late = TreeShelf(place / "shelf"), 0, time.monotonic() + 4
    while time.monotonic() < late:
        removed += keep_only(sweeper, lambda: [*noted.values()])[0]
        time.sleep(0.01)
    ended.set()
    for worker in workers:
        worker.join()
    assert removed > 20
    assert broken == []

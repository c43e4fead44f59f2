"""Snapshots of folders: whatever is done in one comes back, the folder stays as it is, hostile things are held."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clew.core.errors import BadInput, BadRecord, UnknownName, WorldError
from clew.worlds.workspace import Bounds, Scan, TreeShelf, restore, tree_shelf
from clew.worlds.workspace.tree_changes import changes
from clew.worlds.workspace.tree_upkeep import keep_only, reached

NAMES = ("a", "b.py", ".gitignore", "odd name", "näive", "-rf", "line\nbreak", os.fsdecode(b"\xff\xfe"), ".hidden")


def held(root: Path) -> dict[str, tuple]:
    """Everything in a folder: kinds, modes, times and contents."""
    found = {}
    for path in sorted(root.rglob("*")):
        seen = path.lstat()
        kind = stat.S_IFMT(seen.st_mode)
        inside = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        mode = 0 if path.is_symlink() else stat.S_IMODE(seen.st_mode)
        found[str(path.relative_to(root))] = (kind, mode, seen.st_mtime_ns, inside)
    return found


def act(root: Path, rng: random.Random) -> None:
    """One operation on files, as an agent might do it."""
    files = [p for p in root.rglob("*") if p.is_file() and not p.is_symlink()]
    folders = [root, *(p for p in root.rglob("*") if p.is_dir() and not p.is_symlink())]
    target = rng.choice(folders) / rng.choice(NAMES)
    kind = rng.choice(["write", "write", "edit", "folder", "link", "rename", "chmod", "delete", "binary", "remove"])
    if kind in ("write", "binary") and not os.path.lexists(target):
        target.write_bytes(rng.randbytes(rng.randrange(2000)) if kind == "binary" else b"line\n" * rng.randrange(40))
    elif kind == "edit" and files:
        path = rng.choice(files)
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[: rng.randrange(50)] + b"edited")
    elif kind == "folder" and not os.path.lexists(target):
        target.mkdir()
    elif kind == "link" and not os.path.lexists(target):
        target.symlink_to(rng.choice(["/etc/passwd", "nowhere", "..", "a"]))
    elif kind == "rename" and files and not os.path.lexists(target):
        rng.choice(files).rename(target)
    elif kind == "chmod" and files:
        rng.choice(files).chmod(rng.choice([0o600, 0o755, 0o644, 0o400]))
    elif kind == "delete" and files:
        rng.choice(files).unlink()
    elif kind == "remove" and len(folders) > 1:
        shutil.rmtree(rng.choice(folders[1:]))


@pytest.mark.parametrize("part", range(6))
def test_whatever_is_done_in_a_folder_comes_back_at_every_step(part, tmp_path):
    shelf = TreeShelf(tmp_path / "shelf")
    for number in range(50):  # 300 sequences in all
        rng = random.Random(part * 50 + number)
        root = tmp_path / f"work{number}"
        root.mkdir()
        scan, steps = Scan(root, shelf), []
        for _ in range(6):
            act(root, rng)
            before = held(root)
            snapshot = scan.snapshot()
            assert held(root) == before
            assert not snapshot.left
            steps.append((snapshot, before))
        for at, (snapshot, before) in enumerate(steps):
            back = tmp_path / f"back{number}.{at}"
            restore(shelf, snapshot.tree, back)
            assert held(back) == before
            again = Scan(back, shelf).snapshot()
            assert (again.tree, again.state) == (snapshot.tree, snapshot.state)
            shutil.rmtree(back)


def test_a_repository_comes_back_with_its_commits_and_nested_ones(tmp_path):
    def git(*words, at):
        env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
        return subprocess.run(["git", *who, *words], cwd=at, env=env, check=True, capture_output=True, text=True).stdout

    root = tmp_path / "work"
    for place in (root, root / "vendor" / "inner"):
        place.mkdir(parents=True)
        git("init", "-q", at=place)
        (place / "file.py").write_text("one\n")
        git("add", "file.py", at=place)
        git("commit", "-qm", "first", at=place)
    (root / ".gitignore").write_text("ignored\n")
    (root / "ignored").write_text("kept all the same\n")
    shelf = TreeShelf(tmp_path / "shelf")
    scan = Scan(root, shelf)
    first = scan.snapshot()
    (root / "file.py").write_text("two\n")
    git("commit", "-qam", "second", at=root)
    second = scan.snapshot()
    for snapshot, commits in ((first, 1), (second, 2)):
        back = tmp_path / f"back{commits}"
        restore(shelf, snapshot.tree, back)
        assert len(git("log", "--oneline", at=back).splitlines()) == commits
        assert git("status", "--porcelain", at=back / "vendor" / "inner") == ""
        assert (back / "ignored").is_file()
    assert "file.py" in changes(shelf, first.tree, second.tree)
    assert not any(name.startswith("vendor") for name in changes(shelf, first.tree, second.tree))


def test_unchanged_files_cost_nothing_and_equal_folders_have_one_state(tmp_path):
    root, shelf = tmp_path / "work", TreeShelf(tmp_path / "shelf")
    for number in range(40):
        path = root / f"part{number % 4}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 5000)
        os.utime(path, ns=(1, 1))
    scan = Scan(root, shelf)
    first, size = scan.snapshot(), shelf.added
    assert size > 40 * 5000
    (root / "part0" / "file0").write_text("new")
    second = scan.snapshot()
    assert second.state != first.state
    assert shelf.added - size < 5000
    assert set(changes(shelf, first.tree, second.tree)) == {"part0/file0"}
    (root / "part0" / "file0").write_bytes(bytes([0]) * 5000)
    assert scan.snapshot().state == first.state


def test_a_file_that_changes_twice_within_a_tick_is_seen(tmp_path):
    root, shelf = tmp_path / "work", TreeShelf(tmp_path / "shelf")
    root.mkdir()
    scan, states = Scan(root, shelf), set()
    for number in range(30):
        (root / "file").write_bytes(b"%02d" % number)
        os.utime(root / "file", ns=(5, 5))
        states.add(scan.snapshot().state)
    assert len(states) == 30


def test_a_kill_in_the_midst_leaves_nothing_and_half_objects_are_swept(tmp_path):
    shelf = TreeShelf(tmp_path / "shelf")
    part = tmp_path / "shelf" / "new" / "999999999-abc"
    part.write_bytes(b"half")
    with shelf.writing():
        TreeShelf(tmp_path / "shelf")
        assert part.exists()  # somebody may be writing it
    TreeShelf(tmp_path / "shelf")
    assert not part.exists()
    root = tmp_path / "work"
    root.mkdir()
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom clew.worlds.workspace import Scan, TreeShelf\n"
        "replace, left = os.replace, [int(sys.argv[3])]\n"
        "def dying(a, b):\n    left[0] -= 1\n    left[0] or os.kill(os.getpid(), signal.SIGKILL)\n    replace(a, b)\n"
        "os.replace = dying\nScan(Path(sys.argv[1]), TreeShelf(Path(sys.argv[2]))).snapshot()\n"
    )
    for number in range(8):
        (root / f"file{number}").write_bytes(b"x" * 100 + bytes([number]))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for at in (1, 2, 3):
        done = subprocess.run([sys.executable, "-c", program, root, tmp_path / "shelf", str(at)], env=env)
        assert done.returncode == -9
    snapshot = Scan(root, TreeShelf(tmp_path / "shelf")).snapshot()
    assert list((tmp_path / "shelf" / "new").iterdir()) == []
    objects = list((tmp_path / "shelf").glob("??/*"))
    assert len(objects) == len(reached(shelf, [snapshot.tree])[0]) == 9


def test_nothing_is_restored_in_place_over_files_or_by_a_damaged_shelf(tmp_path):
    root, shelf = tmp_path / "work", TreeShelf(tmp_path / "shelf")
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_text("text")
    snapshot = Scan(root, shelf).snapshot()
    for place in (root, Path("/"), Path.home()):
        with pytest.raises(BadInput):
            restore(shelf, snapshot.tree, place)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="a link"):
        restore(shelf, snapshot.tree, tmp_path / "link")
    assert restore(shelf, snapshot.tree, tmp_path / "back", skip=frozenset({"sub"})) == 0
    with pytest.raises(UnknownName):
        restore(shelf, "0" * 32, tmp_path / "none")
    with pytest.raises(BadRecord, match="no digest"):
        shelf.get("../../../etc/passwd", b"clew.file.1")
    evil, _ = shelf.put_listing([shelf.listing(snapshot.tree)[0]._replace(name="..")])
    with pytest.raises(BadRecord, match="names what no folder holds"):
        restore(shelf, evil, tmp_path / "evil")
    inner = shelf.listing(snapshot.tree)[0].key
    content = Path(shelf._place(shelf.listing(inner)[0].key))
    content.chmod(0o644)
    content.write_text("changed")
    with pytest.raises(BadRecord, match="was changed on the disk"):
        restore(shelf, snapshot.tree, tmp_path / "changed")


def test_pipes_links_out_and_too_much_are_named(tmp_path):
    root, shelf = tmp_path / "work", TreeShelf(tmp_path / "shelf")
    root.mkdir()
    os.mkfifo(root / "pipe")
    (root / "out").symlink_to("/etc")
    snapshot = Scan(root, shelf).snapshot()
    assert snapshot.left == (("pipe", "neither a file, a folder nor a link"),)
    assert [entry.name for entry in shelf.listing(snapshot.tree)] == ["out"]
    (root / "large").write_bytes(b"x" * 1001)
    with pytest.raises(WorldError, match="large has 1,001 bytes"):
        Scan(root, shelf, Bounds(file=1000)).snapshot()
    with pytest.raises(WorldError, match="more than 2 files"):
        Scan(root, shelf, Bounds(entries=2)).snapshot()
    deep = root
    for _ in range(6):
        deep = deep / "d"
        deep.mkdir()
    with pytest.raises(WorldError, match="more than 4 folders deep"):
        Scan(root, shelf, Bounds(depth=4)).snapshot()
    with pytest.raises(WorldError, match="is no folder"):
        Scan(tmp_path / "missing", shelf).snapshot()


def test_objects_that_no_snapshot_needs_are_removed(tmp_path):
    root, shelf = tmp_path / "work", TreeShelf(tmp_path / "shelf")
    root.mkdir()
    scan, kept = Scan(root, shelf), []
    for number in range(3):
        (root / "file").write_bytes(bytes([number]) * 1000)
        kept.append(scan.snapshot().tree)
    assert keep_only(shelf, lambda: kept[2:]) == (0, 0)  # a run may be about to name them
    for mark in (tmp_path / "shelf" / "recent").iterdir():
        os.utime(mark, (1, 1))
    count, size = keep_only(shelf, lambda: kept[2:], remove=False)
    assert (count, size > 2000) == (4, True)
    assert keep_only(shelf, lambda: kept[2:]) == (count, size)
    restore(shelf, kept[2], tmp_path / "back")
    with pytest.raises(UnknownName):
        restore(shelf, kept[0], tmp_path / "gone")


def test_marks_of_snapshots_that_runs_named_long_ago_do_not_pile_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tree_shelf, "MANY", 4)
    monkeypatch.setattr(tree_shelf, "RECENT", 0.05)
    root, shelf = tmp_path / "work", TreeShelf(tmp_path / "shelf")
    root.mkdir()
    scan = Scan(root, shelf)
    for number in range(20):
        (root / "file").write_text(str(number))
        scan.snapshot()
        time.sleep(0.02)
    assert len(list((tmp_path / "shelf" / "recent").iterdir())) < 12

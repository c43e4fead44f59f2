"""Folders that mean harm, and folders that change while they are read: nothing outside changes, each limit is named."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from clew.core.errors import BadInput, BadRecord, StoreFull, WorldError
from clew.worlds.workspace import Bounds, Scan, TreeShelf, restore, tree_scan
from clew.worlds.workspace.tree_shelf import CONTENT, FILE, FOLDER, LINK, Entry
from tests.worlds.test_workspace_trees import held


@pytest.fixture
def place(tmp_path) -> tuple[Path, TreeShelf, dict]:
    """A folder to work in, a shelf, and what lies outside of the folder."""
    (tmp_path / "work").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("stays")
    (tmp_path / "outside" / "precious").chmod(0o640)
    return tmp_path / "work", TreeShelf(tmp_path / "shelf"), held(tmp_path / "outside")


def test_links_out_and_hard_links_change_nothing_outside(place, tmp_path):
    root, shelf, outside = place
    precious = tmp_path / "outside" / "precious"
    (root / "link").symlink_to(precious)
    (root / "folder").symlink_to(tmp_path / "outside")
    (root / "absolute").symlink_to("/")
    (root / "up").symlink_to("../outside/precious")
    os.link(precious, root / "hard")
    snapshot = Scan(root, shelf).snapshot()
    restore(shelf, snapshot.tree, tmp_path / "back")
    assert [e.kind for e in shelf.listing(snapshot.tree)] == [LINK, LINK, FILE, LINK, LINK]
    back = tmp_path / "back"
    assert os.readlink(back / "up") == "../outside/precious"
    assert (back / "hard").stat().st_nlink == 1
    (back / "hard").write_text("changed in the branch")
    (root / "hard").unlink()
    assert held(tmp_path / "outside") == outside


def test_a_link_whose_target_is_no_utf8_comes_back(place, tmp_path):
    root, shelf, _ = place
    os.symlink(b"to \xff\xfe", os.fsencode(root / "odd"))
    restore(shelf, Scan(root, shelf).snapshot().tree, tmp_path / "back")
    assert os.readlink(os.fsencode(tmp_path / "back" / "odd")) == b"to \xff\xfe"


def test_names_that_lead_out_are_refused_and_make_nothing(place, tmp_path):
    root, shelf, outside = place
    key = shelf.put(b"evil", CONTENT)
    for name in ("..", ".", "", "../outside/precious", "/etc/cron.d/x", "a\0b"):
        evil, _ = shelf.put_listing([Entry(name, FILE, 0o644, 0, key, key, 4)])
        with pytest.raises(BadRecord, match="names what no folder holds"):
            restore(shelf, evil, tmp_path / "evil")
        tree, _ = shelf.put_listing([Entry("sub", FOLDER, 0o755, 0, evil, evil, 0)])
        with pytest.raises(BadRecord, match="names what no folder holds"):
            restore(shelf, tree, tmp_path / f"below{len(name)}{name == '.'}")
    twice = [Entry("a", LINK, 0o777, 0, shelf.put(b"../outside", CONTENT), key, 10)]
    twice.append(
        Entry("a", FOLDER, 0o755, 0, shelf.put_listing([Entry("precious", FILE, 0, 0, key, key, 4)])[0], key, 0)
    )
    with pytest.raises(
        BadRecord, match="names what no folder holds"
    ):  # a link, and then what would be written through it
        restore(shelf, shelf.put_listing(twice)[0], tmp_path / "twice")
    for name in ("evil", "twice"):
        assert not (tmp_path / name).exists() or list((tmp_path / name).iterdir()) == []
    assert held(tmp_path / "outside") == outside
    assert list(root.iterdir()) == []


def test_a_snapshot_that_unfolds_without_end_is_refused(place, tmp_path, monkeypatch):
    _, shelf, _ = place
    key, state = shelf.put_listing([])
    for _ in range(60):  # two to the sixtieth folders in a few kilobytes
        key, state = shelf.put_listing([Entry(name, FOLDER, 0o755, 0, key, state, 0) for name in "ab"])
    monkeypatch.setattr("clew.worlds.workspace.tree_restore.Bounds", lambda: Bounds(entries=500))
    with pytest.raises(BadInput, match="a snapshot of more than 500 files"):
        restore(shelf, key, tmp_path / "back")
    for _ in range(500):
        key, state = shelf.put_listing([Entry("a", FOLDER, 0o755, 0, key, state, 0)])
    with pytest.raises(BadInput, match="more than 400 folders in folders"):
        restore(shelf, key, tmp_path / "deep")


def test_devices_pipes_and_sockets_are_named_and_never_opened(place, tmp_path):
    root, shelf, _ = place
    os.mkfifo(root / "pipe")  # opening it without a writer would wait for ever
    kinds = {"pipe"}
    for name, kind, device in (("null", stat.S_IFCHR, os.makedev(1, 3)), ("disk", stat.S_IFBLK, os.makedev(7, 99))):
        try:
            os.mknod(root / name, kind | 0o600, device)
        except PermissionError:
            continue
        kinds.add(name)
    (root / "file").write_text("text")
    snapshot = Scan(root, shelf).snapshot()
    assert {path for path, _ in snapshot.left} == kinds
    assert {why for _, why in snapshot.left} == {"neither a file, a folder nor a link"}
    assert restore(shelf, snapshot.tree, tmp_path / "back") == 1


def test_git_is_never_run_whatever_the_folder_asks_for(place, tmp_path):
    root, shelf, _ = place
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    told = tmp_path / "was-run"
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\necho run >> {told}\n")
    trap.chmod(0o755)

    def git(*words):
        return subprocess.run(["git", *words], cwd=root, env=env, capture_output=True, check=False)

    git("init", "-q")
    for name in ("fsmonitor", "hooksPath", "sshCommand", "pager", "editor"):
        git("config", f"core.{name}", str(tmp_path if name == "hooksPath" else trap))
    for name in ("clean", "smudge", "process"):
        git("config", f"filter.bad.{name}", str(trap))
    (root / ".gitattributes").write_text("* filter=bad\n")
    (root / "file.py").write_text("one\n")
    hooks = root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-commit", "fsmonitor-watchman", "post-index-change"):
        (hooks / name).write_text(trap.read_text())
        (hooks / name).chmod(0o755)
    git("add", "-A")
    assert told.exists()  # the trap works
    told.unlink()
    scan = Scan(root, shelf)
    first = scan.snapshot()
    (root / "file.py").write_text("two\n")
    scan.snapshot()
    restore(shelf, first.tree, tmp_path / "back")
    assert not told.exists()
    assert (tmp_path / "back" / ".git" / "hooks" / "post-checkout").stat().st_mode & 0o111


def test_a_file_of_ten_gigabytes_is_refused_at_once_and_named(place):
    root, shelf, _ = place
    with (root / "huge.bin").open("wb") as file:
        file.truncate(10 << 30)
    began = time.monotonic()
    with pytest.raises(WorldError, match=r"^huge\.bin has 10,737,418,240 bytes, and one file may have 1,073,741,824"):
        Scan(root, shelf).snapshot()
    assert time.monotonic() - began < 5
    assert list((shelf.folder / "new").iterdir()) == []
    (root / "huge.bin").unlink()
    assert Scan(root, shelf).snapshot().entries == 0


def test_every_bound_names_itself(place):
    root, shelf, _ = place
    for number in range(60):
        (root / f"file{number:02}").write_bytes(b"x" * 100)
    with pytest.raises(WorldError, match="work holds more than 50 files"):
        Scan(root, shelf, Bounds(entries=50)).snapshot()
    with pytest.raises(WorldError, match="with file10 more than 1,000 bytes are new in "):
        Scan(root, shelf, Bounds(total=1000)).snapshot()
    time.sleep(0.05)
    scan = Scan(root, shelf, Bounds(entries=60))
    assert scan.snapshot().entries == 60
    (root / "one more").touch()
    with pytest.raises(WorldError, match="more than 60 files"):
        scan.snapshot()
    (root / "one more").unlink()
    assert scan.snapshot().read == 0  # what was known before is known still


def test_large_files_go_by_pieces(place, tmp_path, monkeypatch):
    root, shelf, _ = place
    monkeypatch.setattr(tree_scan, "WHOLE", 1000)
    monkeypatch.setattr("clew.worlds.workspace.tree_restore.WHOLE", 1000)
    monkeypatch.setattr("clew.worlds.workspace.tree_shelf.CHUNK", 777)
    (root / "large").write_bytes(data := os.urandom(5000))
    snapshot = Scan(root, shelf).snapshot()
    assert shelf.listing(snapshot.tree)[0].key == TreeShelf(tmp_path / "other").put(data, CONTENT)
    restore(shelf, snapshot.tree, tmp_path / "back")
    assert (tmp_path / "back" / "large").read_bytes() == data
    content = Path(shelf._place(shelf.listing(snapshot.tree)[0].key))
    content.chmod(0o644)
    content.write_bytes(data[:-1] + b"x")
    with pytest.raises(BadRecord, match="was changed on the disk"):
        restore(shelf, snapshot.tree, tmp_path / "changed")
    assert list((tmp_path / "changed").iterdir()) == []


def between(monkeypatch, name: str, act) -> None:
    """Do something right after an entry called so was looked at, before it is opened."""
    real, done = os.open, []

    def opened(path, *words, **more):
        if path == name and "dir_fd" in more and not done:
            done.append(path)
            act()
        return real(path, *words, **more)

    monkeypatch.setattr(os, "open", opened)


@pytest.mark.parametrize("to", ["link", "file", "pipe", "gone"])
def test_a_folder_or_file_that_becomes_another_thing_meanwhile_is_not_followed(place, tmp_path, monkeypatch, to):
    root, shelf, outside = place
    for name in ("sub", "file"):
        back = tmp_path / f"back-{name}"
        (root / "sub").mkdir(exist_ok=True)
        (root / "sub" / "inner").write_text("inner")
        (root / "file").write_text("text")
        (root / "other").write_text("other")

        def swapped(path=root / name):
            path.rename(tmp_path / f"away-{path.name}")
            if to == "link":
                path.symlink_to(tmp_path / "outside" / ("precious" if path.name == "file" else "."))
            elif to == "file":
                path.mkdir() if path.name == "file" else path.write_text("now a file")
            elif to == "pipe":
                os.mkfifo(path)

        with monkeypatch.context() as patched:
            between(patched, name, swapped)
            snapshot = Scan(root, shelf).snapshot()
        assert [path for path, _ in snapshot.left] == ([] if to == "gone" else [name])
        restore(shelf, snapshot.tree, back)
        assert (back / "other").is_file()
        assert not os.path.lexists(back / name)
        assert "stays" not in {p.read_text() for p in back.rglob("*") if p.is_file()}
        path = root / name
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    assert held(tmp_path / "outside") == outside


def test_a_file_deleted_between_listing_and_looking_is_simply_not_there(place, monkeypatch):
    root, shelf, _ = place
    for name in ("a", "b", "c"):
        (root / name).write_text(name)
    real = os.scandir

    def scandir(fd):
        found = list(real(fd))
        if len(found) == 3:
            (root / "b").unlink()

        class Listed(list):
            def __enter__(self):
                return self

            def __exit__(self, *_):
                return None

        return Listed(found)

    monkeypatch.setattr(tree_scan.os, "scandir", scandir)
    snapshot = Scan(root, shelf).snapshot()
    assert (snapshot.left, [e.name for e in shelf.listing(snapshot.tree)]) == ((), ["a", "c"])


def test_a_file_that_grows_while_it_is_read_stays_within_its_bound_and_is_read_again(place, tmp_path, monkeypatch):
    root, shelf, _ = place
    (root / "log").write_bytes(b"x" * 1000)
    real = os.fstat

    def grown(fd):
        seen = real(fd)
        if seen.st_size == 1000:
            with (root / "log").open("ab") as file:
                file.write(b"y" * 500)
        return seen

    with monkeypatch.context() as patched:
        patched.setattr(tree_scan.os, "fstat", grown)
        scan = Scan(root, shelf)
        snapshot = scan.snapshot()
    assert shelf.listing(snapshot.tree)[0].size == 1500
    (root / "log").write_bytes(b"x" * 1000)
    with monkeypatch.context() as patched:
        patched.setattr(tree_scan.os, "fstat", grown)
        with pytest.raises(WorldError, match="log has 1,500 bytes, and one file may have 1,200"):
            Scan(root, shelf, Bounds(file=1200)).snapshot()
    again = scan.snapshot()
    restore(shelf, again.tree, tmp_path / "back")
    assert (tmp_path / "back" / "log").read_bytes() == (root / "log").read_bytes()


def test_a_folder_in_which_somebody_works_all_the_while_never_fails_a_snapshot(place, tmp_path):
    root, shelf, _ = place
    ended = threading.Event()

    def work() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            folder = root / f"d{number % 7}"
            folder.mkdir(exist_ok=True)
            (folder / f"f{number % 11}").write_bytes(b"z" * (number % 3000))
            if number % 5 == 0:
                (folder / f"f{number % 11}").unlink()
            if number % 50 == 0:
                folder.rename(root / f"moved{number}")
            if number % 3000 == 0:
                time.sleep(0.001)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        scan = Scan(root, shelf)
        trees = [scan.snapshot().tree for _ in range(40)]
    finally:
        ended.set()
        worker.join()
    for number, tree in enumerate(trees[::8]):
        restore(shelf, tree, tmp_path / f"back{number}")
    assert Scan(root, shelf).snapshot().state == scan.snapshot().state


def test_a_full_disk_is_an_error_and_no_file_that_is_left_out(place, monkeypatch):
    root, shelf, _ = place
    (root / "file").write_text("text")

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreFull, match="takes no more files: No space left"):
        Scan(root, shelf).snapshot()
    assert list((shelf.folder / "new").iterdir()) == []


def test_the_folder_itself_gets_its_mode_and_time_back(place, tmp_path):
    root, shelf, _ = place
    (root / "file").write_text("text")
    root.chmod(0o2750)
    os.utime(root, ns=(10**18, 10**18 + 7))
    snapshot = Scan(root, shelf).snapshot()
    restore(shelf, snapshot.tree, tmp_path / "back", root=snapshot.root)
    seen = (tmp_path / "back").stat()
    assert (stat.S_IMODE(seen.st_mode), seen.st_mtime_ns) == snapshot.root == (0o2750, 10**18 + 7)
    root.chmod(0o700)
    again = Scan(root, shelf).snapshot()
    assert (again.tree, again.state) == (snapshot.tree, snapshot.state)

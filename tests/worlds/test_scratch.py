"""Temporary folders that hostile code filled: removed whatever lies in them, swept when nobody owns them any more."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clew.sandbox import scratch
from clew.sandbox.room import held_by
from clew.sandbox.scratch import Scratch, remove, sweep
from tests.worlds.test_sandbox import USERS, as_user


def deep(place, levels):
    """Folders in folders, beyond what any path may name, with a file in the last."""
    fd = os.open(place, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


@pytest.mark.whole
@pytest.mark.parametrize("who", USERS)
def test_whatever_lies_in_a_folder_goes_with_it_and_nothing_outside(who, tmp_path):
    tmp_path.chmod(0o777)
    for above in tmp_path.parents:  # pytest's own, closed to others; side by side there is one more
        if above.stat().st_uid == os.getuid() and above.name.startswith(("pytest-", "popen-")):
            above.chmod(0o755)

    def made():
        outside = tmp_path / f"outside-{who}"
        outside.mkdir()
        (outside / "precious").write_text("stays")
        (outside / "precious").chmod(0o640)
        with Scratch("test") as place:
            deep(place, 3000)
            (place / "links").mkdir()
            for name, to in (("file", "precious"), ("folder", "."), ("gone", "nothing")):
                os.symlink(outside / to, place / "links" / name)
                os.symlink(outside / to, place / name)
            os.link(outside / "precious", place / "hard")
            os.mkfifo(place / "pipe")
            shut = place / "shut"
            (shut / "inner" / "more").mkdir(parents=True)
            (shut / "file").touch()
            os.symlink(outside / "precious", shut / "link")  # who opens its folder must not open what it leads to
            for path in (shut / "file", shut / "inner" / "more", shut / "inner", shut, place / "links"):
                path.chmod(0)
            place.chmod(0o500)
        return os.path.lexists(place), oct((outside / "precious").stat().st_mode), sorted(os.listdir(outside))

    assert as_user(who, made) == (False, "0o100640", ["precious"])


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    assert not remove(tmp_path / "link")
    assert remove(tmp_path / "nothing")
    assert (tmp_path / "outside" / "precious").exists()


def test_folders_of_the_killed_are_swept_and_those_of_the_living_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    source = str(Path(__file__).resolve().parents[2] / "src")
    code = (
        "from clew.sandbox.scratch import Scratch\nimport time\nplace = Scratch('test')\n"
        "(place.path / 'kept').touch()\nprint(place.path, flush=True)\ntime.sleep(600)"
    )
    env = {**os.environ, "PYTHONPATH": source}
    child = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    theirs = Path(child.stdout.readline().strip())
    before = set(threading.enumerate())
    own = Scratch("test")
    for sweeper in set(threading.enumerate()) - before:  # it would sweep what is made old below
        sweeper.join()
    other = tmp_path / "clew-workspace-of-somebody"
    other.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(tmp_path / "outside")
    for path in (theirs, own.path, other, tmp_path / "outside"):
        os.utime(path, (1, 1))
    assert sweep(tmp_path) == []
    child.kill()
    child.wait()
    child.stdout.close()
    os.utime(theirs, (time.time(),) * 2)
    assert sweep(tmp_path) == []  # it may just have been made
    os.utime(theirs, (1, 1))
    assert sweep(tmp_path) == [theirs.name]
    assert own.path.exists()
    assert other.exists()
    assert (tmp_path / "outside").exists()
    own.close()
    assert not own.path.exists()


def test_a_folder_that_is_filled_deeper_than_anybody_counts_is_over_its_bound(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 9000)
    os.symlink("/", tmp_path / "out")
    (tmp_path / "b").mkdir()
    assert held_by(tmp_path) == (sum(p.lstat().st_blocks * 512 for p in tmp_path.iterdir()), 3)
    before = len(os.listdir("/proc/self/fd"))
    deep(tmp_path / "b", 300)
    assert held_by(tmp_path)[0] == float("inf")
    assert len(os.listdir("/proc/self/fd")) == before
    assert remove(tmp_path / "b")

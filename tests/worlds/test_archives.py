"""What goes into a sandbox's folder and comes out of it: names, modes and bounds, whatever lies there. Nothing runs."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from clew.core.errors import BadInput
from clew.sandbox.archives import DEEPEST, collect, contents, executables, pack, write


def taken(
    folder: Path, names: Sequence[str], size: int = 1000, count: int = 1000
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """What ``collect`` gives; no descriptor stays open."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    before = set(os.listdir("/proc/self/fd"))
    try:
        return collect(fd, names, size, count)
    finally:
        assert set(os.listdir("/proc/self/fd")) <= before
        os.close(fd)


def test_files_are_taken_by_name_and_folders_whole(tmp_path):
    write({"a": b"1", "d/b": b"22", "d/e/c": b"333", "f/x": b"4"}, tmp_path)
    (tmp_path / "d" / "empty").mkdir()
    assert taken(tmp_path, ["a", "d"]) == ({"a": b"1", "d/b": b"22", "d/e/c": b"333"}, ())
    assert taken(tmp_path, ["d/e/c", "f"]) == ({"d/e/c": b"333", "f/x": b"4"}, ())
    assert taken(tmp_path, ["."]) == ({"a": b"1", "d/b": b"22", "d/e/c": b"333", "f/x": b"4"}, ())
    absent = ["absent", "absent/x", "d/absent", "d/absent/x", "a"]
    assert taken(tmp_path, absent) == ({"a": b"1"}, ()), "what is not there is left out, and what follows is not"


def test_no_link_is_followed_and_no_special_file_opened(tmp_path):
    write({"outside/x": b"secret", "in/own": b"1"}, tmp_path)
    inside = tmp_path / "in"
    (inside / "link").symlink_to("../outside/x")
    (inside / "way").symlink_to("../outside")
    os.mkfifo(inside / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(inside / "socket"))
        refused = tuple(f"{name}: no regular file" for name in ("link", "pipe", "socket", "way"))
        assert taken(inside, ["."]) == ({"own": b"1"}, refused)
        assert taken(inside, ["link", "pipe", "socket", "way"]) == ({}, refused)
    for through in ("way/x", "own/x", "pipe/x"):  # a pipe would be waited at for ever
        assert taken(inside, [through, "own"]) == ({"own": b"1"}, (f"{through}: Not a directory",))


def test_bytes_entries_and_depth_are_bounded(tmp_path):
    write({"a": b"1" * 60, "b": b"2" * 41, "c": b"3" * 40}, tmp_path)
    assert taken(tmp_path, ["."], size=100)[0].keys() == {"a", "c"}
    assert taken(tmp_path, ["."], size=100)[1] == ("b: no room for its 41 bytes",)
    os.link(tmp_path / "a", tmp_path / "d")
    assert taken(tmp_path, ["a", "d"], size=119)[1] == ("d: no room for its 60 bytes",), "each link counts whole"
    assert taken(tmp_path, ["."], count=5)[0].keys() == {"a", "b", "c", "d"}
    found, refused = taken(tmp_path, ["."], count=4)
    assert (found.keys(), refused) == ({"a", "b", "c"}, (".: too many entries",))
    deep = tmp_path / "x"
    for _ in range(DEEPEST):
        deep = deep / "x"
    write({"last": b"1"}, deep.parent)
    assert len(taken(tmp_path, ["x"])[0]) == 1
    write({"last": b"1"}, deep)
    found, refused = taken(tmp_path, ["x"])
    assert [path.count("/") for path in found] == [DEEPEST]
    assert refused == (f"{'x/' * DEEPEST}x: more than {DEEPEST} folders deep",)


def test_names_and_modes_of_what_is_packed(tmp_path):
    for name in ("a\0b", "\0", "/abs", "../up", "a/../../up", "", "."):
        with pytest.raises(BadInput, match="work folder"):
            pack({name: b"x"})
    plain, tool = tmp_path / "plain", tmp_path / "tool"
    for path, mode in ((plain, 0o640), (tool, 0o750)):
        path.write_bytes(b"#!/bin/sh\necho ran\n")
        path.chmod(mode)
    packed = pack({"plain": plain, "tool": tool, "made": b"m", "runs": "r", "deep/tool": tool}, executable={"runs"})
    assert executables(packed) == {"tool", "deep/tool", "runs"}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        modes = {entry.name: entry.mode for entry in archive}
        assert archive.extractfile("runs").read() == b"r"
    assert modes == {"plain": 0o640, "tool": 0o750, "made": 0o644, "runs": 0o755, "deep/tool": 0o750}
    for wrong in (tmp_path, tmp_path / "absent"):
        with pytest.raises(BadInput, match="is no file"):
            pack({"x": wrong})


def test_nothing_is_written_outside(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    write({"sub/x": b"1"}, inside)
    assert (inside / "sub/x").read_bytes() == b"1"
    for name in ("link/x", "link", "link/deeper/x"):
        with pytest.raises(BadInput, match="outside"):
            write({name: b"1"}, inside)
    assert list(outside.iterdir()) == []


def test_a_snapshot_that_somebody_altered_is_refused():
    """A header of negative size would be read for ever; a link, a device and a cut file are no packed files."""
    assert contents(pack({"a/b.py": "x", "c": b"\0"})) == {"a/b.py": b"x", "c": b"\0"}
    for change in ({"size": -512}, {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, {"type": tarfile.CHRTYPE}):
        first, second = tarfile.TarInfo("first"), tarfile.TarInfo("second")
        for name, value in change.items():
            setattr(second, name, value)
        heads = b"".join(one.tobuf(tarfile.GNU_FORMAT) for one in (first, second))
        for read in (contents, executables):
            with pytest.raises(BadInput, match="not files that were packed"):
                read(heads + bytes(1024))
    with pytest.raises(BadInput, match="not files that were packed"):
        contents(pack({"a": b"x" * 5000})[:2000])

"""A snapshot of a folder: everything in it, ignored files and ``.git`` too, without changing any of it.

``Scan`` remembers what it saw, so that the next snapshot reads only what changed. It must never write to the folder,
follow a link, or read what is no regular file.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import WorldError
from clew.core.keys import encode
from clew.worlds.workspace.tree_shelf import CONTENT, FILE, FOLDER, LINK, Entry, TreeShelf

RACY = 20_000_000  # nanoseconds; what changed so shortly before is read again next time, as times may not tell


class Bounds(NamedTuple):
    """Bounds of a folder: bytes of one file and of all that is read for one snapshot, entries, folders in folders."""

    file: int = 1 << 30
    total: int = 4 << 30
    entries: int = 1_000_000
    depth: int = 200


class Snapshot(NamedTuple):
    """tree: key of the root's listing. state: digest of what the folder holds, without times; equal for equal folders.

    entries: how many there are. read: bytes that had to be read. left: paths that a snapshot cannot hold (sockets,
    devices, pipes, what may not be read), with why.
    """

    tree: str
    state: str
    entries: int
    read: int
    left: tuple[tuple[str, str], ...]


class _Seen(NamedTuple):
    """A folder as it was seen: marks of its entries and their entries, and the keys of its listing."""

    marks: dict[str, tuple[int, ...]]
    entries: dict[str, Entry]
    key: str
    state: str


class Scan:
    """Takes snapshots of one folder.

    Args:
        root: the folder. shelf: where contents go.
        skip: names at the root that are left out, as that of the folder which holds the shelf.
    """

    def __init__(
        self, root: Path, shelf: TreeShelf, bounds: Bounds | None = None, skip: frozenset[str] = frozenset()
    ) -> None:
        self.skip = skip
        self.root, self.shelf, self.bounds = root, shelf, bounds or Bounds()
        self._known: dict[str, _Seen] = {}
        self._count = self._read = 0
        self._left = list[tuple[str, str]]()
        self._began = 0

    def snapshot(self) -> Snapshot:
        """Everything in the folder as it is now.

        Raises:
            WorldError: there is no such folder, or a bound is passed.
        """
        self._count = self._read = 0
        self._left, self._began = [], time.time_ns()
        known, self._known = self._known, {}
        try:
            fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise WorldError(f"{self.root} is no folder that can be read: {error.strerror}") from None
        try:
            key, state = self._folder(fd, "", 0, known)
        finally:
            os.close(fd)
        return Snapshot(key, state, self._count, self._read, tuple(self._left))

    def _folder(self, fd: int, path: str, depth: int, known: dict[str, _Seen]) -> tuple[str, str]:
        if depth > self.bounds.depth:
            raise WorldError(f"{path[:80]} is more than {self.bounds.depth} folders deep", remedy="Raise the bound.")
        had = known.get(path)
        marks, entries = dict[str, tuple[int, ...]](), dict[str, Entry]()
        with os.scandir(fd) as found:
            names = sorted((item for item in found if path or item.name not in self.skip), key=lambda item: item.name)
            self._count += len(names)
            if self._count > self.bounds.entries:
                raise WorldError(
                    f"{self.root} holds more than {self.bounds.entries:,} files", remedy="Raise the bound."
                )
            for item in names:
                entry, mark = self._entry(item, fd, path + item.name, depth, had, known)
                if entry is not None:
                    entries[item.name] = entry
                    marks[item.name] = mark
        same = had is not None and len(had.entries) == len(entries) and had.entries == entries
        key, state = (had.key, had.state) if had is not None and same else self.shelf.put_listing([*entries.values()])
        self._known[path] = _Seen(marks, entries, key, state)
        return key, state

    def _entry(
        self, item: os.DirEntry[str], fd: int, path: str, depth: int, had: _Seen | None, known: dict[str, _Seen]
    ) -> tuple[Entry | None, tuple[int, ...]]:
        name = item.name
        try:
            seen = item.stat(follow_symlinks=False)
            mode, mtime = stat.S_IMODE(seen.st_mode), seen.st_mtime_ns
            mark = (seen.st_mode, seen.st_size, mtime, seen.st_ctime_ns, seen.st_ino)
            if stat.S_ISDIR(seen.st_mode):
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                try:
                    key, state = self._folder(inner, f"{path}/", depth + 1, known)
                finally:
                    os.close(inner)
                return Entry(name, FOLDER, mode, mtime, key, state, 0), mark
            fresh = had is None or had.marks.get(name) != mark or seen.st_ctime_ns > self._began - RACY
            if had is not None and not fresh and name in had.entries:
                return had.entries[name], mark
            if stat.S_ISLNK(seen.st_mode):
                target = encode(os.readlink(name, dir_fd=fd))
                key = self.shelf.put(target, CONTENT)
                return Entry(name, LINK, 0o777, mtime, key, key, len(target)), mark
            if stat.S_ISREG(seen.st_mode):
                key, size = self._content(name, fd, path)
                settled = mark if seen.st_ctime_ns <= self._began - RACY else ()
                return Entry(name, FILE, mode, mtime, key, key, size), settled
            self._left.append((path, "neither a file, a folder nor a link"))
        except OSError as error:
            self._left.append((path, error.strerror or "it cannot be read"))
        return None, ()

    def _content(self, name: str, fd: int, path: str) -> tuple[str, int]:
        inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
        with os.fdopen(inner, "rb") as file:
            size = os.fstat(inner).st_size
            if size > self.bounds.file or self._read + size > self.bounds.total:
                raise WorldError(
                    f"{path[:200]} has {size:,} bytes, more than a snapshot may hold",
                    remedy=f"Remove it; one file may have {self.bounds.file:,} bytes, all {self.bounds.total:,}.",
                )
            data = file.read(self.bounds.file + 1)
        self._read += len(data)
        return self.shelf.put(data, CONTENT), len(data)

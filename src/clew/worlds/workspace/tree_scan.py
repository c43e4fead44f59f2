"""A snapshot of a folder: everything in it, ignored files and ``.git`` too, without changing any of it.

``Scan`` remembers what it saw, so that the next snapshot reads only what changed. It must never write to the folder,
follow a link, or read what is no regular file.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import WorldError
from clew.core.keys import encode
from clew.worlds.workspace.tree_shelf import CONTENT, FILE, FOLDER, LARGEST, LINK, Entry, TreeShelf

RACY = 20_000_000  # nanoseconds; what changed so shortly before is read again next time, as times may not tell
COARSE = 2_100_000_000  # the same where a file system notes whole seconds
WHOLE = 4 << 20  # bytes; a larger file goes to the shelf by pieces

Mark = tuple[int, ...]


class Bounds(NamedTuple):
    """Bounds of a folder: bytes of one file and of all that is read for one snapshot, entries, folders in folders."""

    file: int = 1 << 30
    total: int = 4 << 30
    entries: int = 1_000_000
    depth: int = 200


class Snapshot(NamedTuple):
    """tree: key of the root's listing. state: digest of what the folder holds, without times; equal for equal folders.

    entries: how many there are. read: bytes that had to be read. left: paths that a snapshot cannot hold (sockets,
    devices, pipes, what may not be read), with why. root: permission bits and time of the folder itself.
    """

    tree: str
    state: str
    entries: int
    read: int
    left: tuple[tuple[str, str], ...]
    root: tuple[int, int]


class _Seen(NamedTuple):
    """A folder as it was seen: marks of its entries and their entries, and the keys of its listing."""

    marks: dict[str, Mark]
    entries: dict[str, Entry]
    key: str
    state: str


_NEVER = _Seen({}, {}, "", "")


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
        self._began, self._sweeps = 0, -1

    def snapshot(self) -> Snapshot:
        """Everything in the folder as it is now.

        Raises:
            WorldError: there is no such folder, or a bound is passed.
        """
        self._count = self._read = 0
        self._left, self._began = [], time.time_ns()
        try:
            fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise WorldError(f"{self.root} is no folder that can be read: {error.strerror}") from None
        try:
            seen = os.fstat(fd)
            with self.shelf.writing() as sweeps:
                if sweeps != self._sweeps:  # what was kept for the last snapshot may have been removed
                    self._known, self._sweeps = {}, sweeps
                known, self._known = self._known, {}
                try:
                    key, state = self._folder(fd, "", 0, known)
                except BaseException:
                    self._known = known | self._known
                    raise
                self.shelf.mark(key)
            self.shelf.tidy()
        finally:
            os.close(fd)
        root = (stat.S_IMODE(seen.st_mode), seen.st_mtime_ns)
        return Snapshot(key, state, self._count, self._read, tuple(self._left), root)

    def _folder(self, fd: int, path: str, depth: int, known: dict[str, _Seen]) -> tuple[str, str]:
        if depth > self.bounds.depth:
            raise WorldError(
                f"{path[:80]} is more than {self.bounds.depth} folders deep", remedy="Remove what is deeper."
            )
        had = known.get(path, _NEVER)
        marks, kept, rest = had.marks, list[str](), list[tuple[str, os.stat_result, Mark]]()
        most = self.bounds.entries - self._count
        with os.scandir(fd) as found:
            for item in found:  # the one loop that every file passes at every snapshot: nothing is built but the mark
                name = item.name
                if not path and name in self.skip:
                    continue
                try:
                    s = item.stat(follow_symlinks=False)
                except OSError as error:
                    self._lost(path + name, error)
                    continue
                mark: Mark = (s.st_ctime_ns, s.st_ino, s.st_size, s.st_mtime_ns, s.st_mode)
                if marks.get(name) == mark:
                    kept.append(name)
                    continue
                rest.append((name, s, mark))
                if len(rest) > most:
                    break
        self._count += len(kept) + len(rest)
        if self._count > self.bounds.entries:
            remedy = "Let the program work in a smaller folder, or remove what it does not need."
            raise WorldError(f"{self.root} holds more than {self.bounds.entries:,} files", remedy=remedy)
        rest.sort(key=lambda one: one[0])
        fresh, settled = dict[str, Entry](), dict[str, Mark]()
        for name, seen, now in rest:
            entry = self._entry(name, seen, fd, path + name, depth, known)
            if entry is not None:
                fresh[name] = entry
                if entry.kind != FOLDER and not self._racy(seen.st_ctime_ns):
                    settled[name] = now
        self._known[path] = next_ = self._next(had, kept, fresh, settled)
        return next_.key, next_.state

    def _next(self, had: _Seen, kept: list[str], fresh: dict[str, Entry], settled: dict[str, Mark]) -> _Seen:
        """What is known of a folder from now on; its listing is kept where it differs from the last one."""
        same = len(kept) + len(fresh) == len(had.entries) and had is not _NEVER
        if same and all(had.entries.get(name) == entry for name, entry in fresh.items()):
            had.marks.update(settled)
            return had
        entries = {name: had.entries[name] for name in kept} | fresh
        entries = {name: entries[name] for name in sorted(entries)}
        marks = {name: had.marks[name] for name in kept} | settled
        return _Seen(marks, entries, *self.shelf.put_listing([*entries.values()]))

    def _racy(self, changed: int) -> bool:
        """Whether another change right after this one might have the same time."""
        return changed > self._began - (RACY if changed % 1_000_000_000 else COARSE)

    def _lost(self, path: str, error: OSError) -> None:
        """Note what could not be read; what was removed meanwhile is simply not there."""
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            self._left.append((path, "it became something else while it was read"))
        elif error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise WorldError(f"{path[:200]} could not be read: {error.strerror}", remedy="Free some of it.")
        elif error.errno not in (errno.ENOENT, errno.ESTALE):
            self._left.append((path, error.strerror or "it cannot be read"))

    def _entry(
        self, name: str, seen: os.stat_result, fd: int, path: str, depth: int, known: dict[str, _Seen]
    ) -> Entry | None:
        mode, mtime = stat.S_IMODE(seen.st_mode), seen.st_mtime_ns
        try:
            if stat.S_ISDIR(seen.st_mode):
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                try:
                    key, state = self._folder(inner, f"{path}/", depth + 1, known)
                finally:
                    os.close(inner)
                return Entry(name, FOLDER, mode, mtime, key, state, 0)
            if stat.S_ISLNK(seen.st_mode):
                target = encode(os.readlink(name, dir_fd=fd))
                key = self.shelf.put(target, CONTENT)
                return Entry(name, LINK, 0o777, mtime, key, key, len(target))
            if stat.S_ISREG(seen.st_mode):
                key, size = self._content(name, fd, path)
                return Entry(name, FILE, mode, mtime, key, key, size)
            self._left.append((path, "neither a file, a folder nor a link"))
        except OSError as error:
            self._lost(path, error)
        return None

    def _content(self, name: str, fd: int, path: str) -> tuple[str, int]:
        inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
        try:
            seen = os.fstat(inner)
            if not stat.S_ISREG(seen.st_mode):  # a pipe has taken its place since
                raise OSError(errno.ENXIO, "")
            most = min(self.bounds.file, self.bounds.total - self._read, LARGEST)
            if seen.st_size > most:
                raise self._large(path, seen.st_size)
            if seen.st_size > WHOLE:
                try:
                    key, size = self.shelf.put_file(inner, most)
                except WorldError:
                    raise self._large(path, os.fstat(inner).st_size) from None
            else:
                data = os.read(inner, seen.st_size + 1)
                if len(data) != seen.st_size and len(data) > 0:  # it grows, shrinks, or does not tell its size
                    os.lseek(inner, 0, os.SEEK_SET)
                    return self._grown(inner, path, most)
                key, size = self.shelf.put(data, CONTENT), len(data)
        finally:
            os.close(inner)
        self._read += size
        return key, size

    def _grown(self, fd: int, path: str, most: int) -> tuple[str, int]:
        """A file whose size changes while it is read: as much as there is when its end is reached."""
        try:
            key, size = self.shelf.put_file(fd, most)
        except WorldError:
            raise self._large(path, os.fstat(fd).st_size) from None
        self._read += size
        return key, size

    def _large(self, path: str, size: int) -> WorldError:
        if size > (most := min(self.bounds.file, LARGEST)):
            return WorldError(f"{path[:200]} has {size:,} bytes, and one file may have {most:,}", remedy="Remove it.")
        told = f"with {path[:200]} more than {self.bounds.total:,} bytes are new in {self.root}"
        return WorldError(told, remedy="Remove what the program does not need.")

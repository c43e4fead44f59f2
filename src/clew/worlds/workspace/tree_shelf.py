"""The shelf of trees: contents of files and listings of folders, each kept once under a digest of its bytes.

``Scan`` puts objects there, ``restore`` reads them, ``tree_upkeep`` removes them. An object is written whole or not at
all, so that a kill leaves none that is cut short; what it left half-written is swept when the shelf is opened again.
An object must never be changed once it is there, and none may be removed while a snapshot is taken: who writes holds
the shelf's lock together with others who write, who removes holds it alone.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, BadRecord, StoreError, StoreFull, UnknownName, WorldError
from clew.core.keys import SIZE, digest, encode
from clew.worlds.workspace.tree_lock import PATIENCE, TreeLock

CONTENT, LISTING, STATE = b"clew.file.1", b"clew.folder.1", b"clew.tree.1"
FILE, FOLDER, LINK = "f", "d", "l"
KINDS = (FILE, FOLDER, LINK)
LONGEST = 64 << 20  # bytes of a listing
LARGEST = (1 << 32) - 1  # bytes of a content: a digest's length prefix has four bytes
CHUNK = 1 << 20  # bytes that are read at once of what may be large
MANY = 256  # new marks after which old ones are looked for
RECENT = 3600.0  # seconds for which a sweep keeps a snapshot that no run names yet
_row = json.JSONEncoder(separators=(",", ":")).encode


class Erased(UnknownName):
    """What was asked for was erased from the shelf, for good."""


class Entry(NamedTuple):
    """A name in a folder.

    name: as the file system has it, with surrogates for bytes that are no UTF-8. kind: FILE, FOLDER or LINK. mode:
    permission bits. mtime: nanoseconds. key: of the content, of the listing, or of the link's target, hexadecimal.
    state: as key, but of what the entry holds without times. size: bytes of a file or target.
    """

    name: str
    kind: str
    mode: int
    mtime: int
    key: str
    state: str
    size: int


def is_key(text: str) -> bool:
    """Whether a text has the form of a key."""
    return len(text) == 32 and not set(text) - set("0123456789abcdef")


class TreeShelf:
    """Objects in a folder, by digest. Threads may share one.

    Args:
        folder: made if it is not there.
        readonly: make and sweep nothing; objects can be read, and nothing else.

    Raises:
        BadInput: the place is no folder.
    """

    def __init__(self, folder: Path, readonly: bool = False) -> None:
        self.folder = folder
        self.added = 0  # bytes that this shelf put there
        self._at = os.fspath(folder)
        self._gone, self._sweeps, self._marks = frozenset[str](), -1, 0
        if readonly:
            return
        try:
            for name in ("new", "gone", "recent"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            self._lock = TreeLock(os.fspath(folder / "lock"))
        except OSError as error:
            raise BadInput(f"{folder} cannot hold a shelf: {error.strerror}", remedy="Name a folder.") from None
        self._made = {name for name in os.listdir(folder) if len(name) == 2}
        with suppress(BlockingIOError), self.alone(0):
            self._clear()

    # who writes, who removes

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Hold the lock with others who write: nothing is removed meanwhile. Gives how often something ever was."""
        with self._lock.together() as sweeps:
            self._learn(sweeps)
            yield sweeps

    @contextmanager
    def alone(self, patience: float = PATIENCE) -> Iterator[None]:
        """Hold the lock alone: no snapshot is being taken.

        Raises:
            BlockingIOError: somebody took snapshots all the while.
        """
        with self._lock.alone(patience) as sweeps:
            self._learn(sweeps)
            yield

    def removing(self) -> None:
        """Note that something is going to be removed, by who holds the lock alone: each next scan reads all anew."""
        self._lock.count(self._sweeps + 1)

    def _learn(self, sweeps: int) -> None:
        if sweeps != self._sweeps:
            self._gone, self._sweeps = frozenset(os.listdir(f"{self._at}/gone")), sweeps

    def _clear(self) -> None:
        """Remove what nobody can be writing any more: half-written objects, erased ones, marks that are old."""
        for name in os.listdir(f"{self._at}/new"):
            os.unlink(f"{self._at}/new/{name}")
        for key in filter(is_key, self._gone):
            with suppress(FileNotFoundError):
                os.unlink(self._place(key))
        self.recent()

    def mark(self, tree: str) -> None:
        """Keep a snapshot from being swept until the run it is of names it; for an hour, that is."""
        path = f"{self._at}/recent/{tree}"
        try:
            os.utime(path)
        except FileNotFoundError:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o444))
            self._marks += 1

    def tidy(self) -> None:
        """Remove marks that are old, now and then; who does holds no lock."""
        if self._marks >= MANY:
            with suppress(BlockingIOError), self.alone(0):
                self.recent()
                self._marks = 0

    def recent(self) -> list[str]:
        """Snapshots that were marked within the hour; older marks are removed. Who asks holds the lock alone."""
        found, oldest = list[str](), time.time() - RECENT
        with os.scandir(f"{self._at}/recent") as marks:
            for mark in marks:
                if mark.stat(follow_symlinks=False).st_mtime >= oldest:
                    found.append(mark.name)
                else:
                    os.unlink(mark.path)
        return [name for name in found if is_key(name)]

    # objects

    def _place(self, key: str) -> str:
        return f"{self._at}/{key[:2]}/{key[2:]}"

    def __contains__(self, key: str) -> bool:
        return is_key(key) and os.path.exists(self._place(key))

    def put(self, data: bytes, tag: bytes) -> str:
        """Keep bytes; gives their key. What was erased is not kept again."""
        key = digest(tag, data).hex()
        with self.writing():
            if not self._held(key, len(data)):
                part, fd = self._part()
                try:
                    self._write(fd, data)
                    self._take(part, key, len(data))
                except BaseException:
                    os.unlink(part)
                    raise
                finally:
                    os.close(fd)
        return key

    def put_file(self, fd: int, most: int) -> tuple[str, int]:
        """Keep what a file holds that may be large or grow, by pieces; gives key and size.

        Raises:
            WorldError: it has more bytes than ``most``.
        """
        with self.writing():
            part, copy = self._part()
            try:
                size = 0
                while piece := os.read(fd, CHUNK):
                    size += len(piece)
                    if size > most:
                        raise WorldError(f"a file of more than {most:,} bytes", remedy="Remove it.")
                    self._write(copy, piece)
                os.lseek(copy, 0, os.SEEK_SET)
                key = self._hashed(copy, size, CONTENT)
                if self._held(key, size):
                    os.unlink(part)
                else:
                    self._take(part, key, size)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(part)
                raise
            finally:
                os.close(copy)
        return key, size

    def _held(self, key: str, size: int) -> bool:
        """Whether the object is there, or shall never be. One of another size was lost by the disk, and is replaced."""
        if key[:2] not in self._made:
            os.makedirs(f"{self._at}/{key[:2]}", exist_ok=True)
            self._made.add(key[:2])
        elif key not in self._gone:
            try:
                return os.stat(self._place(key)).st_size == size
            except FileNotFoundError:
                return False
        return key in self._gone

    def _part(self) -> tuple[str, int]:
        """A new file in which an object is written, and it open."""
        part = f"{self._at}/new/{secrets.token_hex(8)}"
        try:
            return part, os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444)
        except OSError as error:
            raise self._full(error) from None

    def _write(self, fd: int, data: bytes) -> None:
        try:
            write(fd, data)
        except OSError as error:
            raise self._full(error) from None

    def _take(self, part: str, key: str, size: int) -> None:
        try:
            os.replace(part, self._place(key))
        except OSError as error:
            raise self._full(error) from None
        self.added += size

    def _full(self, error: OSError) -> StoreError:
        kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
        return kind(f"{self.folder} takes no more files: {error.strerror}", remedy="Free room; `clew store gc` helps.")

    def get(self, key: str, tag: bytes) -> bytes:
        """The bytes of a key.

        Raises:
            UnknownName: there are none; ``Erased`` where they were erased. BadRecord: they are not those that were put.
        """
        fd = self._open(key)
        try:
            parts = []
            while piece := os.read(fd, CHUNK):
                parts.append(piece)
        finally:
            os.close(fd)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if digest(tag, data).hex() != key:
            raise self._changed(key)
        return data

    def size(self, key: str) -> int:
        """How many bytes an object has on the disk, which need not be what a listing says. Raises as ``get`` does."""
        fd = self._open(key)
        try:
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def copy(self, key: str, into: int | None = None, tag: bytes = CONTENT) -> int:
        """Write an object into an open file by pieces, or only check it; gives its size. Raises as ``get`` does."""
        fd = self._open(key)
        try:
            size = os.fstat(fd).st_size
            if size > LARGEST or self._hashed(fd, size, tag, into) != key:
                raise self._changed(key)
        finally:
            os.close(fd)
        return size

    def put_copy(self, other: TreeShelf, key: str) -> None:
        """Keep a content of another shelf. Raises as ``get`` does."""
        fd = other._open(key)
        try:
            if self.put_file(fd, LARGEST)[0] != key:
                raise other._changed(key)
        finally:
            os.close(fd)

    def _open(self, key: str) -> int:
        if not is_key(key):
            raise BadRecord("a key that is no digest", remedy="The listing is damaged.")
        try:
            return os.open(self._place(key), os.O_RDONLY)
        except FileNotFoundError:
            if self.is_gone(key):
                raise Erased(f"{key} was erased", remedy="It cannot be brought back.") from None
            raise UnknownName(f"the shelf has no object {key}", remedy="It was removed, or never kept.") from None

    def is_gone(self, key: str) -> bool:
        """Whether an object was erased."""
        return key in self._gone or os.path.exists(f"{self._at}/gone/{key}")

    def _changed(self, key: str) -> BadRecord:
        if self.is_gone(key):  # it is being erased right now
            raise Erased(f"{key} was erased", remedy="It cannot be brought back.")
        return BadRecord(f"the object {key} was changed on the disk", remedy="Restore it from a copy.")

    def _hashed(self, fd: int, size: int, tag: bytes, into: int | None = None) -> str:
        """The key of what a file holds from where it stands, as ``digest`` gives it."""
        told = blake2b(struct.pack("<I", size), digest_size=SIZE, person=tag)
        while piece := os.read(fd, CHUNK):
            told.update(piece)
            if into is not None:
                write(into, piece)
        return told.hexdigest()

    # listings

    def put_listing(self, entries: Sequence[Entry]) -> tuple[str, str]:
        """Keep a folder's entries, which are in order; gives the keys of the listing and of its state."""
        rows = "\n".join(map(_row, entries))
        held = _row([[e.name, e.kind, e.mode, e.state] for e in entries])
        return self.put(encode(rows), LISTING), digest(STATE, encode(held)).hex()

    def listing(self, key: str) -> list[Entry]:
        """A folder's entries.

        Raises:
            UnknownName: there is no such listing. BadRecord: it is damaged, or names what no folder holds.
        """
        data = self.get(key, LISTING)
        if len(data) > LONGEST:
            raise BadRecord(f"a listing of {len(data):,} bytes", remedy="The shelf is damaged.")
        found = list[Entry]()
        try:
            for name, kind, mode, mtime, child, state, size in json.loads(b"[" + data.replace(b"\n", b",") + b"]"):
                found.append(Entry(name, kind, int(mode), int(mtime), str(child), str(state), int(size)))
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise BadRecord(f"the listing {key} is damaged", remedy="Restore it from a copy.") from None
        last = ""
        for entry in found:
            name = entry.name
            good = isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name
            if not good or name <= last or entry.kind not in KINDS or not 0 <= entry.mode <= 0o7777:
                raise BadRecord(f"the listing {key} names what no folder holds", remedy="Restore it from a copy.")
            last = name
        return found

    def walk(self, key: str, path: str = "") -> Iterator[tuple[str, Entry]]:
        """Every entry below a listing with its path, folders before what they hold."""
        for entry in self.listing(key):
            yield path + entry.name, entry
            if entry.kind == FOLDER:
                yield from self.walk(entry.key, f"{path}{entry.name}/")


def write(fd: int, data: bytes) -> None:
    """Write all of it: the system may take a part at a time."""
    done = os.write(fd, data)
    while done < len(data):
        done += os.write(fd, memoryview(data)[done:])

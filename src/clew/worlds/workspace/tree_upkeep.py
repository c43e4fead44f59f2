"""Upkeep of a shelf of trees: what nothing needs is removed, what must go is erased, all of it is checked.

``clew store gc``, ``redact`` and ``verify`` call this. Whoever removes holds the shelf alone, so that no snapshot can
count on an object that goes; it must name every snapshot that any run still needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from clew.core.errors import BadRecord, StoreError, UnknownName
from clew.core.keys import encode
from clew.worlds.workspace.tree_shelf import FOLDER, LISTING, Entry, Erased, TreeShelf, write

Roots = Callable[[], Iterable[str]]


def reached(shelf: TreeShelf, trees: Iterable[str]) -> tuple[set[str], list[str]]:
    """Keys of every object that these snapshots need, themselves among them, and those listings that are not there."""
    found, lost = set[str](), list[str]()
    stack = list(trees)
    while stack:
        key = stack.pop()
        if key in found:
            continue
        found.add(key)
        try:
            entries = shelf.listing(key)
        except (UnknownName, BadRecord):
            lost.append(key)
            continue
        stack.extend(entry.key for entry in entries if entry.kind == FOLDER)
        found.update(entry.key for entry in entries if entry.kind != FOLDER)
    return found, lost


@contextmanager
def _alone(shelf: TreeShelf) -> Iterator[None]:
    with suppress(BlockingIOError), shelf.alone():
        yield
        return
    remedy = "Try again when the program that is being recorded has ended."
    raise StoreError(f"snapshots are being taken onto {shelf.folder} all the time", remedy=remedy)


def keep_only(shelf: TreeShelf, trees: Roots, *, remove: bool = True) -> tuple[int, int]:
    """Remove every object that no snapshot needs; gives how many there are and their bytes.

    Snapshots of the last hour are kept: their run may be about to name them.

    Args:
        trees: gives the keys of the snapshots that are needed. It is asked when no snapshot is being taken any more.
        remove: without it they are only counted.

    Raises:
        StoreError: snapshots were being taken for a minute.
    """
    with _alone(shelf):
        needed, _ = reached(shelf, [*trees(), *shelf.recent()])
        idle = [(path, size) for key, path, size in objects(shelf) if key not in needed]
        if remove and idle:
            shelf.removing()
            for path, _ in idle:
                os.unlink(path)
    return len(idle), sum(size for _, size in idle)


def objects(shelf: TreeShelf) -> Iterator[tuple[str, str, int]]:
    """Key, path and bytes of every object."""
    for name in os.listdir(shelf.folder):
        if len(name) == 2:
            with os.scandir(shelf.folder / name) as found:
                yield from ((name + item.name, item.path, item.stat(follow_symlinks=False).st_size) for item in found)


def erase(shelf: TreeShelf, keys: Sequence[str]) -> list[str]:
    """Erase contents for good, in every snapshot that holds them; gives those that were there.

    The listings that name them stay. The same content is never kept again. What a kill leaves of it is removed when
    the shelf is opened next.

    Raises:
        StoreError: snapshots were being taken for a minute.
    """
    found = list[str]()
    with _alone(shelf):
        shelf.removing()
        for key in keys:
            os.close(os.open(shelf.folder / "gone" / key, os.O_WRONLY | os.O_CREAT, 0o444))
            if key in shelf:
                _overwrite(shelf, key)
                found.append(key)
    return found


def _overwrite(shelf: TreeShelf, key: str) -> None:
    """Zero an object where it lies, so far as the disk writes in place, and remove it."""
    path = shelf.folder / key[:2] / key[2:]
    path.chmod(0o600)
    fd = os.open(path, os.O_WRONLY)
    try:
        left, zeros = os.fstat(fd).st_size, bytes(1 << 20)
        while left > 0:
            write(fd, zeros[:left])
            left -= len(zeros)
        os.fsync(fd)
    finally:
        os.close(fd)
    path.unlink()


def faults(
    shelf: TreeShelf,
    trees: Iterable[str],
    seen: Callable[[], object] = lambda: None,
    lacking: Container[str] = (),
) -> Iterator[tuple[str, str]]:
    """Everything that is wrong with what snapshots need: the snapshot, and a sentence.

    Every object is read once, by pieces. What was erased is no fault: it was asked for.

    Args:
        seen: called at each object that was checked. lacking: keys of contents that may be missing from the shelf.
    """
    known, stack = set[bytes](), [(tree, tree, "", True) for tree in trees]
    while stack:
        key, tree, path, folder = stack.pop()
        if (short := encode(key)) in known:
            continue
        known.add(short)
        if key in lacking and key not in shelf:
            continue
        try:
            if folder:
                inner = shelf.listing(key)
                stack.extend((e.key, tree, f"{path}/{e.name}", e.kind == FOLDER) for e in inner)
            else:
                shelf.copy(key)
        except Erased:
            pass
        except (UnknownName, BadRecord) as error:
            yield tree, f"the files: {path[1:] or 'the folder itself'}: {error.message}"
        seen()


def found_at(shelf: TreeShelf, trees: Iterable[str], path: str) -> dict[str, int]:
    """Contents that a path, or what is below it, had in snapshots: keys with bytes; empty ones left out."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    level = {(key, 0) for key in trees}
    known, found = set[tuple[str, int]](), dict[str, int]()
    while level:
        key, depth = one = level.pop()
        if one in known:
            continue
        known.add(one)
        with suppress(UnknownName, BadRecord):
            for entry in shelf.listing(key):
                if depth < len(parts) and entry.name != parts[depth]:
                    continue
                if entry.kind == FOLDER:
                    level.add((entry.key, min(depth + 1, len(parts))))
                elif depth >= len(parts) - 1 and entry.size:
                    found[entry.key] = entry.size
    return found


def each(shelf: TreeShelf, trees: Iterable[str]) -> Iterator[tuple[str, Entry]]:
    """Every entry that snapshots hold, each listing read once: a folder that is in several has one of its paths."""
    known, stack = set[str](), [(key, "") for key in trees]
    while stack:
        key, path = stack.pop()
        if key in known:
            continue
        known.add(key)
        with suppress(UnknownName, BadRecord):
            for entry in shelf.listing(key):
                yield path + entry.name, entry
                if entry.kind == FOLDER:
                    stack.append((entry.key, f"{path}{entry.name}/"))


def take(shelf: TreeShelf, other: TreeShelf, trees: Iterable[str]) -> int:
    """Keep here what snapshots of another shelf need; gives how many bytes are new. What was erased there is erased.

    Raises:
        StoreError: snapshots were being taken for a minute, or the disk is full.
    """
    wanted = list(trees)
    inner = [entry for _, entry in each(other, wanted)]
    erase(
        shelf, sorted({e.key for e in inner if e.kind != FOLDER and other.is_gone(e.key) and not shelf.is_gone(e.key)})
    )
    before = shelf.added
    with shelf.writing():
        for entry in inner:
            if entry.kind != FOLDER and entry.key not in shelf and entry.key in other:
                shelf.put_copy(other, entry.key)
        for key in (*(entry.key for entry in inner if entry.kind == FOLDER), *wanted):
            if key not in shelf and key in other:
                shelf.put(other.get(key, LISTING), LISTING)
        for key in wanted:
            shelf.mark(key)
    return shelf.added - before

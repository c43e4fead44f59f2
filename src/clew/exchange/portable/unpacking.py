"""Reads a portable run: all in it is checked aside, and only then is anything taken into the store and its shelf.

``clew import`` calls ``unpack``. The file is hostile until it is proved: no name in it becomes a path, every object and
key is derived anew, and nothing that the store holds already is ever changed or erased by it.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import StoreError, StoreReadOnly
from clew.core.keys import BLOB, digest
from clew.core.printable import short
from clew.core.records import Cursor
from clew.exchange.files import loads
from clew.exchange.portable import container
from clew.exchange.portable.container import Manifest, Reader
from clew.serve import noted_files
from clew.store import Keeper, MemoryStore
from clew.store.sqlite.foreign import check_shape
from clew.store.sqlite.store import SQLiteStore
from clew.worlds.workspace import Bounds, TreeShelf
from clew.worlds.workspace.tree_shelf import CONTENT, FOLDER, LISTING, LONGEST, is_key

ID = re.compile(r"[\w.-]{1,80}")


class Unpacked(NamedTuple):
    """told: what the file says of itself. new: how many of each kind the store took. objects: those the shelf took."""

    told: Manifest
    new: dict[str, int]
    objects: int


def unpack(store: Keeper, path: Path, shelf: TreeShelf | None = None) -> Unpacked:
    """Take a portable run into a store, with the same ids and digests; a second time changes nothing.

    Args:
        shelf: where the snapshots of files go; None leaves them behind.

    Raises:
        BadInput: the file cannot be opened. BadRecord: it is none, damaged, altered, or holds what none has.
        StoreError: a run of it is in the store under the same id with another content. Nothing was taken.
    """
    with container.reading(path) as reader, tempfile.TemporaryDirectory() as folder:
        told = reader.manifest()
        place = Path(folder) / container.STORE
        with open(place, "wb") as file:
            for piece in reader.pieces(container.STORE):
                file.write(piece)
        if digest(BLOB, place.read_bytes()).hex() != told.store:
            raise reader.bad("holds runs that were altered")
        with _opened(reader, place) as runs:
            with _sound(reader):
                _check(reader, told, runs)
                noted = runs.annotations(None, noted_files.METHOD)
                gone = noted_files.left_out(noted)
                trees = [*noted_files.trees(runs)] if reader.objects or noted else []  # none: written with --no-files
                aside = TreeShelf(Path(folder) / "shelf")
                kept = _objects(reader, aside, trees, gone)
                MemoryStore().merge(runs)  # what cannot be taken in is told before anything is
            if len(kept) < len(reader.objects):
                raise reader.bad("holds objects that no snapshot names")
            added = 0
            if shelf is not None:
                for key, tag in kept.items():
                    added += key not in shelf
                    shelf.put(aside.get(key, tag), tag)
                for tree in trees:
                    shelf.mark(tree)
            new = store.merge(runs, erase=False)
    return Unpacked(told, new, added)


@contextmanager
def _sound(reader: Reader) -> Iterator[None]:
    """What is wrong with the store inside leaves as an error that names the file."""
    try:
        yield
    except StoreError as error:
        raise reader.bad(
            f"holds runs that cannot be read: {short(error.message.rpartition('runs.db: ')[2], 120)}"
        ) from error
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, struct.error) as error:
        raise reader.bad(f"holds a record that is damaged ({type(error).__name__})") from error
    except (RecursionError, MemoryError):
        raise reader.bad("holds a record that is nested too deeply or too large") from None


@contextmanager
def _opened(reader: Reader, place: Path) -> Iterator[SQLiteStore]:
    """The store inside, to be read only; one of an older Clew is first brought to the present shape."""
    with _sound(reader):
        check_shape(place)
        try:
            store = SQLiteStore(place, readonly=True)
        except StoreReadOnly:
            SQLiteStore(place).close()
            store = SQLiteStore(place, readonly=True)
    with store:
        yield store


def _check(reader: Reader, told: Manifest, runs: Keeper) -> None:
    """Refuse what a portable run never holds, and whatever does not verify.

    Raises:
        BadRecord: it holds such.
    """
    names = runs.run_ids()
    groups = runs.groups()
    if not all(map(ID.fullmatch, [*names, *groups])):
        raise reader.bad("holds a run whose id is none")
    if not names or {*told.runs, *told.along} != set(names):
        raise reader.bad("does not hold the runs that it says")
    for row in map(runs.row, names):
        told_of = [row.config, row.meta, row.settings, row.task or "{}", row.changes or "{}"]
        if not all(isinstance(loads(text), dict) for text in told_of):
            raise reader.bad(f"holds the run {row.id}, of which it does not say how it was started")
        for cursor in filter(None, (row.parent, row.spawned_by)):
            Cursor.parse(cursor)
    if runs.memories() or runs.trainings() or runs.leased():
        raise reader.bad("holds memories or trainings, which no portable run has", "Do not use it.")
    parents = {node.key: node.parent for node in runs.each_node()}
    done = set[bytes]()
    for key in parents:
        path = dict[bytes, None]()
        while key and key not in done and key in parents:
            if key in path:
                raise reader.bad("holds a conversation without a beginning")
            path[key] = None
            key = parents[key]
        done.update(path)
    if faults := runs.verify():
        where, what = faults[0]
        raise reader.bad(f"holds a record that was altered: {short(where, 80)}: {short(what, 120)}")


def _objects(reader: Reader, aside: TreeShelf, trees: list[str], absent: dict[str, str]) -> dict[str, bytes]:
    """Every object that trees need, put on a shelf aside, with its tag; each is what its key says.

    Raises:
        BadRecord: one is missing or altered, or a snapshot is larger than any that Clew takes.
    """
    found, sums = dict[str, bytes](), dict[str, tuple[int, int, int]]()
    for tree in trees:
        stack = [tree]
        while stack:  # a folder is done once all folders in it are
            key = stack[-1]
            if key in sums:
                stack.pop()
                continue
            if key not in found:
                _put(reader, aside, key, LISTING, LONGEST, found)
            entries = aside.listing(key)
            open_ = [e.key for e in entries if e.kind == FOLDER and e.key not in sums]
            if open_ and len(stack) > Bounds().depth:
                raise reader.bad("holds a snapshot with more folders in folders than Clew takes")
            if open_:
                stack += open_[:1]
                continue
            count, size, depth = len(entries), 0, 0
            for entry in entries:
                if entry.kind == FOLDER:
                    inner = sums[entry.key]
                    count, size, depth = count + inner[0], size + inner[1], max(depth, inner[2] + 1)
                else:
                    if entry.key not in absent or entry.key in reader.objects:
                        _put(reader, aside, entry.key, CONTENT, Bounds().file, found)
                        size += (aside.folder / entry.key[:2] / entry.key[2:]).stat().st_size
            sums[key] = count, size, depth
            if count > Bounds().entries or size > Bounds().total or depth > Bounds().depth:
                raise reader.bad("holds a snapshot larger than any that Clew takes")
    return found


def _put(reader: Reader, aside: TreeShelf, key: str, tag: bytes, most: int, found: dict[str, bytes]) -> None:
    """Put one object on the shelf aside, once it is proved to be what its key says."""
    if found.get(key) == tag:
        return
    if not is_key(key) or key not in reader.objects:
        raise reader.bad("lacks an object that a snapshot names")
    data = reader.all(reader.objects[key], most)
    if key in found or digest(tag, data).hex() != key:
        raise reader.bad(f"holds the object {key}, which was altered")
    aside.put(data, tag)
    found[key] = tag

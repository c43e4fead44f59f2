"""The files of runs in `clew store`: what no run needs is removed from the shelf, a file is erased, all are checked.

`store.py` calls this. The shelf of trees lies beside the stores of a folder, which share it: what is removed must be
needed by none of them. A store must not know the shelf, nor the shelf a store; here they meet.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from clew.cli.checkout import shelf_of
from clew.cli.shared import common
from clew.cli.shared.data_options import SHELF
from clew.core.errors import BadInput, BadRecord, StoreError, UnknownName
from clew.core.records import Fault
from clew.store.address import beside

if TYPE_CHECKING:
    from clew.store.base import Keeper
    from clew.worlds.workspace import TreeShelf


def _shelf(store: Keeper) -> TreeShelf | None:
    """The shelf beside a store; None where there is none, and it is not made then."""
    there = store.path != ":memory:" and (beside(store.path).parent / SHELF / "lock").exists()
    return shelf_of(store.path) if there else None


def _beside(store: Keeper) -> list[Path]:
    """The other stores that share the shelf.

    Raises:
        StoreError: a file that may be one cannot be read.
    """
    from clew.store.sqlite.database import holds_store

    own = beside(store.path)
    return [
        path for path in sorted(own.parent.iterdir()) if not (own.exists() and path.samefile(own)) and holds_store(path)
    ]


def _needed(store: Keeper, but: list[str]) -> list[str]:
    """Snapshots that runs of this store and of those beside it need, without some runs of this one.

    Raises:
        StoreError: a store beside it cannot be read, so that nobody knows what it needs.
    """
    from clew.serve.noted_files import trees
    from clew.store.sqlite.store import SQLiteStore

    gone = set(but)
    found = [*trees(store, [run for run in store.run_ids() if run not in gone])]
    for path in _beside(store):
        try:
            other = SQLiteStore(path, readonly=True)
            found += trees(other)
            other.close()
        except StoreError as error:
            told = f"{path.name} shares the files of runs with {store.path} and cannot be read: {error.message}"
            raise StoreError(told, remedy=f"{error.remedy} Or move it, with its files/, to another folder.") from None
    return found


def sweep(store: Keeper, runs: list[str], *, remove: bool) -> tuple[int, int]:
    """Remove from the shelf what no run needs but those given, or count it: how many objects, and their bytes."""
    from clew.worlds.workspace.tree_upkeep import keep_only

    shelf = _shelf(store)
    return (0, 0) if shelf is None else keep_only(shelf, lambda: _needed(store, runs), remove=remove)


def faults(store: Keeper) -> Iterator[Fault]:
    """What is wrong with the files that the runs of a store need."""
    from clew.serve.noted_files import METHOD, left_out, naming, trees
    from clew.worlds.workspace.tree_upkeep import faults as of_trees

    named: dict[str, str] = {}
    gone: dict[str, str] = {}
    for run in naming(store):
        try:
            named = trees(store, [run]) | named
            gone |= left_out(store.annotations([run], METHOD))
        except BadRecord as error:
            yield Fault(run, error.message)
    if not named:
        return
    if (shelf := _shelf(store)) is None:
        yield Fault("files", f"there is no {SHELF}/ beside the store, and its runs name snapshots: {len(named)}")
        return
    with common.bar("files of runs") as move:
        for tree, what in of_trees(shelf, named, lambda: move(advance=1), gone):
            yield Fault(named[tree], what)


LOOSE = 64 << 20  # bytes of a packed file that are looked at


class Erasure(NamedTuple):
    """What would be erased. keys: of contents. size: their bytes. paths: where snapshots of the store hold them.

    packs: whether snapshots hold packs of git, which may hold copies that nobody looks for.
    """

    shelf: TreeShelf
    keys: list[str]
    size: int
    paths: list[str]
    packs: bool


def held(store: Keeper, run: str, path: str) -> Erasure:
    """All that a path, or what is below it, ever held in the snapshots of a run, and git's loose copies of that.

    Raises:
        UnknownName: no snapshot has content at that path.
    """
    from clew.serve.noted_files import trees
    from clew.worlds.workspace.tree_upkeep import each, found_at

    shelf = _shelf(store)
    own = trees(store, [run, *(segment.run for segment in store.row(run).lineage)])
    if shelf is None or not own:
        raise UnknownName(f"run {run} was recorded without its files", remedy="`clew log` lists runs.")
    found = found_at(shelf, own, path)
    if not found:
        remedy = f"`clew checkout {run}` lists paths that changed; an empty file has nothing to erase."
        raise UnknownName(f"no snapshot of {run} has content at {path}", remedy=remedy)
    copies, paths, packs = _in_git(shelf, found), set[str](), False
    for at, entry in each(shelf, trees(store)):
        if entry.key in found or at[-41:] in copies:
            found[entry.key] = entry.size
            paths.add(at)
        packs = packs or at.endswith(".pack")
    return Erasure(shelf, sorted(found), sum(found.values()), sorted(paths), packs)


def _in_git(shelf: TreeShelf, contents: Iterable[str]) -> set[str]:
    """Where git would keep contents in its folder of objects, one file for each."""
    from clew.worlds.workspace.tree_shelf import CONTENT

    found = set[str]()
    for key in contents:
        try:
            data = shelf.get(key, CONTENT)
        except BadInput:  # it was erased before, or lost
            continue
        name = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        found.add(f"{name[:2]}/{name[2:]}")
    return found


class Copies(NamedTuple):
    """Files beside a store that hold a text. forks: in the folders of programs of forks. contents: keys of the shelf.

    left: those that are not erased here: names in snapshots, and files of trainings.
    """

    forks: list[Path]
    contents: list[str]
    left: list[str]

    @property
    def counts(self) -> dict[str, int]:
        found = {"files in folders of forks": len(self.forks), "files in snapshots": len(self.contents)}
        return {name: count for name, count in found.items() if count}


def copies(store: Keeper, words: Sequence[bytes]) -> Copies:
    """Every file beside a store, of those that it knows of, that holds one of some byte strings."""
    from clew.worlds.workspace.tree_upkeep import objects

    if store.path == ":memory:":
        return Copies([], [], [])
    own = beside(store.path)
    forks = [path for path in _files(own.parent / f"{own.name}.forks") if _holds(path, words)]
    left = [str(path) for path in _files(own.parent / "trainings") if _holds(path, words)]
    contents = list[str]()
    if (shelf := _shelf(store)) is not None:
        for key, name, _ in objects(shelf):
            if _holds(Path(name), words):
                try:
                    shelf.listing(key)
                    left.append(f"names of files in the snapshot {key}")
                except (BadInput, ValueError):
                    contents.append(key)
    return Copies(forks, contents, left)


def erase_copies(store: Keeper, found: Copies) -> None:
    """Erase the files that hold a text: those of forks are removed, contents of snapshots become tombstones."""
    from clew.worlds.workspace.tree_upkeep import erase

    for path in found.forks:
        remove_file(path)
    if found.contents and (shelf := _shelf(store)) is not None:
        erase(shelf, found.contents)


def forks_of(store: Keeper, runs: Iterable[str]) -> list[Path]:
    """The folders that programs of these forks worked in, as far as they are there."""
    own = beside(store.path)
    names = () if store.path == ":memory:" else runs
    return [folder for run in names if (folder := own.parent / f"{own.name}.forks" / run).is_dir()]


def remove_file(path: Path) -> None:
    """Zero a file where it lies, so far as the disk writes in place, and remove it."""
    try:
        path.chmod(0o600)
        with path.open("r+b") as file:
            left = path.stat().st_size
            while left > 0:
                left -= file.write(bytes(min(left, 1 << 20)))
    except OSError:
        pass  # a file that cannot be written is removed all the same
    path.unlink()


def _files(folder: Path) -> list[Path]:
    """Regular files below a folder; links are not followed."""
    return [
        Path(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if not Path(place, name).is_symlink() and Path(place, name).is_file()
    ]


def _holds(path: Path, words: Sequence[bytes]) -> bool:
    """Whether a file holds a text, in its name or its bytes, as git packs a loose object too."""
    if any(word in os.fsencode(path.name) for word in words):
        return True
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if any(data.find(word) >= 0 for word in words):
                return True
            if data[:1] != b"x":
                return False
            try:
                inside = zlib.decompressobj().decompress(data[:], LOOSE)
            except zlib.error:
                return False
            return any(word in inside for word in words)


def taken(store: Keeper, source: Keeper) -> int:
    """Keep the files that the runs of another store need beside this one too; gives how many bytes are new."""
    from clew.serve.noted_files import trees
    from clew.worlds.workspace.tree_upkeep import take

    other = _shelf(source)
    if other is None or not (named := trees(source)):
        return 0
    shelf = shelf_of(store.path)
    return 0 if shelf.folder.samefile(other.folder) else take(shelf, other, named)

"""The snapshots of runs' files as the viewer reads them: which one stood at a call, and the shelf where it lies.

Every page about files asks here. Nothing must ever be written: the shelf is opened to be read, and where there is none
it is not made.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, UnknownName
from clew.core.records import Cursor, RunRow
from clew.serve.gateway.run_files import files_of, standing
from clew.serve.noted_files import METHOD, WORLDS, Files, left_out
from clew.store import Keeper, Run, resolve
from clew.store.address import beside
from clew.worlds.workspace import TreeShelf
from clew.worlds.workspace.tree_shelf import FOLDER, Entry

SHELF = "files"  # beside the store
LISTING = 16 << 20  # bytes of a folder's listing that is read: some 100,000 entries
RUNS = 32  # whose snapshots are remembered


class Shown(TreeShelf):
    """A shelf as pages read it: nothing is written, and a folder of very many entries is named and not read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, readonly=True)

    def listing(self, key: str) -> list[Entry]:
        """A folder's entries.

        Raises:
            UnknownName: there is no such listing. BadRecord: it is damaged. BadInput: it has too many entries.
        """
        if key not in self:
            raise absent()
        if self.size(key) > LISTING:
            remedy = "`clew checkout` brings it back, and lists what changed."
            raise BadInput("a folder here holds more entries than this page reads", remedy=remedy)
        return super().listing(key)


def absent() -> UnknownName:
    """What is said where a snapshot or a folder of it is not there."""
    told = "these files are not on the shelf beside the store"
    return UnknownName(told, remedy="They were left out when the run was exported, or removed.")


class Known(NamedTuple):
    """The snapshots of a run in order, the last may be of its end; keys of contents that were left out of them.

    calls: how many Calls the run has.
    """

    run: str
    calls: int
    files: Sequence[Files]
    lacking: frozenset[str]

    def place(self, at: int) -> str:
        """A snapshot as ``clew checkout`` takes it: RUN@CALL, or RUN for the end."""
        return self.run if self.files[at].seq < 0 else f"{self.run}@{self.files[at].seq}"


class Standing(NamedTuple):
    """A snapshot that stood at a place. at: which of ``known.files``. shelf: where it lies.

    seq: the Call of the place, which may be a later one than that from which on it stood; None for the end.
    """

    known: Known
    at: int
    shelf: Shown
    seq: int | None

    @property
    def files(self) -> Files:
        return self.known.files[self.at]

    @property
    def tree(self) -> str:
        return self.files.tree

    @property
    def before(self) -> Standing | None:
        """The snapshot before it whose files differ; None for the first ones."""
        earlier = (at for at in range(self.at - 1, -1, -1) if self.known.files[at].state != self.files.state)
        found = next(earlier, None)
        return None if found is None else self._replace(at=found, seq=self.known.files[found].seq)

    @property
    def place(self) -> str:
        return self.known.run if self.seq is None else f"{self.known.run}@{self.seq}"


class Snapshots:
    """Snapshots of the runs of one store.

    Args:
        store: its path; the shelf lies beside it.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        self._folder = None if store == ":memory:" else beside(store).parent / SHELF
        self._known: OrderedDict[tuple[str, int, int], Known] = OrderedDict()
        self._lock = threading.Lock()

    def shelf(self) -> Shown:
        """Where the snapshots lie.

        Raises:
            UnknownName: there is no shelf beside the store.
        """
        if self._folder is None or not (self._folder / "lock").exists():
            told = f"there is no folder {SHELF}/ beside this store, so that no file of its runs can be shown"
            raise UnknownName(told, remedy=f"A store and its {SHELF}/ belong together: put both into one folder.")
        return Shown(self._folder)

    def of(self, store: Keeper, run: str) -> Known:
        """The snapshots of a run.

        Raises:
            UnknownName: no such run. BadRecord: what it notes of its files is damaged.
        """
        row = store.row(run)
        noted = store.annotations(_owners(row), METHOD)
        calls = store.summary(run).calls
        key = (run, calls, len(noted))  # a run that goes on has other snapshots by then
        with self._lock:
            if (found := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return found
        named = noted or row.taskset.startswith(WORLDS)
        files = files_of(Run(store, row)) if named else []
        found = Known(run, calls, files, frozenset(left_out(noted)))
        with self._lock:
            self._known[key] = found
            while len(self._known) > RUNS:
                self._known.popitem(last=False)
        return found

    def at(self, store: Keeper, place: str) -> Standing:
        """The snapshot that stood at RUN@CALL, or at the end of RUN.

        Raises:
            UnknownName: no such run, it has no files, or there is no shelf. BadInput: no files are known there.
        """
        name, sign, call = place.partition("@")
        run = resolve(store, name[:200])
        seq = Cursor.parse(f"{run}@{call[:40]}").seq if sign else None
        known = self.of(store, run)
        return Standing(known, standing(known.files, run, seq), self.shelf(), seq)


def has_files(store: Keeper, row: RunRow) -> bool:
    """Whether a run names snapshots of its files."""
    return row.taskset.startswith(WORLDS) or bool(store.annotations(_owners(row), METHOD))


def _owners(row: RunRow) -> list[str]:
    """A run and those that it goes on from, whose Calls have snapshots of their own."""
    return [row.id, *dict.fromkeys(segment.run for segment in row.lineage)]


def found_at(shelf: TreeShelf, tree: str, path: str) -> Entry | None:
    """What stands at a path of a snapshot; None where nothing does."""
    key, found = tree, None
    for name in path.split("/"):
        found = next((entry for entry in shelf.listing(key) if entry.name == name), None) if key else None
        if found is None:
            return None
        key = found.key if found.kind == FOLDER else ""
    return found


def differ(old: Entry | None, new: Entry | None) -> bool:
    """Whether two entries of a name differ in more than times."""
    if old is None or new is None:
        return old is not new
    return (old.kind, old.mode, old.state) != (new.kind, new.mode, new.state)


def written(path: str) -> str:
    """A path as an address can hold it: ``%`` and what is no Unicode as escapes, all else as it is."""
    return re.sub("[%\ud800-\udfff]", lambda c: "%25" if c[0] == "%" else f"%u{ord(c[0]):04X}", path)


def read(text: str) -> str:
    """What ``written`` wrote."""
    return re.sub("%(?:25|u([0-9A-F]{4}))", lambda c: chr(int(c[1], 16)) if c[1] else "%", text)

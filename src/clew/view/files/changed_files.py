"""Which files differ between two snapshots, as a bounded list, and how many lines of each changed.

The pages of patches and the lines beside steps are made of it. What programs keep for themselves, as ``.git``, is one
entry of the list. A list is cut at a number of paths, and lines are counted only while that stays cheap.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Container, Sequence
from itertools import islice
from typing import Any, NamedTuple

from clew.view.files.run_snapshots import Shown, written
from clew.worlds.workspace.tree_changes import each_change
from clew.worlds.workspace.tree_lines import counts
from clew.worlds.workspace.tree_patches import LARGEST, compared, kept_by_itself, of_a_program, sign_of
from clew.worlds.workspace.tree_shelf import FOLDER, Entry

MOST = 20_000  # paths of a list
LISTS = 4  # that are remembered: whoever reads one page of a list reads the next
COUNTED, BYTES = 200, 2 << 20  # files of one list whose lines are counted, and bytes of them in all
OWN = "own"


class Change(NamedTuple):
    """A path that differs. old, new: its entries, None where it has none.

    inner: how many entries changed below it, where it is a folder that a program keeps for itself; else 0.
    """

    path: str
    old: Entry | None
    new: Entry | None
    inner: int = 0

    @property
    def kind(self) -> str:
        """FILE, FOLDER, LINK, or OWN."""
        entry = self.new or self.old
        return OWN if self.inner or entry is None else entry.kind

    @property
    def size(self) -> int:
        """Bytes of both sides."""
        return sum(entry.size for entry in (self.old, self.new) if entry is not None)


class Changes(NamedTuple):
    """All that differs. more: whether the list ends at its bound; what is after it was not looked at."""

    listed: Sequence[Change]
    more: bool


class ChangedFiles:
    """Lists of what differs; the last few are remembered."""

    def __init__(self) -> None:
        self._lists: OrderedDict[tuple[str, str], Changes] = OrderedDict()
        self._lock = threading.Lock()

    def between(self, shelf: Shown, before: str, after: str) -> Changes:
        """What differs between two snapshots.

        Raises:
            UnknownName, BadRecord, BadInput: a listing is missing, damaged or too long.
        """
        with self._lock:
            if (known := self._lists.get((before, after))) is not None:
                self._lists.move_to_end((before, after))
                return known
        found = differing(shelf, before, after)
        with self._lock:
            self._lists[before, after] = found
            while len(self._lists) > LISTS:
                self._lists.popitem(last=False)
        return found


def differing(shelf: Shown, before: str, after: str) -> Changes:
    """What differs between two snapshots, a folder before what it holds. Raises as ``ChangedFiles.between``."""
    found: dict[str, Change] = {}
    seen = 0
    for path, old, new in islice(each_change(shelf, before, after), MOST + 1):
        seen += 1
        if seen > MOST:
            break
        if (place := of_a_program(path)) is None:
            found[path] = Change(path, old, new)
        else:
            known = found.get(place) or Change(place, None, None)
            found[place] = known._replace(inner=known.inner + 1)
    return Changes(list(found.values()), seen > MOST)


def told(change: Change, lines: tuple[int, int] | None) -> dict[str, Any]:
    """A change as a page shows it: ``at`` names its path in addresses; ``plus`` and ``minus`` count lines, if given."""
    sign = "*" if change.inner else sign_of(change.old, change.new)
    known = {"path": change.path, "at": written(change.path), "sign": sign, "kind": change.kind}
    known["note"] = kept_by_itself(change.inner) if change.inner else ""
    plus, minus = lines or (None, None)
    return known | {"plus": plus, "minus": minus}


class Counter:
    """Counts lines that changed, file by file, as long as there are not many and they are not large."""

    def __init__(self, shelf: Shown, lacking: Container[str]) -> None:
        self._shelf, self._lacking = shelf, lacking
        self._files, self._bytes = COUNTED, BYTES

    def of(self, change: Change) -> tuple[int, int] | None:
        """Lines added and removed, none of what is no text; None where they are no longer counted."""
        if change.kind in (OWN, FOLDER) or change.size > 2 * LARGEST:  # told by its size
            return 0, 0
        self._files -= 1
        if self._files < 0 or change.size > self._bytes:
            return None
        self._bytes -= change.size
        return counts(compared(self._shelf, change.old, change.new, 0, self._lacking).hunks)

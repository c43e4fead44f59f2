"""Patches between two snapshots, page by page: of one run the step before and after, or of two runs at a call each.

The transcript's steps, the page of files and the one that compares two runs ask here. A page is cut at numbers of
files, lines and characters, and in time, so that no change is too large to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clew.core.errors import UnknownName
from clew.store import Keeper
from clew.store.slices import Slice
from clew.view.files.changed_files import OWN, Change, ChangedFiles, Changes, Counter, told
from clew.view.files.run_snapshots import Snapshots, Standing, differ, found_at, read
from clew.worlds.workspace.tree_lines import UNENDED, Hunk, counts
from clew.worlds.workspace.tree_patches import Compared, compared, of_a_program

LISTED, PATCHES = 200, 20  # files of one page, without and with what changed in them
AROUND = 3  # unchanged lines before and after changed ones
FEW, MANY = 400, 10_000  # lines of one file where several are shown, and where it is the only one
LINES = 2_000  # lines of one page
WIDE = 1_000  # characters of a line


class Patches:
    """Patches between the snapshots of runs.

    Args:
        snapshots: of the store that the runs are in.
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots, self._changed = snapshots, ChangedFiles()

    def listed(self, store: Keeper, a: str, b: str, start: int = 0) -> dict[str, Any]:
        """Paths that differ between two places, from a number on, with how many lines came and went.

        Args:
            a, b: RUN@CALL each, or RUN for its end; an empty ``a`` is the step before ``b``.

        Raises:
            UnknownName, BadInput, BadRecord: no such run, no files are known there, or they cannot be read.
        """
        one, other, changes = self._between(store, a, b)
        count, time = Counter(other.shelf, _lacking(one, other)), Slice()
        rows = list[dict[str, Any]]()
        for change in changes.listed[start : start + LISTED]:
            rows.append(told(change, None if time.over else count.of(change)))
        return _paged(one, other, changes, rows, start)

    def patch(self, store: Keeper, a: str, b: str, start: int = 0) -> dict[str, Any]:
        """What changed in the files from a number on, as many as fit a page; each with its ``notes`` and ``hunks``.

        A hunk has the numbers of its first line on either side, and rows: a sign, the line, and how many characters of
        it are left out where there are any. ``rest`` says how many rows of a file are left out. Raises as ``listed``.
        """
        one, other, changes = self._between(store, a, b)
        rows, lines, time = list[dict[str, Any]](), 0, Slice()
        for change in changes.listed[start : start + PATCHES]:
            rows.append(_patch(one, other, change, AROUND, FEW))
            lines += sum(len(hunk["rows"]) for hunk in rows[-1]["hunks"])
            if lines > LINES or time.over:
                break
        return _paged(one, other, changes, rows, start)

    def file(self, store: Keeper, a: str, b: str, path: str, whole: bool = False) -> dict[str, Any]:
        """What changed in one file, as one of ``patch``, with all of its unchanged lines where it is wanted ``whole``.

        Raises:
            UnknownName: nothing changed there. Else as ``listed``.
        """
        name = read(path)
        one, other = self._pair(store, a, b)
        if of_a_program(name) == name:
            listed = self._changed.between(other.shelf, one.tree if one else other.tree, other.tree).listed
            change = next((change for change in listed if change.path == name), None)
        else:
            old, new = (
                None if side is None else found_at(side.shelf, side.tree, name) for side in (one or other, other)
            )
            change = Change(name, old, new) if differ(old, new) else None
        if change is None:
            raise UnknownName(f"{name[:200]!r} is the same in both", remedy="The list names what differs.")
        return _patch(one, other, change, MANY if whole else AROUND, MANY)

    def _pair(self, store: Keeper, a: str, b: str) -> tuple[Standing | None, Standing]:
        other = self._snapshots.at(store, b)
        return self._snapshots.at(store, a) if a else other.before, other

    def _between(self, store: Keeper, a: str, b: str) -> tuple[Standing | None, Standing, Changes]:
        one, other = self._pair(store, a, b)
        return one, other, self._changed.between(other.shelf, one.tree if one else other.tree, other.tree)


def _lacking(one: Standing | None, other: Standing) -> frozenset[str]:
    return other.known.lacking | (one.known.lacking if one else frozenset())


def _paged(
    one: Standing | None, other: Standing, changes: Changes, rows: list[dict[str, Any]], start: int
) -> dict[str, Any]:
    after, total = start + len(rows), len(changes.listed)
    found = {"a": one.place if one else None, "b": other.place, "files": rows, "total": total, "more": changes.more}
    return found | {"next": after if after < total else None}


def _patch(one: Standing | None, other: Standing, change: Change, around: int, most: int) -> dict[str, Any]:
    if change.kind == OWN:
        found = Compared([], [])
    else:
        found = compared(other.shelf, change.old, change.new, around, _lacking(one, other))
    drawn, rest = _cut(found.hunks, most)
    sizes = [None if entry is None else entry.size for entry in (change.old, change.new)]
    kinds = [None if entry is None else entry.kind for entry in (change.old, change.new)]
    known = told(change, counts(found.hunks))
    return known | {"notes": found.notes, "hunks": drawn, "rest": rest, "sizes": sizes, "kinds": kinds}


def _cut(found: Iterable[Hunk], most: int) -> tuple[list[dict[str, Any]], int]:
    """Hunks with as many rows as are shown, and how many are not."""
    drawn, rest = list[dict[str, Any]](), 0
    for hunk in found:
        rows = hunk.rows[:most]
        most -= len(rows)
        rest += len(hunk.rows) - len(rows)
        if rows:
            drawn.append({"old": hunk.old, "new": hunk.new, "rows": [_row(sign, line) for sign, line in rows]})
    return drawn, rest


def _row(sign: str, line: str) -> list[Any]:
    if line == UNENDED or len(line) <= WIDE:
        return [sign, line]
    return [sign, line[:WIDE], len(line) - WIDE]

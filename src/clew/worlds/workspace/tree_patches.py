"""What changed between two snapshots of a folder, as a patch for each file that a person reads.

``clew show --files`` and ``clew diff --files`` print ``patches``; the viewer draws what ``compared`` gives. A patch is
for reading, never for applying: it is cut at bounds, and folders that programs keep for themselves, as ``.git``, are
told in one line each. Contents are another program's text: who prints them makes them visible first
(``core.printable``).
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import NamedTuple

from clew.core.errors import BadRecord, UnknownName
from clew.worlds.workspace.tree_changes import changes
from clew.worlds.workspace.tree_lines import UNENDED, Hunk, hunks, lines_of
from clew.worlds.workspace.tree_shelf import CONTENT, FOLDER, LINK, Entry, TreeShelf
from clew.worlds.workspace.tree_states import CACHES

LARGEST = 1 << 20  # bytes of a file that is compared by lines
AROUND = 2  # lines of a patch before and after those that changed
SHOWN = 200  # lines of a patch
WIDEST = 400  # characters of a line of a patch
OWN = (".git", *CACHES)  # folders of programs' own


class Patch(NamedTuple):
    """What became of a path.

    sign: ``+`` it is new, ``-`` it is gone, ``*`` it changed. text: lines of a unified diff, or one line that says in
    words what changed where lines do not; empty for a new or removed empty file or folder.
    """

    path: str
    sign: str
    text: str


class Compared(NamedTuple):
    """How two entries differ. notes: what no lines tell, in words. hunks: what changed line by line."""

    notes: list[str]
    hunks: list[Hunk]


def patches(shelf: TreeShelf, before: str, after: str) -> Iterator[Patch]:
    """What changed from one snapshot to another, by path.

    Args:
        before, after: keys of the listings of the roots; an empty key stands for an empty folder.

    Raises:
        UnknownName, BadRecord: the shelf lacks a listing, or it is damaged.
    """
    inner: dict[str, int] = {}
    for path, (old, new) in changes(shelf, before, after).items():
        if (place := of_a_program(path)) is not None:
            inner[place] = inner.get(place, 0) + 1
            continue
        yield Patch(path, sign_of(old, new), _text(compared(shelf, old, new, AROUND)))
    for place, count in inner.items():
        yield Patch(place, "*", kept_by_itself(count))


def sign_of(old: Entry | None, new: Entry | None) -> str:
    """What became of a path, as ``Patch.sign`` has it."""
    return "+" if old is None else "-" if new is None else "*"


def kept_by_itself(count: int) -> str:
    """What is said of a folder that a program keeps for itself, of which so many entries changed."""
    return f"{count:,} entries changed, which a program keeps for itself"


def of_a_program(path: str) -> str | None:
    """The folder of a program's own that a path lies in, or is; None where it lies in none."""
    pieces = path.split("/")
    first = next((i for i, piece in enumerate(pieces) if piece in OWN), None)
    return None if first is None else "/".join(pieces[: first + 1])


def compared(
    shelf: TreeShelf, old: Entry | None, new: Entry | None, around: int, lacking: Container[str] = ()
) -> Compared:
    """How two entries differ; None stands for none. A content that cannot be read is told in the notes.

    Args:
        around: unchanged lines before and after changed ones. lacking: keys of contents that must not be shown.
    """
    told = list[str]()
    if old is not None and new is not None:
        if old.kind != new.kind:
            return Compared([f"{_named(shelf, old, lacking)} became {_named(shelf, new, lacking)}"], [])
        if old.mode != new.mode:
            told.append(f"mode {old.mode:o} became {new.mode:o}")
    kinds = {entry.kind for entry in (old, new) if entry is not None}
    if FOLDER in kinds:
        return Compared(told or ["folder"], [])
    if old is not None and new is not None and old.key == new.key:
        return Compared(told, [])
    if LINK in kinds:
        both = [_named(shelf, entry, lacking) for entry in (old, new) if entry is not None]
        return Compared([*told, " became ".join(both)], [])
    sides = [_content(shelf, entry, lacking) for entry in (old, new)]
    if gone := [
        f"{when}: {side}" for when, side in zip(("before", "after"), sides, strict=True) if isinstance(side, str)
    ]:
        return Compared([*told, *gone], [])
    texts = [lines_of(side) for side in sides if isinstance(side, bytes)]
    found = hunks(texts[0], texts[1], around) if len(texts) == 2 else None
    if found is None:
        before, after = (side if isinstance(side, int) else len(side) for side in sides)
        told.append(f"{before:,} bytes became {after:,}, binary or too long to compare by lines")
    return Compared(told, found or [])


def why_gone(shelf: TreeShelf, key: str, lacking: Container[str] = ()) -> str:
    """Why a content must not be shown: it was erased, or its key is among ``lacking``; empty where it may be."""
    if shelf.is_gone(key):
        return "erased from all snapshots"
    return "left out when the run was exported, for a credential in it" if key in lacking else ""


def _named(shelf: TreeShelf, entry: Entry, lacking: Container[str]) -> str:
    if entry.kind != LINK:
        return "a folder" if entry.kind == FOLDER else f"a file of {entry.size:,} bytes"
    target = _content(shelf, entry, lacking)
    return f"a link to {os.fsdecode(target)[:WIDEST]}" if isinstance(target, bytes) else "a link"


def _content(shelf: TreeShelf, entry: Entry | None, lacking: Container[str]) -> bytes | int | str:
    """The bytes of a file or of a link's target; how many there are where they are no text; or why there are none."""
    if entry is None:
        return b""
    if gone := why_gone(shelf, entry.key, lacking):
        return gone
    try:
        size = shelf.size(entry.key)
        if size > LARGEST:
            return size
        data = shelf.get(entry.key, CONTENT)
    except (UnknownName, BadRecord) as error:
        return why_gone(shelf, entry.key, lacking) or error.message
    return len(data) if b"\0" in data else data


def _text(found: Compared) -> str:
    """What a patch says, as text."""
    lines = [line for hunk in found.hunks for line in _unified(hunk)]
    more = [f"and {len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
    return "\n".join([*found.notes, *(line[:WIDEST] + "…" * (len(line) > WIDEST) for line in lines[:SHOWN]), *more])


def _unified(hunk: Hunk) -> Iterator[str]:
    ranges = []
    for start, kept in ((hunk.old, " -"), (hunk.new, " +")):
        length = sum(sign in kept for sign, _ in hunk.rows)
        ranges.append(f"{start}" if length == 1 else f"{start},{length}")
    yield f"@@ -{ranges[0]} +{ranges[1]} @@"
    yield from (sign + ("(no newline at the end)" if line == UNENDED else line) for sign, line in hunk.rows)

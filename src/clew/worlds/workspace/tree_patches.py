"""What changed between two snapshots of a folder, as a patch for each file that a person reads.

``clew show --files`` and ``clew diff --files`` print it. A patch is for reading, never for applying: it is cut at
bounds, and folders that programs keep for themselves, as ``.git``, are told in one line each. Contents are another
program's text: who prints them makes them visible first (``core.printable``).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from typing import NamedTuple

from clew.worlds.workspace.tree_shelf import CONTENT, FILE, FOLDER, LINK, Entry, TreeShelf, changes
from clew.worlds.workspace.tree_states import CACHES

LARGEST = 1 << 19  # bytes of a file that is compared by lines
MOST_LINES = 4000  # of a file that is compared by lines: the comparison takes their product at worst
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


def patches(shelf: TreeShelf, before: str, after: str) -> Iterator[Patch]:
    """What changed from one snapshot to another, by path.

    Args:
        before, after: keys of the listings of the roots; an empty key stands for an empty folder.

    Raises:
        UnknownName, BadRecord: the shelf lacks an object, or it is damaged.
    """
    inner: dict[str, int] = {}
    for path, (old, new) in changes(shelf, before, after).items():
        if (place := _of_a_program(path)) is not None:
            inner[place] = inner.get(place, 0) + 1
            continue
        yield Patch(path, "+" if old is None else "-" if new is None else "*", _text(shelf, path, old, new))
    for place, count in inner.items():
        yield Patch(place, "*", f"{count} entries changed, which a program keeps for itself")


def _of_a_program(path: str) -> str | None:
    """The folder of a program's own that a path lies in, or is; None where it lies in none."""
    pieces = path.split("/")
    first = next((i for i, piece in enumerate(pieces) if piece in OWN), None)
    return None if first is None else "/".join(pieces[: first + 1])


def _text(shelf: TreeShelf, path: str, old: Entry | None, new: Entry | None) -> str:
    told = list[str]()
    if old is not None and new is not None:
        if old.kind != new.kind:
            return f"{_named(shelf, old)} became {_named(shelf, new)}"
        if old.mode != new.mode:
            told.append(f"mode {old.mode:o} became {new.mode:o}")
    if LINK in (kinds := {entry.kind for entry in (old, new) if entry is not None}):
        told.append(" became ".join(_named(shelf, entry) for entry in (old, new) if entry is not None))
    elif FILE in kinds and (old is None or new is None or old.key != new.key):
        told.extend(_lines(path, _content(shelf, old), _content(shelf, new)))
    elif FOLDER in kinds and not told:
        told.append("folder")
    return "\n".join(told)


def _named(shelf: TreeShelf, entry: Entry) -> str:
    if entry.kind == LINK:
        return f"a link to {os.fsdecode(shelf.get(entry.key, CONTENT))[:WIDEST]}"
    return "a folder" if entry.kind == FOLDER else f"a file of {entry.size:,} bytes"


def _content(shelf: TreeShelf, entry: Entry | None) -> bytes | int:
    """The bytes of a file, or how many they are where they are not compared by lines."""
    if entry is None:
        return b""
    if entry.size > LARGEST:
        return entry.size
    data = shelf.get(entry.key, CONTENT)
    return len(data) if b"\0" in data or data.count(b"\n") > MOST_LINES else data


def _lines(path: str, old: bytes | int, new: bytes | int) -> list[str]:
    if isinstance(old, int) or isinstance(new, int):
        sizes = [f"{data if isinstance(data, int) else len(data):,}" for data in (old, new)]
        return [f"{sizes[0]} bytes became {sizes[1]}, binary or too long to compare by lines"]
    before, after = [_split(data.decode("utf-8", "replace")) for data in (old, new)]
    found = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]  # without the names, which the path says
    more = [f"and {len(found) - SHOWN} more lines"] if len(found) > SHOWN else []
    return [line[:WIDEST] + "…" * (len(line) > WIDEST) for line in found[:SHOWN]] + more


def _split(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [*lines, last, "(no newline at the end)"] if last else lines

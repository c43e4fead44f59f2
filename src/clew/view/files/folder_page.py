"""All files of a snapshot: a folder's entries with what changed in them, and what a file holds, piece by piece.

The page of files asks here. Contents and names are another program's: a text is given by bounded pieces, anything else
by its size, and what was erased or left out is named and never given.
"""

from __future__ import annotations

import os
from typing import Any

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.core.printable import store_option
from clew.store import Keeper
from clew.view.files.run_snapshots import Shown, Snapshots, Standing, differ, found_at, read, written
from clew.worlds.workspace.tree_patches import sign_of, why_gone
from clew.worlds.workspace.tree_shelf import CONTENT, FILE, FOLDER, LINK, Entry

ENTRIES = 500  # of a folder in one page
PIECE = 128 << 10  # bytes of a text in one page
TARGET = 4096  # bytes of a link's target


class Folders:
    """Folders and files of the snapshots of runs.

    Args:
        snapshots: of the store that the runs are in. store: the store as a command line must name it.
    """

    def __init__(self, snapshots: Snapshots, store: str) -> None:
        self._snapshots, self._store = snapshots, store

    def folder(self, store: Keeper, place: str, path: str = "", start: int = 0) -> dict[str, Any]:
        """Entries of a folder from a number on, those that are gone since the step before among them.

        Each has ``sign``: ``+`` it is new since the step before, ``-`` it is gone, ``*`` it changed, or something
        below it did; empty: it is as it was. ``at`` names its path in addresses, ``since`` the snapshot it is compared
        with (None: there is none before), ``command`` brings all files back.

        Raises:
            UnknownName, BadInput, BadRecord: no such run or folder, or no files are known there or can be read.
        """
        standing, name = self._snapshots.at(store, place), read(path)
        before = standing.before
        here = _listing(standing.shelf, standing.tree, name)
        if here is None:
            raise UnknownName(f"there is no folder {name[:200]!r} in these files", remedy="Choose one that is there.")
        past = here if before is None else _listing(before.shelf, before.tree, name) or {}
        names = sorted({*here, *past}, key=lambda one: ((here.get(one) or past[one]).kind != FOLDER, one))
        inside = f"{name}/" if name else ""
        rows = [_row(standing, inside, here.get(one), past.get(one)) for one in names[start : start + ENTRIES]]
        after = start + len(rows)
        found: dict[str, Any] = {"place": standing.place, "seq": standing.seq, "entries": rows}
        found |= {"since": before.place if before else None, "total": len(names), "left": standing.files.left}
        into = f"files-at-{'end' if standing.seq is None else standing.seq}"
        command = f"clew checkout {standing.place} {into}{store_option(self._store)}"
        return found | {"next": after if after < len(names) else None, "command": command}

    def content(self, store: Keeper, place: str, path: str, start: int = 0) -> dict[str, Any]:
        """What a file holds from a byte on, as text; of a link its target, of anything else why nothing is shown.

        ``next`` is where the next piece begins (None: this was the last), ``note`` why there is no ``text``.

        Raises:
            UnknownName: nothing is there. BadInput, BadRecord: no files are known there or can be read.
        """
        standing, name = self._snapshots.at(store, place), read(path)
        entry = found_at(standing.shelf, standing.tree, name)
        if entry is None:
            raise UnknownName(f"there is no {name[:200]!r} in these files", remedy="Choose one that is there.")
        before = standing.before
        past = entry if before is None else found_at(before.shelf, before.tree, name)
        known = _row(standing, name[: len(name) - len(entry.name)], entry, past)
        known |= {
            "mtime": entry.mtime / 1e9 if abs(entry.mtime) < 1 << 62 else None,
            "text": None,
            "next": None,
            "note": "",
        }
        if entry.kind == FOLDER:
            return known | {"note": "a folder"}
        if note := why_gone(standing.shelf, entry.key, standing.known.lacking):
            return known | {"note": note}
        if entry.kind == LINK:
            return known
        try:
            return known | _piece(standing.shelf, entry.key, start)
        except (UnknownName, BadRecord) as error:
            note = why_gone(standing.shelf, entry.key, standing.known.lacking) or error.message
            return known | {"note": note}


def _listing(shelf: Shown, tree: str, path: str) -> dict[str, Entry] | None:
    """The entries of a folder of a snapshot by name; None where there is no such folder."""
    key = tree
    if path:
        entry = found_at(shelf, tree, path)
        if entry is None or entry.kind != FOLDER:
            return None
        key = entry.key
    return {entry.name: entry for entry in shelf.listing(key)}


def _row(standing: Standing, inside: str, here: Entry | None, past: Entry | None) -> dict[str, Any]:
    entry = here or past
    assert entry is not None
    sign = sign_of(past, here) if differ(past, here) else ""
    path = inside + entry.name
    found = {"name": entry.name, "path": path, "at": written(path), "kind": entry.kind, "mode": entry.mode}
    found |= {"size": entry.size if entry.kind == FILE else None, "sign": sign, "target": None, "gone": ""}
    if entry.kind != FOLDER:
        found["gone"] = why_gone(standing.shelf, entry.key, standing.known.lacking)
    if entry.kind == LINK and not found["gone"]:
        found["target"] = _target(standing.shelf, entry.key)
    return found


def _target(shelf: Shown, key: str) -> str:
    try:
        return os.fsdecode(shelf.get(key, CONTENT)) if shelf.size(key) <= TARGET else "a very long path"
    except (BadInput, BadRecord) as error:
        return f"({error.message})"


def _piece(shelf: Shown, key: str, start: int) -> dict[str, Any]:
    """A piece of a text that ends with a line where it can, or with a character; or that it is no text."""
    size = shelf.copy(key)  # checks all of it: what the disk changed is not shown
    try:
        with (shelf.folder / key[:2] / key[2:]).open("rb") as file:
            file.seek(min(start, size))
            data = file.read(PIECE + 4)
    except FileNotFoundError:
        raise UnknownName("it was erased while it was read") from None
    if not start and b"\0" in data:
        return {"note": "binary", "size": size}
    more = len(data) > PIECE
    data = data[:PIECE]
    if more and (end := data.rfind(b"\n") + 1):
        data = data[:end]
    elif more:
        data = data[: len(data) - _begun(data)]
    after = start + len(data)
    return {"text": data.decode("utf-8", "surrogateescape"), "next": after if after < size else None, "size": size}


def _begun(data: bytes) -> int:
    """How many bytes at the end of a piece begin a character that goes on after it."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0

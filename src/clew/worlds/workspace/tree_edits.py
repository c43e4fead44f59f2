"""Which paths a step changed, by glob and in a line: what audits, the viewer and the gate ask of two snapshots.

What programs keep for themselves (``tree_patches.OWN``: git's own folder, Python's caches) is left out, unless a glob
names it. Paths are a program's text: who prints them makes them visible first (``core.printable``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from clew.core.errors import BadInput
from clew.core.reading import Record
from clew.core.records import Call
from clew.worlds.workspace.tree_changes import changes
from clew.worlds.workspace.tree_patches import OWN
from clew.worlds.workspace.tree_shelf import Entry, TreeShelf
from clew.worlds.workspace.workspace import tree_of

PIECES = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]/]+\]|.", re.DOTALL)


@lru_cache
def glob(pattern: str) -> re.Pattern[str]:
    """A glob as an expression for whole paths: ``*`` and ``?`` stay in one folder, ``**`` goes through any.

    Raises:
        BadInput: it is empty, or no path can match it.
    """
    if not pattern.strip("/") or pattern.startswith(("/", "../", "./")):
        remedy = "Write it from the folder on, as in tests/** or src/*.py."
        raise BadInput(f"{pattern!r} names no path in the folder", remedy=remedy)
    said = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    made = ""
    for piece in PIECES.findall(pattern):
        if piece.startswith("[") and len(piece) > 1:
            inner = piece[1:-1].replace("\\", r"\\").replace("[", r"\[")
            made += f"[^/{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
        else:
            made += said.get(piece) or re.escape(piece)
    try:
        return re.compile(made, re.DOTALL)
    except re.error as error:
        raise BadInput(f"{pattern!r} is no glob: {error}", remedy="Write it as in tests/** or src/*.py.") from None


def edited(
    shelf: TreeShelf, before: str, after: str, pattern: str = "**"
) -> Mapping[str, tuple[Entry | None, Entry | None]]:
    """The paths that match a glob and differ between two snapshots, with both entries, as ``changes`` has them.

    Raises:
        BadInput: the glob is none. UnknownName, BadRecord: the shelf lacks an object, or it is damaged.
    """
    if before == after:
        return {}
    wanted, asked = glob(pattern), pattern.split("/")
    return {
        path: entries
        for path, entries in changes(shelf, before, after).items()
        if wanted.fullmatch(path) and not any(piece in OWN and piece not in asked for piece in path.split("/"))
    }


def told(shelf: TreeShelf, before: str, after: str, most: int = 6) -> str:
    """What changed between two snapshots, in a line: ``+new.py *changed.py -gone.py``; empty where nothing did."""
    found = [
        f"{'+' if old is None else '-' if new is None else '*'}{path}"
        for path, (old, new) in sorted(edited(shelf, before, after).items())
    ]
    return "  ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def tree_at(run: Record, call: Call) -> str:
    """The snapshot that an open or act Call of a run in a workspace left; empty where it left none."""
    return tree_of(run.store.blob(call.snapshot)) if call.snapshot else ""

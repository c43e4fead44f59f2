"""Puts a snapshot back, into a folder that is fresh: never in place, and never over anything that is there.

``restore`` makes files, folders and links with their modes and times. What stands in a snapshot came out of a folder
that a model worked in, and is hostile: names are checked, and no link is followed on the way.
"""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path

from clew.core.errors import BadInput
from clew.worlds.workspace.tree_shelf import CONTENT, FILE, FOLDER, Entry, TreeShelf

DEEPEST = 1000  # folders in folders


def restore(
    shelf: TreeShelf, tree: str, into: Path, *, skip: frozenset[str] = frozenset(), lacking: Container[str] = ()
) -> int:
    """Make the folder ``into`` hold what a snapshot holds; gives how many entries it has.

    Args:
        tree: key of a root's listing. into: a folder that is not there yet, or an empty one.
        skip: names at the root that are left out.
        lacking: keys of contents that may be missing from the shelf; files and links with them are left out.

    Raises:
        BadInput: the place is not fresh, is a home folder or a root. UnknownName, BadRecord: the shelf lacks an object.
    """
    place = into.absolute()
    if place == place.parent or place == Path.home() or into.is_symlink():
        raise BadInput(f"{into} is a root, a home folder or a link", remedy="Name a fresh folder.")
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()):
        raise BadInput(f"{into} is not empty", remedy="Name a fresh folder: nothing is ever restored in place.")
    fd = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return _fill(shelf, [entry for entry in shelf.listing(tree) if entry.name not in skip], fd, lacking, 0)
    finally:
        os.close(fd)


def _fill(shelf: TreeShelf, entries: list[Entry], fd: int, lacking: Container[str], depth: int) -> int:
    if depth > DEEPEST:
        raise BadInput(f"a snapshot of more than {DEEPEST} folders in folders", remedy="It is damaged.")
    count = len(entries)
    for entry in entries:
        if entry.kind == FOLDER:
            os.mkdir(entry.name, 0o700, dir_fd=fd)
            inner = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            try:
                count += _fill(shelf, shelf.listing(entry.key), inner, lacking, depth + 1)
                os.fchmod(inner, entry.mode)
                os.utime(inner, ns=(entry.mtime, entry.mtime))
            finally:
                os.close(inner)
            continue
        if entry.key in lacking and entry.key not in shelf:
            count -= 1
            continue
        data = shelf.get(entry.key, CONTENT)
        if entry.kind == FILE:
            made = os.open(entry.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=fd)
            with os.fdopen(made, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(made, entry.mode)
                os.utime(made, ns=(entry.mtime, entry.mtime))
        else:
            os.symlink(os.fsdecode(data), entry.name, dir_fd=fd)
            os.utime(entry.name, ns=(entry.mtime, entry.mtime), dir_fd=fd, follow_symlinks=False)
    return count

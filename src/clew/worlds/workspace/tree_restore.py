"""Puts a snapshot back, into a folder that is fresh: never in place, and never over anything that is there.

``restore`` makes files, folders and links with their modes and times. What stands in a snapshot came out of a folder
that a model worked in, and is hostile: names are checked, no link is followed on the way, and no more is made than a
snapshot may hold.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container
from pathlib import Path

from clew.core.errors import BadInput, BadRecord, WorldError
from clew.worlds.workspace.tree_scan import WHOLE, Bounds
from clew.worlds.workspace.tree_shelf import CONTENT, FILE, FOLDER, Entry, Erased, TreeShelf, write

DEEPEST = 400  # folders in folders
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def restore(
    shelf: TreeShelf,
    tree: str,
    into: Path,
    *,
    root: tuple[int, int] | None = None,
    skip: frozenset[str] = frozenset(),
    erased: list[str] | None = None,
    lacking: Container[str] = (),
) -> int:
    """Make the folder ``into`` hold what a snapshot holds; gives how many entries it has.

    Args:
        tree: key of a root's listing. into: a folder that is not there yet, or an empty one.
        root: permission bits and time that the folder itself gets, as a ``Snapshot`` has them.
        skip: names at the root that are left out.
        erased: takes the paths of files that were erased from the shelf; the rest is restored.
        lacking: keys of contents that may be missing from the shelf; files and links with them are left out.

    Raises:
        BadInput: the place is not fresh, is a home folder or a root. UnknownName, BadRecord: the shelf lacks an object,
            or one was erased and nobody asked for the rest. WorldError: the disk takes no more.
    """
    place = into.absolute()
    if place == place.parent or place == Path.home() or into.is_symlink():
        raise BadInput(f"{into} is a root, a home folder or a link", remedy="Name a fresh folder.")
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()):
        raise BadInput(f"{into} is not empty", remedy="Name a fresh folder: nothing is ever restored in place.")
    fd = os.open(into, INTO)
    try:
        back = _Back(shelf, erased, lacking)
        back.fill([entry for entry in shelf.listing(tree) if entry.name not in skip], fd, "", 0)
        if root is not None:
            os.fchmod(fd, root[0] & 0o7777)
            os.utime(fd, ns=(root[1], root[1]))
        return back.count
    except OSError as error:
        raise WorldError(f"{into} could not be filled: {error.strerror}", remedy="Name another folder.") from None
    finally:
        os.close(fd)


class _Back:
    """One restoring: how much was made, and what was erased."""

    def __init__(self, shelf: TreeShelf, erased: list[str] | None, lacking: Container[str]) -> None:
        self.shelf, self.erased, self.lacking, self.count = shelf, erased, lacking, 0
        self._plain: dict[int, bool] = {}  # modes that a new file gets by itself, whatever the umask leaves of others
        self._trusted = os.geteuid() != 0  # what sets the user must not run as root, whoever wrote it

    def fill(self, entries: list[Entry], fd: int, path: str, depth: int) -> None:
        self.count += len(entries)
        most = Bounds().entries
        if depth > DEEPEST or self.count > most:
            what = f"{DEEPEST} folders in folders" if depth > DEEPEST else f"{most:,} files"
            raise BadInput(f"a snapshot of more than {what}", remedy="It is damaged.")
        for entry in entries:
            if entry.kind == FOLDER:
                os.mkdir(entry.name, 0o700, dir_fd=fd)
                inner = os.open(entry.name, INTO, dir_fd=fd)
                try:
                    self.fill(self.shelf.listing(entry.key), inner, f"{path}{entry.name}/", depth + 1)
                    os.fchmod(inner, entry.mode)
                    os.utime(inner, ns=(entry.mtime, entry.mtime))
                finally:
                    os.close(inner)
                continue
            if entry.key in self.lacking and entry.key not in self.shelf:
                self.count -= 1
                continue
            try:
                self._make(entry, fd)
            except Erased:
                if self.erased is None:
                    told = f"{path}{entry.name} was erased from the shelf"
                    raise Erased(told, remedy="It cannot be brought back; the rest can.") from None
                self.erased.append(path + entry.name)
                self.count -= 1

    def _make(self, entry: Entry, fd: int) -> None:
        large = entry.kind == FILE and entry.size > WHOLE
        data = b"" if large else self.shelf.get(entry.key, CONTENT)
        if entry.kind != FILE:
            try:
                os.symlink(data.decode("utf-8", "surrogatepass"), entry.name, dir_fd=fd)
            except ValueError:
                raise BadRecord(f"the target {entry.key} is none that a link has", remedy="It is damaged.") from None
            os.utime(entry.name, ns=(entry.mtime, entry.mtime), dir_fd=fd, follow_symlinks=False)
            return
        mode = entry.mode if self._trusted else entry.mode & 0o1777
        made = os.open(entry.name, NEW, mode & 0o777, dir_fd=fd)
        try:
            if large:
                self.shelf.copy(entry.key, made)
            else:
                write(made, data)
            if (plain := self._plain.get(mode)) is None:
                plain = self._plain[mode] = stat.S_IMODE(os.fstat(made).st_mode) == mode
            if not plain:
                os.fchmod(made, mode)
            os.utime(made, ns=(entry.mtime, entry.mtime))
        except BaseException:
            os.unlink(entry.name, dir_fd=fd)
            raise
        finally:
            os.close(made)

"""Temporary folders that hostile code fills: removed whatever lies in them, and swept when their owner was killed.

``Scratch`` makes one; the sandbox, its proxy and the workspace use it. What code in a sandbox leaves behind may be
thousands of folders deep, closed to its own owner, or full of links: removing it must follow no link, change nothing
outside, and need neither memory nor descriptors by the depth. A folder is locked for as long as its owner lives, so
that whoever makes the next one can tell those that nobody owns any more.
"""

from __future__ import annotations

import fcntl
import functools
import os
import secrets
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType

PREFIX = "clew-scratch-"
YOUNG = 60.0  # seconds for which a folder is left alone: who has just made one may not have locked it yet
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Scratch:
    """A fresh folder of this user alone, at ``path``; ``close`` removes it with all that it holds by then.

    Args:
        kind: what it is for, as part of its name.
    """

    def __init__(self, kind: str) -> None:
        _sweep_once(tempfile.gettempdir(), os.getpid())
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        fd = os.open(self.path, OPEN)
        fcntl.flock(fd, fcntl.LOCK_EX)
        self.close = weakref.finalize(self, _closed, self.path, fd, os.getpid())  # at the end of the process too

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _closed(path: Path, fd: int, owner: int) -> None:
    if os.getpid() == owner:  # not a process that was forked from it
        remove(path)
    os.close(fd)


@functools.cache
def _sweep_once(place: str, process: int) -> None:
    """Once a process, beside its work: what the killed left may take a while to remove."""
    del process  # another one, forked from this, sweeps for itself
    threading.Thread(target=sweep, args=(Path(place),), daemon=True).start()


def sweep(place: Path) -> list[str]:
    """Remove the folders of this user in ``place`` whose owner was killed; gives their names."""
    found = []
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            fd = os.open(path, OPEN)
            try:
                seen = os.fstat(fd)
                if seen.st_uid != os.geteuid() or time.time() - seen.st_mtime < YOUNG:
                    continue
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its owner holds it for as long as it lives
                if remove(path):
                    found.append(path.name)
            finally:
                os.close(fd)
    return found


def remove(path: Path) -> bool:
    """Remove a folder that nobody works in any more, with all that this user may remove of it; whether it is gone.

    What lies in folders of its folders is brought up to its own level first, so that no path ever gets long.
    """
    try:
        root = os.open(path, OPEN)
    except OSError:
        return not os.path.lexists(path)
    try:
        os.fchmod(root, 0o700)
        while sum(_taken(root, name) for name in os.listdir(root)):
            pass
    finally:
        os.close(root)
    with suppress(OSError):
        os.rmdir(path)
    return not os.path.lexists(path)


def _taken(root: int, name: str) -> bool:
    """Remove what lies in a folder under a name; where this is a folder that holds folders, bring those up. Whether
    anything came of it."""
    try:
        os.unlink(name, dir_fd=root)
        return True
    except IsADirectoryError:
        pass
    except OSError:
        return False
    came = False
    with suppress(OSError):
        fd = _opened(root, name)
        try:
            for inner in os.listdir(fd):
                with suppress(OSError):
                    came |= _up(root, fd, inner)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=root)
        came = True
    return came


def _up(root: int, fd: int, name: str) -> bool:
    """Remove a file; bring a folder up to ``root``, under a name that nobody can have guessed."""
    try:
        os.unlink(name, dir_fd=fd)
    except IsADirectoryError:
        os.close(_opened(fd, name))
        os.rename(name, secrets.token_hex(16), src_dir_fd=fd, dst_dir_fd=root)
    return True


def _opened(above: int, name: str) -> int:
    """A folder, whatever its owner has forbidden himself; never what a link leads to."""
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        with suppress(PermissionError):  # of somebody else
            os.chmod(f"/proc/self/fd/{place}", 0o700)
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(place)

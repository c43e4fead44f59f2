"""Packs files into tar archives for a sandbox, and takes files out of a folder that it has filled.

The sandbox and the coding tools call it. What lies in such a folder is not trusted: no path may leave it, and no link,
device or special file is ever opened for what it leads to. No archive that a sandbox made is ever read.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
from collections.abc import Container, Iterable, Mapping
from pathlib import Path, PurePosixPath

from clew.core.errors import BadInput

DEEPEST = 200  # folders within folders that are taken out


def safe(name: str) -> str:
    """A relative path without tricks, normalised.

    Raises:
        BadInput: it is empty, absolute, leads upwards, or holds a NUL.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise BadInput(f"{name!r} is no path inside the work folder", remedy="Give a relative path without '..'.")
    return str(path)


def pack(files: Mapping[str, bytes | str | Path], executable: Container[str] = ()) -> bytes:
    """A tar of these files: contents, text, or paths of files that lie here (their permissions are kept).

    Args:
        executable: names, among those given as contents, that may be executed.

    Raises:
        BadInput: a name leads outside, or a path is no regular file.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(safe(name))
            entry.mode = 0o755 if name in executable else 0o644
            if isinstance(content, Path):
                if not content.is_file():
                    raise BadInput(f"{content} is no file", remedy="Give paths of regular files.")
                entry.mode = content.stat().st_mode & 0o755
                content = content.read_bytes()
            data = content.encode() if isinstance(content, str) else content
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def collect(folder: int, names: Iterable[str], size: int, count: int) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The regular files of these names below an open folder that hostile code has filled, and what was refused of it.

    Every step goes by descriptors and past no link, so that no name leads out, and what lies there is read as it is
    when it is opened. Names that are not there are left out.

    Args:
        names: files or folders; ``.`` is all.
        size: bytes of all files together at most; a sparse file and each link to one count whole.
        count: entries of folders at most.
    """
    taken = _Taken(size, count)
    for name in names:
        *parents, last = PurePosixPath(name).parts or (".",)
        above, opened = folder, list[int]()
        try:
            for parent in parents:
                above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
                opened.append(above)
            taken.take(above, last, name)
        except FileNotFoundError:
            continue
        except OSError as error:
            taken.refused.append(f"{name}: {error.strerror}")
        finally:
            for fd in opened:
                os.close(fd)
    return taken.found, tuple(taken.refused)


class _Taken:
    """Files taken so far, what was refused, and how many bytes and entries may still be taken."""

    def __init__(self, size: int, count: int) -> None:
        self.found: dict[str, bytes] = {}
        self.refused: list[str] = []
        self.size, self.count = size, count

    def take(self, above: int, name: str, path: str, depth: int = 0) -> None:
        """A file, or all of a folder, by its name in an open folder; ``path`` is what it is called outside."""
        self.count -= 1
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=above)
        except FileNotFoundError:
            return
        except OSError as error:
            special = error.errno in (errno.ELOOP, errno.ENXIO)  # a link, a socket
            self.refused.append(f"{path}: {'no regular file' if special else error.strerror}")
            return
        try:
            about = os.fstat(fd)
            if stat.S_ISDIR(about.st_mode):
                self._folder(fd, path, depth)
            elif not stat.S_ISREG(about.st_mode):
                self.refused.append(f"{path}: no regular file")
            elif about.st_size > self.size:
                self.refused.append(f"{path}: no room for its {about.st_size} bytes")
            else:
                with os.fdopen(os.dup(fd), "rb") as file:
                    self.found[path] = file.read(about.st_size)
                self.size -= about.st_size
        finally:
            os.close(fd)

    def _folder(self, fd: int, path: str, depth: int) -> None:
        if depth == DEEPEST:
            self.refused.append(f"{path}: more than {DEEPEST} folders deep")
            return
        for entry in sorted(os.listdir(fd)):
            if self.count <= 0:
                self.refused.append(f"{path}: too many entries")
                return
            self.take(fd, entry, entry if path == "." else f"{path}/{entry}", depth + 1)


def executables(data: bytes) -> frozenset[str]:
    """The names in a tar of ``pack`` that may be executed."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        return frozenset(entry.name for entry in archive if entry.mode & 0o100)


def contents(data: bytes) -> dict[str, bytes]:
    """The files in a tar of ``pack``, by name."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        return {entry.name: file.read() for entry in archive if (file := archive.extractfile(entry)) is not None}


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files below ``folder``; nothing lands outside of it, whatever links lie there.

    Raises:
        BadInput: a name, or a link that lies on its way, leads outside.
    """
    root = folder.resolve()
    for name, content in files.items():
        path = root / safe(name)
        if not path.parent.resolve().is_relative_to(root) or path.is_symlink():
            raise BadInput(f"{name} would be written outside of {folder}", remedy="Remove the link on its way.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

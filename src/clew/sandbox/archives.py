"""Packs files into tar archives for a sandbox, and unpacks what comes out of one.

The sandbox and the coding tools call it. Nothing in an archive from a sandbox is trusted: no path may leave the folder
(zip-slip), and no link, device or special file is ever unpacked.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Container, Mapping
from pathlib import Path, PurePosixPath

from clew.core.errors import BadInput


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


def unpack(data: bytes) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The regular files of a tar from a source that may lie, and what was refused: links, devices, paths that lead out.

    Nothing is written; of two entries of one name the last counts. A torn archive gives what is whole.
    """
    found: dict[str, bytes] = {}
    refused: list[str] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for entry in archive:
                if entry.isdir():
                    continue
                try:
                    name = safe(entry.name)
                except BadInput:
                    refused.append(f"{entry.name}: leads outside")
                    continue
                if not entry.isreg() or entry.issparse():
                    refused.append(f"{name}: no regular file")
                    continue
                file = archive.extractfile(entry)
                content = file.read() if file else b""
                if len(content) == entry.size:
                    found[name] = content
    except (tarfile.TarError, ValueError, OSError, RecursionError) as error:
        if data:
            refused.append(f"the rest of the archive: {error}")
    return found, tuple(refused)


def executables(data: bytes) -> frozenset[str]:
    """The names in a tar of ``pack`` that may be executed."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        return frozenset(entry.name for entry in archive if entry.mode & 0o100)


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

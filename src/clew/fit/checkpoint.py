"""Atomic checkpoint folders: written beside, synced, renamed; the folder before is kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from clew.core.errors import BadInput

PREVIOUS = ".previous"


def replace(path: str | Path, write: Callable[[Path], None]) -> Path:
    """Let ``write`` fill a fresh folder, make it durable, and put it at ``path``.

    A crash at any moment leaves, at ``path`` or at ``path.previous``, a folder that was written completely. The folder
    that ``path`` named before becomes ``path.previous``.
    """
    path = Path(path).absolute()
    fresh, previous = _beside(path, f".writing-{os.getpid()}"), _beside(path, PREVIOUS)
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f"{path.name}.writing-*"):
        shutil.rmtree(leftover)
    fresh.mkdir()
    write(fresh)
    for file in sorted(fresh.rglob("*")):
        _sync(file)
    _sync(fresh)
    if path.exists():
        if previous.exists():
            shutil.rmtree(previous)
        path.rename(previous)
    fresh.rename(path)
    _sync(path.parent)
    return path


def locate(path: str | Path) -> Path:
    """The newest complete folder of a checkpoint: ``path``, or the one before it if a crash left only that.

    Raises:
        BadInput: neither exists.
    """
    path = Path(path).absolute()
    for candidate in (path, _beside(path, PREVIOUS)):
        if candidate.is_dir():
            return candidate
    raise BadInput(f"no checkpoint at {path}", remedy="Give the folder that Trainer.save wrote.")


def exists(path: str | Path) -> bool:
    path = Path(path).absolute()
    return path.is_dir() or _beside(path, PREVIOUS).is_dir()


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

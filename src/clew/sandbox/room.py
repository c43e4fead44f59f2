"""What is held of a sandboxed run from outside: its folders, its first process, the clocks of its processor time.

``sandbox/namespace.py`` makes one before the command begins. All of it goes by descriptors, so that nothing inside can
put another thing in their place. It must never read a kept file while a process of the run is left.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from clew.sandbox.archives import collect
from clew.sandbox.monitor import cpu_clock, readable

INODE = 1024  # bytes that the kernel holds for a file beside its content, about
GONE = 30.0  # seconds in which the kernel has ended all processes of a namespace


class Left(NamedTuple):
    """What a run left behind: files, what was refused of them and why, whether a folder was full."""

    files: dict[str, bytes]
    refused: tuple[str, ...]
    full: bool


class Room:
    """What is held of a run from outside: its folders in memory, so that they can be looked at while it runs and read
    when nothing of it is left; its first process; the clocks of what it uses.

    Args:
        places: its folders, the work folder first.
        first: the first process of its namespace, when its folders are there; None where it came to nothing.
        held: the list that every descriptor is put on, for the caller to close.
    """

    def __init__(self, first: int | None, places: Sequence[str], disk: int, held: list[int]) -> None:
        self.folders, self.clocks, self.first = list[int](), list[int](), -1
        self.disk, self.most = disk, max(disk // INODE, 64)
        if first is None:
            return
        self.first = os.pidfd_open(first)
        held.append(self.first)
        for place in places:
            self.folders.append(os.open(f"/proc/{first}/root{place}", os.O_RDONLY | os.O_DIRECTORY))
            held.append(self.folders[-1])
        with suppress(OSError):  # what there is already is counted from now on
            others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
            self.clocks += [fd for pid in (first, *map(int, others)) if (fd := cpu_clock(pid)) is not None]
        held += self.clocks

    def reached(self) -> str:
        """``disk`` where there are more files than bytes allow: an empty file takes the kernel's memory too."""
        states = [os.fstatvfs(fd) for fd in self.folders]
        return "disk" if any(s.f_files - s.f_ffree > self.most for s in states) else ""

    def left(self, keep: Sequence[str]) -> Left:
        """Files that are kept, read when the last process has gone: the first one ends after all others."""
        if not self.folders:
            return Left({}, (), False)
        readable([self.first], GONE)
        return Left(*collect(self.folders[0], keep, self.disk, self.most), self.full())

    def full(self) -> bool:
        return any(os.fstatvfs(fd).f_bavail == 0 for fd in self.folders[:2])

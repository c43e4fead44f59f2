"""What is held of a sandboxed run from outside: its folders, its first process, the clocks of its processor time.

``sandbox/namespace.py`` makes one before the command begins. All of it goes by descriptors, so that nothing inside can
put another thing in their place. It must never read a kept file while a process of the run is left.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from clew.sandbox.archives import collect
from clew.sandbox.cgroup import group
from clew.sandbox.monitor import cpu_clock, readable

INODE = 1024  # bytes that the kernel holds for a file beside its content, about
DEEPEST = 250  # folders in folders that are counted
INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
CONNECTING = "02"  # SYN_SENT, in /proc/net/tcp
GONE = 30.0  # seconds in which the kernel has ended all processes of a namespace


class Left(NamedTuple):
    """What a run left behind: files, what was refused of them and why, whether a folder was full."""

    files: dict[str, bytes]
    refused: tuple[str, ...]
    full: bool


class Room:
    """What is held of a run from outside: its folders in memory, so that they can be looked at while it runs and read
    when nothing of it is left; its first process; the clocks of what it uses; its control group, where there is one.

    Args:
        first: the first process of its namespace, when its folders are there; None where it came to nothing.
        places: its folders, the work folder first.
        disk, memory: the bounds, in bytes.
        folder: one of this machine that the run works in; ``disk`` bounds all that it holds.
    """

    def __init__(
        self, first: int | None, places: Sequence[str], disk: int, memory: int, folder: Path | None = None
    ) -> None:
        self.folder, self._free, self._next = folder, os.statvfs(folder) if folder is not None else None, 0.0
        self.folders, self.clocks, self.first = list[int](), list[int](), -1
        self.disk, self.memory, self.files = disk, memory, max(disk // INODE, 64)
        self.group, self.task = None, Path(f"/proc/{first}")
        if first is None:
            return
        self.first = os.pidfd_open(first)
        for place in places:
            self.folders.append(os.open(f"{self.task}/root{place}", os.O_RDONLY | os.O_DIRECTORY))
        there = [first]
        with suppress(OSError):  # what there is already is counted from now on
            there += map(int, (self.task / f"task/{first}/children").read_text().split())
        self.clocks = [fd for pid in there if (fd := cpu_clock(pid)) is not None]
        self.group = group(memory + len(places) * (disk + self.files * INODE))
        if self.group is not None:
            try:
                self.group.enter(there)
            except OSError:
                self.group.close()
                self.group = None

    def reached(self) -> str:
        """``disk`` where there are more files than bytes allow, since an empty file takes the kernel's memory too;
        ``memory`` where that is full which no process's own figures show: buffers of sockets and pipes."""
        if self._grown():
            return "disk"
        states = [os.fstatvfs(fd) for fd in self.folders]
        if any(s.f_files - s.f_ffree > self.files for s in states):
            return "disk"
        with suppress(OSError, ValueError, IndexError):  # its first process may just have ended
            if self.group is not None:
                held = sum((s.f_blocks - s.f_bfree) * s.f_frsize + (s.f_files - s.f_ffree) * INODE for s in states)
                return "memory" if self.group.held(held, self.memory) else ""
            return "memory" if self.folders and _buffers(self.task) > self.memory else ""
        return ""

    def _grown(self) -> bool:
        """Whether the folder holds more than the bound. It is walked only where its disk lost so much room since, which
        others may have taken, and at most once a second, less often where
        that takes long."""
        if self.folder is None or self._free is None or time.monotonic() < self._next:
            return False
        now, before = os.statvfs(self.folder), self._free
        lost = (before.f_bfree - now.f_bfree) * now.f_frsize
        if lost <= self.disk // 2 and before.f_ffree - now.f_ffree <= self.files // 2:
            return False
        began = time.monotonic()
        size, count = held_by(self.folder)
        self._next = time.monotonic() + max(1.0, 10 * (time.monotonic() - began))
        return size > self.disk or count > self.files

    def ended(self) -> str:
        """``memory`` where the kernel ended a process of the run for want of it."""
        with suppress(OSError):
            return "memory" if self.group is not None and self.group.ended() else ""
        return ""

    def left(self, keep: Sequence[str]) -> Left:
        """Files that are kept, read when the last process has gone: the first one ends after all others."""
        if not self.folders:
            return Left({}, (), False)
        readable([self.first], GONE)
        return Left(*collect(self.folders[0], keep, self.disk, self.files), self.full())

    def full(self) -> bool:
        return any(os.fstatvfs(fd).f_bavail == 0 for fd in self.folders[:2])

    def close(self) -> None:
        """Give back what is held; the run has been ended."""
        if self.first >= 0:
            readable([self.first], GONE)
        if self.group is not None:
            self.group.close()
        for fd in (*self.folders, *self.clocks, self.first):
            if fd >= 0:
                os.close(fd)


def held_by(folder: Path) -> tuple[float, int]:
    """Bytes on the disk and entries of a folder in which a command works; what goes away meanwhile is passed over.

    No link is followed, and nothing but a folder is opened. Bytes are without end where folders lie deeper in each
    other than ``DEEPEST``: nobody could count them.
    """
    size, count = 0.0, 0
    levels = [(os.open(folder, INTO), os.listdir(folder))]
    try:
        while levels:
            fd, names = levels[-1]
            if not names:
                os.close(levels.pop()[0])
                continue
            name = names.pop()
            with suppress(OSError):
                seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
                size, count = size + seen.st_blocks * 512, count + 1
                if stat.S_ISDIR(seen.st_mode):
                    if len(levels) > DEEPEST:
                        return math.inf, count
                    levels.append((os.open(name, INTO, dir_fd=fd), []))
                    levels[-1][1].extend(os.listdir(levels[-1][0]))
    finally:
        for fd, _ in levels:
            os.close(fd)
    return size, count


def _buffers(task: Path) -> int:
    """Bytes that the sockets in a process's network may hold: each its buffer's size, TCP also what is queued.

    Of one that is just connecting its buffer's size alone counts: what the kernel shows as queued there is the
    difference of two numbers of which one is not set yet.
    """
    used = (task / "net/sockstat").read_text().split()[2]
    total = int(used) * int(Path("/proc/sys/net/core/wmem_default").read_text())
    for name in ("tcp", "tcp6"):
        for line in (task / "net" / name).read_text().splitlines()[1:]:
            state, queued = line.split()[3:5]
            if state != CONNECTING:
                total += 2 * sum(int(one, 16) for one in queued.split(":"))
    return total

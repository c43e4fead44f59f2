"""Watches a sandboxed command: reads its output, sums what its processes use, and ends it at the first limit reached.

``sandbox/namespace.py`` calls it. The kernel bounds each process (rlimits); what several processes use together is read
from /proc every ``LOOK`` seconds. The monitor must never wait for the command: a command that ignores signals or fills
its pipes still ends in time.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LOOK = 0.01  # seconds between two looks
PIECE = 1 << 16  # bytes read at once
PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a watched command may use: wall and CPU in seconds, memory in bytes, tasks (threads count), bytes of each
    stream by name."""

    wall: float
    cpu: float
    memory: int
    tasks: int
    streams: dict[str, int]


@dataclass(slots=True)
class Seen:
    """What came of it. ``limit`` is the one for which it was ended, empty where it ended itself."""

    limit: str = ""
    streams: dict[str, bytearray] = field(default_factory=dict)
    seconds: float = 0.0
    cpu: float = 0.0
    peak: int = 0  # bytes, of all processes together, at the looks


def usage(tasks: Iterable[Path]) -> tuple[int, int, float]:
    """Tasks, resident bytes and CPU-seconds of processes (their folders in /proc), children they waited for included.

    Pages shared with a parent count in each; ``proportional`` tells them apart.
    """
    count, resident, ticks = 0, 0, 0
    for folder in tasks:
        with suppress(OSError, IndexError, ValueError):
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            count += int(fields[17])
            resident += int(fields[21]) * PAGE
            ticks += sum(map(int, fields[11:15]))
    return count, resident, ticks / TICK


def proportional(tasks: Iterable[Path]) -> int:
    """Resident bytes in which a shared page counts once; of a process that may not be looked into, all of its pages."""
    total = 0
    for folder in tasks:
        with suppress(OSError, ValueError, IndexError):
            try:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                total += next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
            except OSError:
                total += int((folder / "statm").read_text().split()[1]) * PAGE
    return total


def watch(
    child: subprocess.Popen[bytes],
    ends: dict[str, int],
    bounds: Bounds,
    members: Callable[[Seen], list[Path]],
    kill: Callable[[Seen], None],
    cancel: int | None = None,
) -> Seen:
    """Read the streams until ``child`` has ended and they are closed; end it when a bound is reached.

    Args:
        ends: read ends of its streams by name, closed on return.
        members: folders in /proc of the processes under watch.
        kill: ends all of them.
        cancel: a descriptor that becomes readable when the caller gives up.
    """
    seen = Seen(streams={name: bytearray() for name in ends})
    start, names = time.monotonic(), {fd: name for name, fd in ends.items()}
    poll, over = select.poll(), os.pidfd_open(child.pid)
    for fd in (*names, over, *([cancel] if cancel is not None else [])):
        poll.register(fd, select.POLLIN)
    next_look, alive = start, True
    try:
        while alive or names:
            now = time.monotonic()
            if alive and not seen.limit:
                if now - start > bounds.wall:
                    seen.limit = "wall"
                elif now >= next_look:
                    seen.limit, next_look = _look(members(seen), bounds, seen), now + LOOK
                if seen.limit:
                    kill(seen)
            if not alive and now > next_look + 1:  # someone outside holds a stream open: what came has come
                break
            for fd, _ in poll.poll(1000 * LOOK):
                if fd == over:
                    alive = False
                    poll.unregister(over)
                elif fd == cancel:
                    poll.unregister(fd)
                    seen.limit = seen.limit or "cancelled"
                    kill(seen)
                elif not _read(fd, names[fd], bounds, seen, kill):
                    poll.unregister(fd)
                    del names[fd]
    finally:
        if alive:
            kill(seen)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seen.seconds, seen.cpu = time.monotonic() - start, max(seen.cpu, used.ru_utime + used.ru_stime)
        os.close(over)
        for fd in ends.values():
            os.close(fd)
    return seen


def _look(tasks: list[Path], bounds: Bounds, seen: Seen) -> str:
    """The bound that is reached now, or none."""
    count, resident, cpu = usage(tasks)
    seen.cpu = max(seen.cpu, cpu)
    if count >= bounds.tasks:
        return "processes"
    if cpu > bounds.cpu:
        return "cpu"
    if resident > bounds.memory:
        resident = proportional(tasks)
    seen.peak = max(seen.peak, resident)
    return "memory" if resident > bounds.memory else ""


def _read(fd: int, name: str, bounds: Bounds, seen: Seen, kill: Callable[[Seen], None]) -> bool:
    """Take what a stream has; False when it is closed. Past its bound nothing is kept and the command is ended."""
    piece = os.read(fd, PIECE)
    room = bounds.streams[name] - len(seen.streams[name])
    seen.streams[name] += piece[: max(room, 0)]
    if len(piece) > room and not seen.limit:
        seen.limit = "disk" if name == "out" else "output"
        kill(seen)
    return bool(piece)


def end(pids: Iterable[int]) -> None:
    """SIGKILL to each that still is."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)

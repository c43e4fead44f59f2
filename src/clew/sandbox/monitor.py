"""Watches a sandboxed command: reads its output, sums what its processes use, and ends it at the first limit reached.

``sandbox/namespace.py`` calls it. The kernel bounds each process (rlimits); what several processes use together is read
from /proc every ``LOOK`` seconds, and less often the longer a run takes (``pause``). It must never wait for a command:
one that ignores signals or fills its pipes still ends in time.
"""

from __future__ import annotations

import ctypes
import os
import platform
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LOOK, SELDOM = 0.01, 0.1  # seconds between two looks, at first and at most
PIECE = 1 << 16  # bytes read at once
PERF, INHERIT = (
    {"x86_64": 298, "aarch64": 241},
    0b1100010,
)  # perf_event_open; with children, without the kernel's samples
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


class Cpu:
    """CPU-seconds of all processes of a run together, as far as can be told.

    The kernel's own count (``cpu_clock``) has all of them. Where it is not to be had, what is seen at the looks counts:
    what live processes used and waited for, or what each process ever seen had used itself, whichever is more. Neither
    counts anything twice; short processes that nobody waits for are then missed.
    """

    def __init__(self, clocks: Sequence[int]) -> None:
        self.clocks = clocks
        self._own: dict[tuple[bytes, bytes], int] = {}  # ticks by process: its number and when it started
        self.most = 0.0

    def take(self, stats: Iterable[tuple[bytes, list[bytes]]]) -> float:
        """Seconds used until now, where these are the processes (their number, their fields in /proc) that live."""
        waited = 0
        for number, fields in stats:
            self._own[number, fields[19]] = int(fields[11]) + int(fields[12])
            waited += sum(map(int, fields[11:15]))
        counted = sum(int.from_bytes(os.read(clock, 8), sys.byteorder) for clock in self.clocks) / 1e9
        self.most = max(self.most, counted, waited / TICK, sum(self._own.values()) / TICK)
        return self.most


def cpu_clock(pid: int) -> int | None:
    """A descriptor that counts the CPU time of a process and of all that it starts from now on, whoever waits for them.

    None where the kernel does not allow it (kernel.perf_event_paranoid of 3 and more, for a user that is not root).
    """
    call = PERF.get(platform.machine())
    attributes = struct.pack("@IIQQQQQIIQ", 1, 64, 1, 0, 0, 0, INHERIT, 0, 0, 0)  # software, 64 bytes long, task clock
    fd = ctypes.CDLL(None).syscall(call, attributes, pid, -1, -1, 8) if call else -1
    return fd if fd >= 0 else None


def stats(tasks: Iterable[Path]) -> list[tuple[bytes, list[bytes]]]:
    """Number and fields after the name of /proc/PID/stat, of each of these processes that still is."""
    found = []
    for folder in tasks:
        with suppress(OSError):
            number, _, rest = (folder / "stat").read_bytes().partition(b" (")
            fields = rest.rpartition(b")")[2].split()
            if len(fields) > 21:
                found.append((number, fields))
    return found


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


@dataclass(frozen=True, slots=True)
class Watched:
    """A run under watch.

    ends: read ends of its streams by name. start: when it began, of ``time.monotonic``. members: gives the folders in
    /proc of its processes. kill: ends all of them. room: names a bound beside these that is reached now, or none.
    clocks: of ``cpu_clock``. cancel: a descriptor that becomes readable when the caller gives up. told: is given each
    piece of a stream, with its name, as it comes.
    """

    child: subprocess.Popen[bytes]
    ends: dict[str, int]
    start: float
    members: Callable[[], list[Path]]
    kill: Callable[[], None]
    room: Callable[[], str] = str
    clocks: Sequence[int] = ()
    cancel: int | None = None
    told: Callable[[str, bytes], None] | None = None


def pause(age: float) -> float:
    """Seconds until the next look at a run of so many: a hundredth of them, so that one of hours costs little."""
    return min(max(LOOK, age / 100), SELDOM)


def watch(run: Watched, bounds: Bounds, over: str = "") -> Seen:
    """Read the streams until the child has ended and they are closed; end it when a bound is reached.

    The streams are closed on return. ``over`` is a bound that was reached before: then it is only to be ended.
    """
    seen, cpu = Seen(over, {name: bytearray() for name in run.ends}), Cpu(run.clocks)
    names = {fd: name for name, fd in run.ends.items()}
    if over:
        run.kill()
    poll, ended = select.poll(), os.pidfd_open(run.child.pid)
    for fd in (*names, ended, *([run.cancel] if run.cancel is not None else [])):
        poll.register(fd, select.POLLIN)
    next_look, alive = time.monotonic(), True
    try:
        while alive or names:
            now = time.monotonic()
            if alive and not seen.limit:
                if now - run.start > bounds.wall:
                    seen.limit = "wall"
                elif now >= next_look:
                    seen.limit, next_look = _look(run, bounds, seen, cpu), now + pause(now - run.start)
                if seen.limit:
                    run.kill()
            if not alive and now > next_look + 1:  # someone outside holds a stream open: what came has come
                break
            for fd, _ in poll.poll(1000 * pause(now - run.start)):
                if fd == ended:
                    alive = False
                    poll.unregister(ended)
                elif fd == run.cancel:
                    poll.unregister(fd)
                    seen.limit = seen.limit or "cancelled"
                    run.kill()
                elif not _read(fd, names[fd], bounds, seen, run):
                    poll.unregister(fd)
                    del names[fd]
    finally:
        if alive:
            run.kill()
        _, status, used = os.wait4(run.child.pid, 0)
        run.child.returncode = os.waitstatus_to_exitcode(status)
        seen.seconds, seen.cpu = time.monotonic() - run.start, max(cpu.take([]), used.ru_utime + used.ru_stime)
        for fd in (ended, *run.ends.values()):
            os.close(fd)
    return seen


def _look(run: Watched, bounds: Bounds, seen: Seen, cpu: Cpu) -> str:
    """The bound that is reached now, or none."""
    tasks = run.members()
    found = stats(tasks)
    resident = sum(int(fields[21]) for _, fields in found) * PAGE
    if sum(int(fields[17]) for _, fields in found) >= bounds.tasks:
        return "processes"
    if cpu.take(found) > bounds.cpu:
        return "cpu"
    if resident > bounds.memory:  # pages shared with a parent count in each; here they are told apart
        resident = proportional(tasks)
    seen.peak = max(seen.peak, resident)
    return "memory" if resident > bounds.memory else run.room()


def _read(fd: int, name: str, bounds: Bounds, seen: Seen, run: Watched) -> bool:
    """Take what a stream has; False when it is closed. Past its bound nothing is kept and the command is ended."""
    piece = os.read(fd, PIECE)
    room = bounds.streams[name] - len(seen.streams[name])
    kept = piece[: max(room, 0)]
    seen.streams[name] += kept
    if kept and run.told is not None:
        run.told(name, kept)
    if len(piece) > room and not seen.limit:
        seen.limit = "output"
        run.kill()
    return bool(piece)


def readable(fds: Iterable[int], seconds: float) -> list[int]:
    """Those of these descriptors that have something to read, or have ended, within so many seconds."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(1000 * seconds)]


def end(pids: Iterable[int]) -> None:
    """SIGKILL to each that still is."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)

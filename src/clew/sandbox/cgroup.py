"""A control group for a sandboxed run: the kernel's own count and bound of all memory that its processes hold.

``sandbox/room.py`` makes one where this user may: as root, or in a group that was handed over. The kernel counts there
what no process's own figures show: buffers of sockets and pipes, and what it keeps for files. It must never be needed:
without a group the sandbox bounds these by number.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FILES = {  # by version: bound, use, name in memory.stat of the page cache (files in memory too), file of events
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "memory.oom_control"),
    2: ("memory.max", "memory.current", "file", "memory.events"),
}
TCP = "memory.kmem.tcp."
_numbers = itertools.count()


class Group:
    """A group of processes with a bound on their memory. ``close`` removes it, when they have ended."""

    def __init__(self, folder: Path, version: int, most: int) -> None:
        self.folder, self.version, self.most = folder, version, most
        self.bound, self.use, self.cache, self.events = FILES[version]
        self._write(self.bound, most)
        for name, value in (("memory.swap.max", 0), (TCP + "limit_in_bytes", most)):  # each of one version
            with suppress(OSError):
                self._write(name, value)

    def enter(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._write("cgroup.procs", pid)

    def held(self, files: int, memory: int) -> bool:
        """Whether the processes hold more than ``memory`` beside files of so many bytes, and cannot do without.

        What the kernel keeps to be quick (names of files once seen) counts in the use, but it gives it back when asked.
        """
        about = self._fields("memory.stat")
        use = int((self.folder / self.use).read_text()) - about.get(self.cache, 0)
        if self.version == 2:
            return use - about.get("slab_reclaimable", 0) > memory
        with suppress(OSError):  # the first version counts these apart
            if int((self.folder / (TCP + "usage_in_bytes")).read_text()) > memory:
                return True
        if use <= memory:
            return False
        try:
            self._write(self.bound, memory + max(files, about.get(self.cache, 0)))
        except OSError as error:
            return error.errno == errno.EBUSY
        self._write(self.bound, self.most)
        return False

    def ended(self) -> bool:
        """Whether the kernel ended a process of it for want of memory."""
        return self._fields(self.events).get("oom_kill", 0) > 0

    def close(self) -> None:
        for _ in range(50):  # the last process has ended, and may not have left yet
            with suppress(OSError):
                self.folder.rmdir()
            if not self.folder.exists():
                break
            time.sleep(0.01)

    def _write(self, name: str, value: int) -> None:
        (self.folder / name).write_text(str(value))

    def _fields(self, name: str) -> dict[str, int]:
        lines = (line.split() for line in (self.folder / name).read_text().splitlines())
        return {words[0]: int(words[1]) for words in lines if len(words) == 2}


def group(most: int) -> Group | None:
    """A new group whose memory is bounded, below this process's own or beside it; None where none can be made."""
    for parent, version in _places():
        folder = parent / f"clew-{os.getpid()}-{next(_numbers)}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            return Group(folder, version, most)
        except OSError:  # no control over memory there
            with suppress(OSError):
                folder.rmdir()
    return None


def _places() -> list[tuple[Path, int]]:
    """Folders in which a group may be made, with the version of their hierarchy, likeliest first."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    found = []
    for _, place, kind, options, *_ in mounts:
        if kind == "cgroup" and "memory" in options.split(","):
            found += [(Path(place + path), 1) for _, names, path in own if "memory" in names.split(",")]
        elif kind == "cgroup2":
            for number, _, path in own:
                if number == "0":
                    here = Path(place + path)
                    found += [(here, 2), (here.parent, 2), (Path(place), 2)]
    return found

"""The lock of a shelf of trees: those who take snapshots hold it together, who removes something holds it alone.

``TreeShelf`` holds one. It counts how often something was removed, so that a ``Scan`` which remembers what it kept
knows when that may be gone. It is the system's lock of a file: a killed process lets it go. It must not be held for
longer than a snapshot or a sweep takes.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 60.0  # seconds for which who removes waits for snapshots that are being taken


class TreeLock:
    """A lock in a file, shared by processes, and by threads of one.

    Args:
        path: of the file, made if it is not there.
    """

    def __init__(self, path: str) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
        self.path = path
        self._mutex, self._writers = threading.Lock(), 0
        self._fd, self._sweeps = -1, 0

    @contextmanager
    def together(self) -> Iterator[int]:
        """Hold it with others: nothing is removed meanwhile. Gives how often something ever was."""
        with self._mutex:
            if not self._writers:
                self._fd = self._locked(fcntl.LOCK_SH)
                self._sweeps = self._read(self._fd)
            self._writers += 1
            sweeps = self._sweeps
        try:
            yield sweeps
        finally:
            with self._mutex:
                self._writers -= 1
                if not self._writers:
                    os.close(self._fd)

    @contextmanager
    def alone(self, patience: float = PATIENCE) -> Iterator[int]:
        """Hold it alone; gives how often something was removed so far.

        Raises:
            BlockingIOError: others held it all the while.
        """
        late = time.monotonic() + patience
        while True:
            try:
                fd = self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= late:
                    raise
                time.sleep(0.01)
        try:
            yield self._read(fd)
        finally:
            os.close(fd)

    def count(self, sweeps: int) -> None:
        """Note how often something was removed; before it is, by who holds the lock alone."""
        fd = os.open(self.path, os.O_WRONLY)
        try:
            os.pwrite(fd, b"%020d" % sweeps, 0)
        finally:
            os.close(fd)

    def _locked(self, how: int) -> int:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(fd, how)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _read(self, fd: int) -> int:
        told = os.pread(fd, 20, 0)
        return int(told) if told.isdigit() else 0

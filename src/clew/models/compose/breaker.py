"""A circuit breaker: after several failures a worker is left alone for a while, then tried with one request.

``clew.models.compose.routed`` keeps one for each worker, so that a pool does not pay for a worker that is down with
every request. It knows nothing of requests, and its clock is handed in. It must never hold a worker back for what a
request, and not the worker, did wrong: the caller says which.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from clew.core.errors import BadInput


class Breaker:
    """Closed while all is well; open for ``pause`` seconds after ``failures`` within ``window``; then half open.

    Args:
        failures: that open it.
        window: seconds in which they count.
        pause: seconds for which nothing is sent; then one request is tried, and its outcome closes or opens it again.
        clock: seconds that only grow.

    Raises:
        BadInput: one of them has no meaning.
    """

    def __init__(
        self,
        failures: int = 3,
        window: float = 60.0,
        pause: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if failures < 1 or window <= 0 or pause <= 0:
            raise BadInput(
                f"a breaker of {failures} failures in {window} s, pausing {pause} s", remedy="Give numbers above 0."
            )
        self.failures, self.window, self.pause, self.clock = failures, window, pause, clock
        self._lock, self._failed = threading.Lock(), deque[float](maxlen=failures)
        self._until: float | None = None  # None: closed
        self._trying = False

    def wait(self) -> float:
        """Seconds until the worker may be asked; 0 where it may be now, unless the one request that tries is out."""
        with self._lock:
            return self._wait()

    def _wait(self) -> float:
        if self._until is None:
            return 0.0
        return max(0.0, self._until - self.clock()) or (1.0 if self._trying else 0.0)

    def enter(self) -> bool:
        """Whether a request may be sent now. If so, exactly one of the other methods must be called for it."""
        with self._lock:
            if self._wait() > 0:
                return False
            self._trying = self._until is not None
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._until, self._trying = None, False
            self._failed.clear()

    def failed(self) -> None:
        with self._lock:
            now = self.clock()
            self._failed.append(now)
            many = len(self._failed) == self.failures and self._failed[0] > now - self.window
            if self._trying or (many and self._until is None):
                self._until, self._trying = now + self.pause, False

    def released(self) -> None:
        """The request ended without telling of the worker: it was cancelled, or was itself at fault."""
        with self._lock:
            self._trying = False

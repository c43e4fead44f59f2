"""Long work on a store is done in slices: who waits for it sets how long one may take, and asks again for the next.

Stores time by a ``Slice`` what fills their derived tables. The viewer sets the limit, so that a page hears soon how far
the work is, and nothing goes on for long after its reader left. Without a limit the work is done in one go. It is only
ever left where what was done so far is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LIMIT: ContextVar[float] = ContextVar("limit", default=math.inf)


class Unfinished(Exception):
    """No error: the slice is over, and the next one goes on from there.

    Args:
        what: ``list`` (summaries of runs), ``words`` (a search in messages) or ``calls`` (one in a single run).
        done: how many runs (``calls``: Calls) were dealt with so far, of how many in all.
    """

    def __init__(self, what: str, done: int, total: int) -> None:
        super().__init__(f"{what}: {done} of {total}")
        self.what, self.done, self.total = what, done, total


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Each piece of long work that begins inside may raise ``Unfinished`` once so many seconds passed."""
    token = _LIMIT.set(seconds)
    try:
        yield
    finally:
        _LIMIT.reset(token)


class Slice:
    """The time that one piece of work has, from now on."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _LIMIT.get()

    @property
    def over(self) -> bool:
        """Whether the time is up. Ask only after something was done and kept, or the work never ends."""
        return time.monotonic() > self._end

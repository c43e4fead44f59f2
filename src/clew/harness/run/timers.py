"""Timers of an agent while it follows a record: they fire when the record needs them, not when the wall clock says so.

A timeout that gave up an ask after a minute gives it up again at the same place of the record, whether the replay takes
a millisecond or an hour. ``RunState`` makes a Timers for each run that follows a record, ``drive`` fires what it holds
while the agent is idle and lets go of the rest when the run goes live. Only timers that the agent's own tasks start are
held; what performs effects keeps the wall clock.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_mine: ContextVar[Timers | None] = ContextVar("timers", default=None)


class Timer:
    """One timer that is held; what ``loop.call_at`` returns to the agent's task."""

    __slots__ = ("_call", "_cancelled", "_real", "_when")

    def __init__(self, when: float, call: Callable[[], asyncio.Handle]) -> None:
        self._when, self._call, self._cancelled = when, call, False
        self._real: asyncio.Handle | None = None

    def when(self) -> float:
        return self._when

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True
        if self._real is not None:
            self._real.cancel()

    def fire(self) -> None:
        self._real = self._call()

    def arm(self, handle: asyncio.Handle) -> None:
        self._real = handle


class Timers:
    """The timers of one run. ``now`` is how far the record has come, in seconds of the run; ``fired`` counts."""

    def __init__(self) -> None:
        self.now, self.fired, self._holds, self._began = 0.0, 0, True, 0.0
        self._loop = asyncio.get_running_loop()
        self._held: list[tuple[float, int, Timer, Callable[[], None]]] = []
        self._count = itertools.count()
        _listen(self._loop)

    def hold(self) -> None:
        """Hold the timers that this task, and the tasks it starts, set from now on."""
        _mine.set(self)

    def take(self, delay: float, call: Callable[..., object], args: tuple[Any, ...], context: Context) -> Timer | None:
        """Hold a timer; None where the run is live."""
        if not self._holds:
            return None
        due = self.now + max(0.0, delay)
        timer = Timer(due, lambda: self._loop.call_soon(call, *args, context=context))

        def arm() -> None:
            timer.arm(self._loop.call_later(max(0.0, due - self.now), call, *args, context=context))

        heapq.heappush(self._held, (due, next(self._count), timer, arm))
        return timer

    def reach(self, moment: float) -> None:
        """The record has come to a moment, in seconds since the epoch."""
        self._began = self._began or moment
        self.now = max(self.now, moment - self._began)

    def fire(self) -> bool:
        """Fire the timer that is due first; False where none is held."""
        while self._held:
            due, _, timer, _ = heapq.heappop(self._held)
            if not timer.cancelled():
                self.now, self.fired = max(self.now, due), self.fired + 1
                timer.fire()
                return True
        return False

    def release(self) -> None:
        """The run is live: what is held runs by the wall clock from here on."""
        self._holds, held = False, self._held
        self._held = []
        for _, _, timer, arm in held:
            if not timer.cancelled():
                arm()


def outside(loop: asyncio.AbstractEventLoop, work: Awaitable[T]) -> asyncio.Future[T]:
    """A task whose timers are never held: what performs an effect."""
    if not inspect.iscoroutine(work):
        return asyncio.ensure_future(work)
    context = copy_context()
    context.run(_mine.set, None)
    return loop.create_task(work, context=context)


def _listen(loop: Any) -> None:
    """Let the loop ask, at each timer that is set, whether the run of the task that sets it holds its timers."""
    if hasattr(loop, "_clew_timers"):
        return
    at, later = loop.call_at, loop.call_later

    def call_at(when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        mine = _mine.get() if context is None else context.get(_mine)
        held = mine.take(when - loop.time(), callback, args, context or copy_context()) if mine is not None else None
        return held or at(when, callback, *args, context=context)

    def call_later(delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        mine = _mine.get() if context is None else context.get(_mine)
        held = mine.take(delay, callback, args, context or copy_context()) if mine is not None else None
        return held or later(delay, callback, *args, context=context)

    loop.call_at, loop.call_later, loop._clew_timers = call_at, call_later, True

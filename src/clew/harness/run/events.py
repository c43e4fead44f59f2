"""What comes to an agent from outside: results, timers, an end. Each comes alone, once the agent has settled.

An agent of several tasks goes on in an order that no record tells where two things come to it at once. So a run brings
them one after the other, and each only when the agent has done all that the one before brought about: what is recorded
is then the order of the events, and a replay that keeps this order keeps all else. ``RunState`` makes an Events and a
Timers for each run. The clock of the agent moves with what is recorded, so a replay gives each timer the moment it had.
While a record is followed, the timers that the agent's own tasks set are held and fire when the record needs them: a
timeout that gave up an ask after a minute gives it up again at the same place, whether the replay takes a millisecond
or an hour. What performs effects keeps the wall clock.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar, cast

from clew.core.records import Call, Cursor, RunRow

T = TypeVar("T")
Work = Coroutine[Any, Any, Any] | Generator[Any, None, Any]  # what a task runs
_mine: ContextVar[Timers | None] = ContextVar("timers", default=None)
SETTLED = 20  # passes of the loop in which an agent does nothing, after which it has settled
RESTLESS = 2000  # passes after which an event comes to an agent that never settles
SLACK = 0.05  # seconds that an agent may compute between two effects before its clock goes on by itself


class Events:
    """The events that wait for one run's agent. ``moved`` gives what differs once the agent has done something."""

    def __init__(self, moved: Callable[[], object]) -> None:
        self._moved, self._loop = moved, asyncio.get_running_loop()
        self._waiting, self._last = deque[Callable[[], object]](), list[tuple[float, int, Callable[[], object]]]()
        self._count = itertools.count()
        self._seen: object = None
        self._still = self._passes = 0

    def bring(self, event: Callable[[], object], due: float | None = None) -> None:
        """Call ``event`` once the agent has settled, after those that were brought before. A timer says when it was
        ``due``: timers come after all else, as they do where a record is followed, and in the order of that."""
        if due is None:
            self._waiting.append(event)
        else:
            heapq.heappush(self._last, (due, next(self._count), event))
        if len(self._waiting) + len(self._last) == 1:
            self._begin()

    def _begin(self) -> None:
        self._seen, self._still, self._passes = None, 0, 0
        self._loop.call_soon(self._pass, context=Context())

    def _pass(self) -> None:
        now, self._passes = self._moved(), self._passes + 1
        self._still = self._still + 1 if now == self._seen else 0
        self._seen = now
        if self._still < SETTLED and self._passes < RESTLESS:
            self._loop.call_soon(self._pass, context=Context())
            return
        event = self._waiting.popleft() if self._waiting else heapq.heappop(self._last)[2]
        if self._waiting or self._last:
            self._begin()
        event()


class Timer:
    """One timer of an agent; what ``loop.call_at`` returns to the agent's task."""

    __slots__ = ("_call", "_cancelled", "_handle", "_when")

    def __init__(self, when: float, call: Callable[[], asyncio.Handle]) -> None:
        self._when, self._call, self._cancelled = when, call, False
        self._handle: asyncio.Handle | None = None

    def when(self) -> float:
        return self._when

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True
        if self._handle is not None:
            self._handle.cancel()

    def arm(self, handle: asyncio.Handle) -> None:
        """It waits for the wall clock, by a handle of the loop."""
        self._handle = handle

    def fire(self) -> None:
        if not self._cancelled:
            self._handle = self._call()


class Timers:
    """The timers of one run, and the clock that its agent's tasks read.

    The clock stands still while the agent works, and comes on with what is recorded: when a Call was issued, when its
    result came, when a timer was due. A replay, which knows just that, so sets every timer to the moment it had. Only
    where an agent works longer than ``SLACK`` between two effects, the clock of a live run follows the wall clock.

    Args:
        bring: brings an event to the agent.
        row: the run.
        holds: whether a record is followed.
    """

    def __init__(self, bring: Callable[[Callable[[], object], float], None], row: RunRow, holds: bool) -> None:
        self.now, self.fired, self._holds = 0.0, 0, holds  # now: seconds of the run; fired: how many timers
        self.jobs = 0  # what the agent has under way in threads
        self._run, self._began = "", 0.0  # whose moments are counted, and when its clock would have shown 0
        self._row, self._place = row, Cursor.parse(row.parent).seq if row.parent else -1
        self._shared = row.lineage[-1].stop if row.lineage else 0
        self._bring, self._loop = bring, asyncio.get_running_loop()
        self._held: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._wall = _listen(self._loop)
        self._base = self._zero = self._wall()  # what tasks read at 0; when 0 was, by the wall clock

    def hold(self) -> None:
        """Take charge of the timers that this task, and the tasks it starts, set from now on."""
        _mine.set(self)

    def await_job(self, job: asyncio.Future[Any]) -> None:
        """The agent computes in a thread: it is busy until that has ended, or is wanted no more."""
        self.jobs += 1
        job.add_done_callback(self._job_ended, context=Context())

    def _job_ended(self, _: asyncio.Future[Any]) -> None:
        self.jobs -= 1

    def take(self, delay: float, call: Callable[..., object], args: tuple[Any, ...], context: Context) -> Timer:
        due = round(self._clock() + max(0.0, delay), 6)  # what rounds otherwise elsewhere is no other moment
        timer = Timer(self._base + due, lambda: self._loop.call_soon(call, *args, context=context))
        if self._holds:
            heapq.heappush(self._held, (due, next(self._count), timer))
        else:
            self._arm(timer, due)
        return timer

    def _arm(self, timer: Timer, due: float) -> None:
        event = partial(self._fire, timer, due)
        timer.arm(self._loop.call_at(self._zero + due, self._bring, event, due, context=Context()))

    def _fire(self, timer: Timer, due: float) -> None:
        if not timer.cancelled():
            self.now = max(self.now, due)
            self.fired += 1
            timer.fire()

    def reach(self, call: Call, moment: float) -> None:
        """The run has come to a moment, in seconds since the epoch.

        What a fork made was made later than what it follows: its agent went on from where the record stood. What it
        made anew below its place tells no moment, and what it copied there goes on from what came before.
        """
        own = call.started >= self._row.created
        if own and call.seq < self._place:
            return
        run = self._row.id if own else call.run if call.seq < self._shared else self._run or call.run
        if run != self._run:
            self._run, self._began = run, moment - self.now
        self.now = max(self.now, moment - self._began)
        if not self._holds:
            self._zero = min(self._zero, self._wall() - self.now)

    def _clock(self) -> float:
        if not self._holds and (passed := self._wall() - self._zero) > self.now + SLACK:
            self.now = passed
        return self.now

    def time(self) -> float:
        """What the agent's tasks read on the clock of the loop."""
        return self._base + self._clock()

    @property
    def wait(self) -> float:
        """Seconds until the timer that is due first, as its task counts them; 0 where none is held."""
        while self._held and self._held[0][2].cancelled():
            heapq.heappop(self._held)
        return max(0.0, self._held[0][0] - self.now) if self._held else 0.0

    def fire(self) -> bool:
        """Fire the timer that is due first; False where none is held."""
        while self._held:
            due, _, timer = heapq.heappop(self._held)
            if not timer.cancelled():
                self._fire(timer, due)
                return True
        return False

    def release(self) -> None:
        """The run is live: what is held runs by the wall clock from here on."""
        self._holds, held = False, self._held
        self._held, self._zero = [], self._wall() - self.now
        for due, _, timer in sorted(held):
            if not timer.cancelled():
                self._arm(timer, due)


def outside(loop: asyncio.AbstractEventLoop, work: Awaitable[T]) -> asyncio.Future[T]:
    """A task whose timers nobody takes charge of: what performs an effect."""
    if not inspect.iscoroutine(work):
        return asyncio.ensure_future(work)
    context = copy_context()
    context.run(_mine.set, None)
    return loop.create_task(work, context=context)


class Contained(Coroutine[Any, Any, T]):
    """A coroutine of an agent's task. A SystemExit that leaves it would end the event loop, and every run with it: it
    becomes an error of the task. ``asyncio`` asks no more of a coroutine than these three methods."""

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return (yield from self._work.__await__())

    def __getattr__(self, name: str) -> object:
        return getattr(self._work, name)  # cr_frame and the like, for tracebacks

    def send(self, value: object) -> object:
        with _contained():
            return self._work.send(value)

    def throw(self, *raised: Any) -> object:
        with _contained():
            return self._work.throw(*raised)

    def close(self) -> None:
        self._work.close()


@contextmanager
def _contained() -> Iterator[None]:
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: a task of the agent called for the end of the process ({error})") from error


def _listen(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Let the loop ask whether the task that sets a timer, reads its clock or gives work to a thread is an agent's, and
    contain the tasks that one begins. Gives its clock as all others read it."""
    own: Any = loop
    if not isinstance(loop, asyncio.BaseEventLoop):
        return loop.time  # a loop that is not Python's own keeps its timers to itself
    if hasattr(own, "_clew_clock"):
        return cast(Callable[[], float], own._clew_clock)
    at, clock, to_thread = loop.call_at, loop.time, loop.run_in_executor

    def time() -> float:
        mine = _mine.get()
        return float(clock() if mine is None else mine.time())

    def call_at(when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        mine = _mine.get() if context is None else context.get(_mine)
        if mine is None:
            return at(when, callback, *args, context=context)
        return mine.take(when - time(), callback, args, context or copy_context())

    def call_later(delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        mine = _mine.get() if context is None else context.get(_mine)
        if mine is None:
            return at(clock() + delay, callback, *args, context=context)
        return mine.take(delay, callback, args, context or copy_context())

    def run_in_executor(executor: Any, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        job, mine = to_thread(executor, work, *arguments), _mine.get()
        if mine is not None:
            mine.await_job(job)
        return job

    make = loop.get_task_factory()

    def task_of(loop: asyncio.AbstractEventLoop, work: Work, **how: Any) -> asyncio.Future[Any]:
        context = how.get("context")
        mine = _mine.get() if context is None else context.get(_mine)
        if mine is not None and asyncio.iscoroutine(work):
            work = Contained(work)
        return make(loop, work, **how) if make is not None else asyncio.Task(work, loop=loop, **how)

    loop.set_task_factory(task_of)
    own.call_at, own.call_later, own.time, own._clew_clock = call_at, call_later, time, clock
    own.run_in_executor = run_in_executor
    return clock

"""An effect under way, the exception that ends a run, and how errors are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, Protocol, TypeGuard, TypeVar, cast

from clew.core import errors
from clew.core.errors import ClewError, WorldError
from clew.core.protocols import Batches, Snapshots
from clew.core.records import Call
from clew.core.values import UNSET, StopReason, Unset

CUT_OFF = "cancelled: the agent ended before the result arrived"
GIVEN_UP = "cancelled: the agent gave it up"  # by a timeout of its own, or by cancelling the task that waited
T = TypeVar("T")
V = TypeVar("V")


class Stop(BaseException):
    """Ends a run from inside an effect. Not an Exception, so that an agent's own handlers let it pass.

    Args:
        why: what is printed of it where the run is shown; empty where the reason says all.
    """

    def __init__(self, reason: StopReason, why: str = "") -> None:
        super().__init__(reason)
        self.reason, self.why = reason, why


class Handed:
    """How many results of a run have been handed over that the agent's tasks have not woken with yet."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Awaited(asyncio.Future[T]):
    """What an agent's task waits on. To cancel it is a wish that ``give_up`` hears: the run records it first and then
    lets the task know by ``drop``. So a cancelled effect has its place in the record, as an answered one has. Where the
    result was handed over already, the task is cancelled as soon as it has taken it: what is recorded was also known.
    """

    def __init__(self, give_up: Callable[[], None] | None) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._give_up, self.given_up = give_up, False
        self.task: asyncio.Task[Any] | None = None  # that waits

    def cancel(self, msg: Any = None) -> bool:
        if self.done() and not self.cancelled() and self.task is not None:
            self.get_loop().call_soon(_cancel_later, self.task)
            return True
        if self._give_up is None or self.done():
            return super().cancel(msg)
        if not self.given_up:
            self.given_up = True
            self._give_up()
        return True

    def drop(self) -> None:
        """Cancel it without asking."""
        super().cancel()


def _cancel_later(task: asyncio.Task[Any]) -> None:
    if task.cancelling() and not task.done():  # else the wish was withdrawn, as by a timeout whose block has ended
        task.cancel()
        task.uncancel()  # it was counted when it was first wished for


class Waits(Protocol):
    """A run, as its pending effects see it."""

    def early(self, pending: Pending[Any], result: object) -> bool: ...
    def give_up(self, pending: Pending[Any]) -> None: ...
    def leave(self, pending: Pending[Any]) -> None: ...


class Pending(Generic[T]):
    """An effect whose result is on its way to the agent as a value of type T.

    ``apply`` takes the completed Call, moves the run's state on and gives the agent's value, or raises the recorded
    error; a Call from the record and one that was just recorded go through it alike. ``record`` takes what came back
    from outside, records it and gives the agent's value; a part of a result gives UNSET until the last is there.
    ``left`` gives what is recorded of an effect that the agent gives up, ``stop`` ends what performs it, and with
    ``lasting`` that must be over first. So a new kind of effect brings all of these with it, and neither the run's
    state nor the Dispatcher tells kinds apart. ``run`` hears of early results and of effects that are given up.
    """

    __slots__ = (
        "_future",
        "_handed",
        "_run",
        "apply",
        "awaited",
        "call",
        "intended",
        "issue",
        "lasting",
        "left",
        "overtaken",
        "record",
        "stop",
        "value",
    )

    def __init__(
        self, call: Call, issue: bytes, handed: Handed, apply: Callable[[Call], T], run: Waits | None = None
    ) -> None:
        self.call, self.issue, self.apply, self._run = call, issue, apply, run
        self.record: Callable[[Any], T | Unset] = apply
        self.left: Callable[[], dict[str, Any]] = dict
        self.stop: Callable[[], object] | None = None
        self.lasting = False
        self.value: T | BaseException | Unset = UNSET
        self.awaited, self.intended, self.overtaken = False, False, handed.count > 0
        self._handed = handed
        self._future: Awaited[T] | None = None

    @property
    def future(self) -> Awaited[T]:
        """Made when it is first looked at: most acts answer within their issue."""
        if self._future is None:
            self._future = Awaited(None if self._run is None else self._give_up)
        return self._future

    @property
    def given_up(self) -> bool:
        """Whether the agent wants no result any more."""
        return self._future is not None and self._future.given_up

    @property
    def over(self) -> bool:
        """Whether a result that comes now comes too late."""
        return self._future is not None and (self._future.given_up or self._future.done())

    def early(self, result: object) -> bool:
        """Whether a result must wait, since what is recorded comes first; the run keeps it then."""
        return self._run is not None and self._run.early(self, result)

    def part(self, record: Callable[[Any], T | Unset]) -> Pending[T]:
        """One of several requests that this effect makes: it shares the future and has a ``record`` of its own."""
        part = Pending(self.call, self.issue, self._handed, self.apply, self._run)
        part._future, part.record = self.future, record
        return part

    def _give_up(self) -> None:
        assert self._run is not None
        self._run.give_up(self)

    def ended(self) -> None:
        """What performed a lasting effect is over, after the agent gave it up."""
        assert self._run is not None
        self._run.leave(self)

    def drop(self) -> None:
        """Let the agent's task know that its effect is given up."""
        self._handed.count += 1
        self.future.drop()

    def hand(self, value: T | BaseException) -> None:
        """Give the waiting agent its value (an exception is raised there)."""
        if self.future.done():
            return
        self._handed.count += 1
        if isinstance(value, BaseException):
            self.future.set_exception(value)
        else:
            self.future.set_result(value)

    async def taken(self) -> T:
        """Wait for the value, and note that the agent has woken with it."""
        self.future.task = asyncio.current_task()
        try:
            return await self.future
        finally:
            self._handed.count -= 1


class Failing:
    """Gives what fails inside to a function, which says whether it has dealt with it. A context, or a decorator of a
    function of one argument. Runs enter several at each turn: ``contextlib`` would take as long as all their digests.
    """

    __slots__ = ("_failed",)

    def __init__(self, failed: Callable[[Exception], bool]) -> None:
        self._failed = failed

    def __enter__(self) -> Failing:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, Exception) and self._failed(error)

    def __call__(self, does: Callable[[V], T]) -> Callable[[V], T]:
        def done(value: V) -> T:
            with self:
                return does(value)
            return cast(T, None)  # nobody takes it: the failure is on its way

        return done


def describe(error: BaseException) -> str:
    """How an error is recorded: class and message, so that replay can raise it again."""
    message = error.message if isinstance(error, ClewError) else str(error)
    return f"{type(error).__name__}: {message}"


def revive(text: str) -> ClewError:
    """The recorded error as an exception of its class."""
    name, _, message = text.partition(": ")
    kind = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, ClewError) else WorldError(text)


@cache
def _offers(kind: type, protocol: type) -> bool:
    return issubclass(kind, protocol)


def batches(model: object) -> TypeGuard[Batches]:
    """Whether a model is a ``Batches``; cheap enough to ask at every effect."""
    kind: Any = type(model)
    return _offers(kind, Batches)


def snapshots(world: object) -> TypeGuard[Snapshots]:
    """Whether a world has ``Snapshots``; cheap enough to ask at every effect."""
    kind: Any = type(world)
    return _offers(kind, Snapshots)


@contextmanager
def away(model: object) -> Iterator[None]:
    """While a run waits for something slow, the ticks of its model's engine do not wait for the run."""
    if batches(model):
        model.seat(-1)
    try:
        yield
    finally:
        if batches(model):
            model.seat(1)

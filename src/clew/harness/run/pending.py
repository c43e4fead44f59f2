"""An effect under way, the exception that ends a run, and how errors are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeGuard, TypeVar

from clew.core import errors
from clew.core.errors import ClewError, WorldError
from clew.core.protocols import Batches, Snapshots
from clew.core.records import Call
from clew.core.values import UNSET, StopReason, Unset

CUT_OFF = "cancelled: the agent ended before the result arrived"
T = TypeVar("T")


class Stop(BaseException):
    """Ends a run from inside an effect. Not an Exception, so that an agent's own handlers let it pass."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


class Handed:
    """How many results of a run have been handed over that the agent's tasks have not woken with yet."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Pending(Generic[T]):
    """An effect whose result is on its way to the agent as a value of type T.

    ``apply`` takes the completed Call, moves the run's state on and gives the agent's value, or raises the recorded
    error; a Call from the record and one that was just recorded go through it alike. ``record`` takes what came back
    from outside, records it and gives the agent's value; a part of a result gives UNSET until the last part is there.
    So a new kind of effect brings both with it, and neither the run's state nor the Dispatcher tells kinds apart.
    """

    __slots__ = ("_future", "_handed", "apply", "awaited", "call", "issue", "overtaken", "record", "value")

    def __init__(self, call: Call, issue: bytes, handed: Handed, apply: Callable[[Call], T]) -> None:
        self.call, self.issue, self.apply = call, issue, apply
        self.record: Callable[[Any], T | Unset] = apply
        self.value: T | BaseException | Unset = UNSET
        self.awaited, self.overtaken = False, handed.count > 0
        self._handed = handed
        self._future: asyncio.Future[T] | None = None

    @property
    def future(self) -> asyncio.Future[T]:
        """Made when it is first looked at: most acts answer within their issue."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future

    def part(self, record: Callable[[Any], T | Unset]) -> Pending[T]:
        """One of several requests that this effect makes: it shares the future and has a ``record`` of its own."""
        part = Pending(self.call, self.issue, self._handed, self.apply)
        part._future, part.record = self.future, record
        return part

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
        try:
            return await self.future
        finally:
            self._handed.count -= 1


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

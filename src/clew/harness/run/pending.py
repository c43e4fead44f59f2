"""An effect under way, the exception that ends a run, and how errors are recorded."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard

from clew.core import errors
from clew.core.errors import ClewError, WorldError
from clew.core.protocols import Batches, Model, Snapshots
from clew.core.records import Call
from clew.core.values import UNSET, StopReason

if TYPE_CHECKING:
    from clew.harness.run.live import Conversation


CUT_OFF = "cancelled: the agent ended before the result arrived"


class Stop(BaseException):
    """Ends a run from inside an effect. Not an Exception, so that an agent's own handlers let it pass."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


class Pending:
    """An effect whose result is on its way."""

    __slots__ = ("_future", "awaited", "call", "chat", "forced", "issue", "model", "overtaken", "value")

    def __init__(self, call: Call, issue: bytes, chat: Conversation | None = None) -> None:
        self.call, self.issue, self.chat = call, issue, chat
        self.model: Model | None = None
        self.forced: tuple[int, ...] = ()
        self._future: asyncio.Future[Any] | None = None
        self.value: Any = UNSET
        self.awaited = self.overtaken = False

    @property
    def future(self) -> asyncio.Future[Any]:
        """Made when it is first looked at: most acts answer within their issue."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future


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
def _offers(kind: Any, protocol: Any) -> bool:
    return issubclass(kind, protocol)


def batches(model: Any) -> TypeGuard[Batches]:
    """Whether a model is a ``Batches``; cheap enough to ask at every effect."""
    kind: Any = type(model)
    return _offers(kind, Batches)


def snapshots(world: Any) -> TypeGuard[Snapshots]:
    """Whether a world has ``Snapshots``; cheap enough to ask at every effect."""
    kind: Any = type(world)
    return _offers(kind, Snapshots)

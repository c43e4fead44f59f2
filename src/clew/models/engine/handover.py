"""Hands results from the engine's thread to callers: in batches to a function, or one by one into an event loop."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol, TypeVar

from clew.core.errors import Busy, ClewError, ModelError, Refused
from clew.core.protocols import Done
from clew.core.records import Request
from clew.core.values import Completion
from clew.models.engine.grammar import Guide
from clew.models.engine.state import Answered, Fresh, Inbox, Result, Waiting

T = TypeVar("T")
Given = tuple[Callable[[Completion | BaseException], None], Completion | BaseException]
SLOWEST = 60.0  # seconds, the longest pause that is asked of a request that was refused
_log = logging.getLogger(__name__)


class Closes(Protocol):
    """What may compute in a thread of its own."""

    def close(self, at_once: bool = False) -> None: ...


def close_at_exit(engine: Closes) -> None:
    """Close an engine that still lives when Python ends: torn out of torch then, its thread would abort the process."""
    weakref.finalize(engine, _close, weakref.ref(engine))


def _close(found: weakref.ref[Closes]) -> None:
    if (engine := found()) is not None:
        engine.close(at_once=True)


class Queue(Protocol):
    """What a stream needs of the engine that answers it."""

    def ask(self, request: Request, answered: Answered, inbox: Inbox | None = None) -> Waiting: ...
    def drop(self, entry: Waiting) -> None: ...
    def guide(self, grammar: str) -> Guide: ...


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[[T], object], value: T) -> None:
    """Call a function in an event loop from another thread; not where the loop has been closed."""
    try:
        loop.call_soon_threadsafe(function, value)
    except RuntimeError:
        if not loop.is_closed():
            raise


def deliver(results: list[Result]) -> None:
    """Hand results to whoever submitted them, in one call each and in one into each event loop; empties the list.

    An event loop that is woken for the first of several would ask anew while the others are still handed over, and the
    rows of one batch would come apart.
    """
    by_caller: dict[Done, list[tuple[int, Completion | BaseException]]] = defaultdict(list)
    by_loop: dict[asyncio.AbstractEventLoop, list[Given]] = defaultdict(list)
    for entry, answer in results:
        if isinstance(entry.done, Answered):
            by_loop[entry.done.loop].append((entry.done.give, answer))
        else:
            by_caller[entry.done].append((entry.index, answer))
    results.clear()
    for loop, given in by_loop.items():
        call_in(loop, _give, given)
    for done, answers in by_caller.items():
        try:
            done(answers)
        except Exception:
            _log.exception("a caller of the engine failed to take its results")


def _give(given: list[Given]) -> None:
    for give, answer in given:
        try:
            give(answer)
        except Exception:
            _log.exception("a caller of the engine failed to take its result")


def send(fresh: list[tuple[Inbox, Fresh]]) -> None:
    """Put pieces of streams into their inboxes, one call into each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Inbox, Fresh]]] = defaultdict(list)
    for inbox, new in fresh:
        by_loop[inbox.loop].append((inbox, new))
    for loop, sent in by_loop.items():
        call_in(loop, _put, sent)


def _put(sent: list[tuple[Inbox, Fresh]]) -> None:
    for inbox, new in sent:
        inbox.put(new)


def settle(future: asyncio.Future[Completion], answer: Completion | BaseException) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def shut() -> Refused:
    return Refused("the engine is closed", remedy="Open the model again.")


def busy(taken: int, wait: float) -> Busy:
    """The refusal of a request that comes while so many are taken; ``wait`` seconds are asked for, within bounds."""
    error = Busy(f"{taken} requests run or wait, and no more may", remedy="Send the request again a little later.")
    error.wait = min(SLOWEST, max(1.0, wait))
    return error


def as_model_error(error: BaseException) -> BaseException:
    if isinstance(error, ClewError):
        return error
    wrapped = ModelError(f"the engine failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped

"""The one retry loop of remote models: sends a request until it is answered, within the limits that all runs share.

``client`` sends its completions through it, ``prompt_scores`` its scores. What is sent and read is the callers' own
matter: nothing here knows a dialect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Protocol, TypeVar

import httpx

from clew.core.errors import ModelError, Unreachable
from clew.core.records import Request
from clew.core.values import Attempt
from clew.models.remote.endpoint import Endpoint
from clew.models.remote.failures import Failed, Failure, error_of, pause_of
from clew.models.remote.limits import RateLimiter

T = TypeVar("T")


class Sender(Protocol):
    """Who sends: the endpoint, the shared limits, and how often to try."""

    endpoint: Endpoint
    gate: RateLimiter
    model: str
    attempts: int
    backoff: float
    deadline: float


class InFlight:
    """One request under way, with what was tried so far."""

    def __init__(self, request: Request, streaming: bool, deadline: float, version: int = 0) -> None:
        self.request, self.streaming = request, streaming
        self.version = version  # of the weights, when the present attempt was sent
        self.began = time.monotonic()
        self.bounded_by_run = request.deadline is not None and request.deadline < deadline
        self._seconds = min(deadline, deadline if request.deadline is None else request.deadline)
        self.attempts: list[Attempt] = []
        self.tokens = 0.0  # most that it can use
        self.out = False  # it may have reached the endpoint, which has not said that it takes nothing for it
        self.used = 0.0  # tokens that the present attempt did use

    def left(self) -> float:
        """Seconds until the first of the two deadlines: the run's, and the model's own for one request."""
        return max(0.0, self._seconds - (time.monotonic() - self.began))

    def note(self, status: int, error: str) -> None:
        self.attempts.append(Attempt(time.monotonic() - self.began, status, error))


async def tries(
    sender: Sender,
    flight: InFlight,
    send: Callable[[], AsyncGenerator[T, None]],
    mended: Callable[[Failure], bool] = lambda failure: False,
) -> AsyncGenerator[T, None]:
    """What ``send`` yields, from the first attempt that does not fail.

    Args:
        send: makes one attempt; raises Failed before its first item where the attempt brought no answer.
        mended: whether the caller has changed the request so that it may be sent again at once.

    Raises:
        Unreachable: too many attempts failed. Refused, ContextOverflow: the endpoint will not take the request.
    """
    failures = 0
    failure: Failure | None = None
    while True:
        try:
            if failure is not None:
                await _pause(sender, flight, failure, failures)
            async with aclosing(send()) as items:
                async for item in items:
                    yield item
            return
        except Failed as failed:
            failure, flight.out = failed.failure, False
        flight.note(failure.status, failure.text)
        if mended(failure):
            failure = None
            continue
        if failure.final:
            raise error_of(failure, sender.endpoint.url, sender.model)
        failures += 1
        if failures >= sender.attempts:
            raise unreachable(sender, flight)


async def _pause(sender: Sender, flight: InFlight, failure: Failure, failures: int) -> None:
    if failure.wait is not None:
        if failure.wait > flight.left() and not flight.bounded_by_run:
            raise Unreachable(
                f"{sender.endpoint.url} answered {failure.status} and asks to wait {failure.wait:.0f} s",
                remedy="Try again after that time, or lower the rate of requests.",
            )
        sender.gate.pause(failure.wait)
    async with asyncio.timeout(flight.left()):
        await asyncio.sleep(pause_of(sender.backoff, failures, flight.request.seed))


@asynccontextmanager
async def admitted(sender: Sender, flight: InFlight) -> AsyncIterator[httpx.AsyncClient]:
    """Connections for one attempt, once the shared limits allow it; afterwards ``flight.used`` tokens are settled."""
    wait, flight.used = sender.gate.enter(flight.tokens), 0.0
    try:
        async with asyncio.timeout(flight.left()):
            await asyncio.sleep(wait)
            while (paused := sender.gate.paused()) > 0:
                await asyncio.sleep(paused)
            here = await sender.endpoint.here()
            await here.room.acquire()
        try:
            yield here.client
        finally:
            here.room.release()
    finally:
        sender.gate.settle(flight.tokens, flight.used)


def unreachable(sender: Sender, flight: InFlight) -> ModelError:
    """The error for a request whose attempts are used up."""
    last = flight.attempts[-1]
    said = f"{last.status}: {last.error}" if last.status else last.error
    return Unreachable(
        f"no answer from {sender.endpoint.url} in {len(flight.attempts)} attempts; the last one: {said}",
        remedy="Check that the server runs and that its URL is right; or raise attempts, timeout or deadline.",
    )

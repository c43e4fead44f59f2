"""The line between one program and the run that answers it: requests go one way, answers the other.

The hub writes what a program asks, in the thread of its server; the program's world reads it and answers, in the loop
of the run. A line must never give a program an answer that is not its own.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from clew.core.errors import ClewError
from clew.core.values import Completion, Usage
from clew.harness.run.nodes import Reply, as_message, message_json
from clew.models.dialects import Asked
from clew.serve.gateway.exchanges import Exchange, failure
from clew.serve.gateway.verbatim import Sent
from clew.serve.sameness import key_of, question


class Incoming(NamedTuple):
    """A request as it came, and where its answer goes."""

    asked: Asked
    dialect: str
    sent: Sent
    exchange: Exchange

    @property
    def key(self) -> str:
        """Digest of what is asked, equal where a program that is started again asks the same."""
        return key_of(question(self.asked)).hex()


class Line:
    """One program's line.

    Args:
        loop: of the hub's server, in which exchanges are read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.name = secrets.token_hex(12)  # in the program's URL: no program finds another's
        self._loop, self._closed = loop, False
        self._mutex, self._fresh = threading.Lock(), list[Incoming]()
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._known: list[Exchange] = []

    # ---- the hub's end -----------------------------------------------------------------------------------------------

    def asks(self, asked: Asked, dialect: str, sent: Sent) -> Exchange:
        """Take a request in; one that its client says is sent again gets the answer of the first try.

        Raises:
            ModelError: the run has ended.
        """
        if (first := self._again(sent)) is not None:
            return first
        exchange = Exchange(-1, 0, asked.stream, body=sent.digest, idempotency=sent.idempotency)
        self._known.append(exchange)
        with self._mutex:
            if self._closed:
                raise failure("ModelError: the run of this program has ended")
            self._fresh.append(Incoming(asked, dialect, sent, exchange))
            self._ring()
        return exchange

    def _again(self, sent: Sent) -> Exchange | None:
        equal = [e for e in self._known if e.body == sent.digest]
        named = [e for e in equal if sent.idempotency and e.idempotency == sent.idempotency]
        found = named or (equal if sent.retry else [])
        return found[-1] if found and not isinstance(found[-1].last, ClewError) else None

    # ---- the world's end ---------------------------------------------------------------------------------------------

    async def requests(self, program: asyncio.Future[Any], patience: float | None = None) -> list[Incoming]:
        """What was asked since the last time, as soon as there is something; empty once the program has ended.

        Args:
            patience: seconds after which nothing is awaited any more.
        """
        ring = asyncio.Event()
        with self._mutex:
            self._wake = asyncio.get_running_loop(), ring
            if self._fresh:
                ring.set()
        heard = asyncio.ensure_future(ring.wait())
        try:
            await asyncio.wait({heard, program}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard.cancel()
        with self._mutex:
            self._wake = None
            found, self._fresh = self._fresh, []
        return [] if program.done() else found

    def answer(self, exchange: Exchange, said: Completion | ClewError) -> None:
        """Hand a program its answer, or why there is none."""
        self._loop.call_soon_threadsafe(exchange.put, said)

    def close(self) -> None:
        """Nothing is answered any more: who still waits is told so."""
        with self._mutex:
            self._closed = True
            self._ring()
        ended = failure("ModelError: the run of this program has ended")
        for exchange in self._known:
            self.answer(exchange, ended)

    def _ring(self) -> None:
        if self._wake is not None:
            loop, ring = self._wake
            loop.call_soon_threadsafe(ring.set)


# ---- answers in the record -------------------------------------------------------------------------------------------


def written(number: int, key: str, thread: int, reply: Reply, prompt: int) -> dict[str, Any]:
    """An answer as the act says that hands it over.

    Args:
        key, thread: digest and conversation of what was asked, by which it is found again. prompt: its tokens, 0 where
            nobody knows.
    """
    told = {"request": number, "key": key, "thread": thread, "message": message_json(reply.node.message)}
    return {**told, "finish": reply.finish, "usage": [prompt, len(reply.tokens or ())]}


def refused(number: int, key: str, thread: int, error: ClewError) -> dict[str, Any]:
    """Why there is no answer, as the act says that tells the program."""
    return {"request": number, "key": key, "thread": thread, "error": f"{type(error).__name__}: {error.message}"}


def read(answer: Mapping[str, Any]) -> Completion | ClewError:
    """The inverse of ``written`` and ``refused``."""
    if "error" in answer:
        return failure(str(answer["error"]))
    message, finish = as_message(answer["message"]), str(answer["finish"])
    if finish == "forced":
        finish = "tool_calls" if message.calls else "stop"
    return Completion(message, finish=finish, usage=Usage(*answer["usage"]))

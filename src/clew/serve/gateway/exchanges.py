"""One request of a program and its answer, between the run that records it and whoever waits for it.

A session makes one Exchange for each request; the gateway's routes and the recorder read it. What a reader gets must
never depend on how often the request was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from clew.core.errors import ClewError, ModelError
from clew.core.records import Call, Request, Wire
from clew.core.values import Completion, Message, Sampling, ToolSpec
from clew.harness.run.pending import revive
from clew.serve import pinned
from clew.serve.gateway import verbatim
from clew.store import Keeper


@dataclass(slots=True)
class Exchange:
    """One request and its answer: pieces of text while it is streamed, then a Completion or an error.

    Whoever reads it reads from the beginning, so that a request that is sent again gets the same answer.
    """

    number: int
    thread: int
    stream: bool = False
    length: int = 0  # messages of the thread with its answer, once it has come
    readers: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # the client no longer listens
    about: Any = None  # what the server that asks knows of it
    asked: Sending | None = None  # what was sent, until it is answered
    body: bytes = b""  # digest of what was sent
    idempotency: str = ""
    error: ClewError | None = None  # as the model raised it, which tells more than its record
    last: Completion | ClewError | None = None
    _pieces: list[str] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, item: str | Completion | ClewError) -> None:
        """What comes next; nothing follows an answer or an error."""
        if isinstance(item, str):
            self._pieces.append(item)
        elif self.last is None:
            self.last, self.asked = (self.error or item) if isinstance(item, ClewError) else item, None
            self._pieces.clear()  # the answer holds them
        self._more.set()
        self._more = asyncio.Event()

    async def items(self) -> AsyncIterator[str | Completion | ClewError]:
        """Pieces as they come, then the answer or the error; the reader is counted while it reads."""
        self.readers, place = self.readers + 1, 0
        try:
            while self.last is None:
                more = self._more
                while place < len(self._pieces):
                    place += 1
                    yield self._pieces[place - 1]
                if self.last is None and place == len(self._pieces):
                    await more.wait()
            yield self.last
        finally:
            self.readers -= 1
            if not self.readers and self.last is None:
                self.gone.set()

    async def answer(self) -> Completion:
        """The whole answer.

        Raises:
            ClewError: as the model raised it, or why the run ended.
        """
        *_, last = [item async for item in self.items()]
        if isinstance(last, ClewError):
            raise last
        assert isinstance(last, Completion)
        return last


class Sending(NamedTuple):
    """A request as it goes to a model: our own account of it, and the program's."""

    named: str  # dialect and model
    messages: list[Message]
    tools: tuple[ToolSpec, ...]
    sampling: Sampling
    wire: Wire

    def to(self, request: Request) -> Wire:
        """What an endpoint is sent: the program's own writing, with what an edit of the run changes of it and what a
        memory gave."""
        pins, path = pinned.apart(node.message for node in request.path)
        wire = self.wire
        if path != self.messages or request.sampling != self.sampling:
            ours = verbatim.base(self.named, self.messages, self.tools, self.sampling)
            now = verbatim.base(self.named, path, request.tools, request.sampling)
            wire = verbatim.changed(wire, ours, now)
        return wire._replace(body=pinned.into(wire.dialect, wire.body, pins)) if pins else wire


def failure(text: str) -> ClewError:
    """A recorded failure as what it was; what is none of ours is the model's."""
    error = revive(text)
    return error if text.startswith(f"{type(error).__name__}: ") else ModelError(text)


def completion_of(store: Keeper, call: Call) -> Completion:
    """A recorded ask as the Completion that went out: tokens and logprobs where the model gave them."""
    node, setup = store.node(call.node_out), call.setup
    tokens = None if node.ids is None else node.ids[call.head :]
    whole = tokens is not None and not call.forced
    finish = call.finish if call.finish != "forced" else "tool_calls" if node.message.calls else "stop"
    model = (setup.served_by or setup.model) if setup is not None else ""
    logprobs = call.logprobs if whole else None
    told = Completion(node.message, tokens, logprobs, finish=finish, model=model, usage=call.usage)
    return told._replace(attempts=call.attempts)

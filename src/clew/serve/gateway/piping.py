"""A run's model, with the program at its other end: the program wrote what is asked, and hears what is said.

The gateway puts a Piped around every model of a run. It must never change a reply.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import cast

import numpy as np

from clew.core.errors import ClewError
from clew.core.protocols import Model, Renderer, Streams
from clew.core.records import Request
from clew.core.values import Completion, Message, Piece
from clew.serve.gateway.session import Session


class Piped:
    """A model that sends its reply to the program piece by piece if it asked for a stream, and stops if it hangs up.

    An endpoint gets the request as the program wrote it.
    """

    def __init__(self, inner: Model, session: Session) -> None:
        self.inner, self.session = inner, session
        self.ref, self.version = inner.ref, inner.version
        self.renderer: Renderer | None = inner.renderer

    async def complete(self, request: Request) -> Completion:
        try:
            await self.session.asked_again(request.conversation)
            return await self._completed(request._replace(wire=self.session.wire(request)), request.conversation)
        except ClewError as error:
            exchange = self.session.under_way(request.conversation)
            if exchange is not None:
                exchange.error = error
            raise

    async def _completed(self, request: Request, thread: int) -> Completion:
        if not isinstance(self.inner, Streams) or not self.session.streams(thread):
            return await self.inner.complete(request)
        arrived: list[Piece] = []
        async with aclosing(cast(AsyncGenerator[str | Completion, None], self.inner.stream(request))) as items:
            async for item in items:
                if isinstance(item, Completion):
                    return item
                arrived.append(item if isinstance(item, Piece) else Piece(item))
                if not self.session.piece(thread, item):
                    break
        return cut_off(self.renderer, arrived)


def cut_off(renderer: Renderer | None, arrived: Sequence[Piece]) -> Completion:
    """A reply of which nothing more is wanted, as far as it came."""
    if renderer is None:
        return Completion(Message("assistant", "".join(arrived), "".join(p.reasoning for p in arrived)), finish="cut")
    tokens = tuple(i for piece in arrived for i in piece.tokens)
    told = [piece.logprobs for piece in arrived if piece.tokens]
    known = all(part is not None for part in told)
    logprobs = np.concatenate([np.zeros(0, np.float32), *told]).astype(np.float32) if known else None
    return Completion(renderer.parse(tokens), tokens, logprobs, finish="cut")

"""Answers of the gateway in three dialects: OpenAI's chat and responses, Anthropic's messages.

The gateway's routes call it. It writes answers and streams; it must never add to an answer what the model did not say,
nor change its order. Errors are written by ``serve/refusals.py``; ``verbatim`` reads requests.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from clew.core.errors import ClewError
from clew.core.values import Completion, Message, Piece
from clew.models.dialects import Asked, Json, sse
from clew.serve.gateway.exchanges import Exchange
from clew.serve.gateway.verbatim import DIALECTS
from clew.serve.refusals import error_event, unbroken

LARGEST = 64 << 20  # bytes of a request's body


def whole(dialect: str, completion: Completion, name: str, asked: Asked) -> Json:
    """An answer's body.

    Raises:
        ModelError: the reply broke off.
    """
    about = {"id": name, "created": int(time.time()), "model": asked.model}
    body: Json = DIALECTS[dialect].completion_to_wire(_wanted(unbroken(completion), asked), **about)
    return body


def _wanted(completion: Completion, asked: Asked) -> Completion:
    """The answer without the token ids and logprobs that only the record wanted."""
    if not asked.logprobs:
        completion = completion._replace(logprobs=None)
    return completion if asked.token_ids or asked.logprobs else completion._replace(tokens=None, prompt=None)


async def stream(dialect: str, exchange: Exchange, name: str, asked: Asked, usage: bool) -> AsyncIterator[str]:
    """An answer as server-sent events, each piece of its first text as it comes; what follows that comes at the end.

    One that broke off ends with an error, and without OpenAI's ``[DONE]``.

    Args:
        usage: whether the client asked a chat stream for its usage.
    """
    wire, sent, part = DIALECTS[dialect], "", 0
    before: Message | None = None  # what came before the text
    about: dict[str, Any] = {"id": name, "created": int(time.time()), "model": asked.model}
    last: str | Completion | ClewError = ""
    async with aclosing(cast(AsyncGenerator[str | Completion | ClewError, None], exchange.items())) as items:
        async for last in items:
            if not isinstance(last, str) or not last:
                continue
            piece = last if isinstance(last, Piece) else Piece(last)
            if not sent:
                before, part = piece.before, piece.part
                for event in wire.begin(**about, before=before):
                    yield _event(dialect, event)
            if piece.part == part:
                sent += piece
                yield _event(dialect, wire.piece(str(piece), **about, before=before))
    try:
        if isinstance(last, ClewError):
            raise last
        assert isinstance(last, Completion)
        last = unbroken(last)
    except ClewError as error:
        yield _event(dialect, error_event(error, dialect))
        return
    for event in wire.events(_wanted(last, asked), **about, sent=sent, before=before):
        if usage or dialect != "chat" or event["choices"]:
            yield _event(dialect, event)
    if dialect == "chat":
        yield "data: [DONE]\n\n"


def _event(dialect: str, event: Json) -> str:
    return sse.write(event, "" if dialect == "chat" else str(event.get("type", "")))

"""Request and response bodies of the gateway in three dialects: OpenAI's chat and responses, Anthropic's messages.

The gateway's routes call it. It reads requests, and writes answers and streams; it must never add to an answer what the
model did not say. Errors are written by ``serve/refusals.py``.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from clew.core.errors import BadRecord, ClewError
from clew.core.values import Completion
from clew.models.dialects import Asked, Json, chat, messages, responses, sse
from clew.serve.gateway.session import Exchange
from clew.serve.incoming import in_dialect, question_of
from clew.serve.refusals import error_event

DIALECTS: dict[str, Any] = {"chat": chat, "responses": responses, "messages": messages}
LIMITS = {"chat": ("max_tokens", "max_completion_tokens"), "responses": ("max_output_tokens",)}
LIMITS["messages"] = ("max_tokens",)
LARGEST = 64 << 20  # bytes of a request's body
UNBOUNDED = 1_000_000  # tokens of a reply whose length the program leaves to the model


def read(dialect: str, body: bytes) -> Asked:
    """A request's body.

    Raises:
        Rejected, BadRecord: it is not one of that dialect.
    """
    raw = question_of(body)
    if (raw.get("n") or 1) != 1:
        raise BadRecord("n > 1 is not recorded through the gateway", remedy="Send n requests.")
    asked: Asked = in_dialect(dialect, DIALECTS[dialect].request_from_wire, raw)
    s = asked.sampling
    if not all(isinstance(v, (int, float)) for v in s[:4]) or not all(isinstance(v, str) for v in s.stop):
        raise BadRecord(f"sampling settings of the wrong kind: {s}"[:300], remedy="Numbers, and texts for stop.")
    if not asked.messages:
        raise BadRecord("the request has no messages", remedy="Send at least one.")
    if asked.prefill:
        raise BadRecord(
            "a reply with a given beginning is not recorded", remedy="Leave out the last assistant message."
        )
    unsaid: tuple[str, ...] = () if raw.get("temperature") is not None else ("temperature",)
    if not any(raw.get(name) for name in LIMITS[dialect]):
        asked = asked._replace(sampling=s._replace(max_tokens=UNBOUNDED))
        unsaid += LIMITS[dialect]
    return asked._replace(extra={**asked.extra, **dict.fromkeys(unsaid)}) if unsaid else asked


def whole(dialect: str, completion: Completion, name: str, asked: Asked) -> Json:
    """An answer's body."""
    about = {"id": name, "created": int(time.time()), "model": asked.model}
    body: Json = DIALECTS[dialect].completion_to_wire(_wanted(completion, asked), **about)
    return body


def _wanted(completion: Completion, asked: Asked) -> Completion:
    """The answer without the token ids and logprobs that only the record wanted."""
    if not asked.logprobs:
        completion = completion._replace(logprobs=None)
    return completion if asked.token_ids or asked.logprobs else completion._replace(tokens=None, prompt=None)


async def stream(dialect: str, exchange: Exchange, name: str, asked: Asked) -> AsyncIterator[str]:
    """An answer as server-sent events, each piece of text as it comes."""
    wire, sent = DIALECTS[dialect], ""
    about = {"id": name, "created": int(time.time()), "model": asked.model}
    while isinstance(item := await exchange.item(), str):
        for event in wire.begin(**about) if not sent else ():
            yield _event(dialect, event)
        sent += item
        yield _event(dialect, wire.piece(item, **about))
    if isinstance(item, ClewError):
        yield _event(dialect, error_event(item, dialect))
    else:
        for event in wire.events(_wanted(item, asked), **about, sent=sent):
            yield _event(dialect, event)
    if dialect == "chat":
        yield "data: [DONE]\n\n"


def _event(dialect: str, event: Json) -> str:
    return sse.write(event, "" if dialect == "chat" else str(event.get("type", "")))

"""Request bodies: fields that hold a reply to a grammar, a body as a program sent it, and the sampling asked for."""

from __future__ import annotations

import json
from collections.abc import Callable

from clew.core.errors import BadInput
from clew.core.records import Wire
from clew.core.values import Sampling
from clew.models.dialects import Asked, Json


def held_to(grammar: str, dialect: str) -> Json:
    """The fields that ask an endpoint to hold its reply to a grammar: OpenAI's for JSON, vLLM's for expressions.

    Raises:
        BadInput: this dialect has no words for it.
    """
    kind, _, text = grammar.partition(":")
    if kind == "json" and dialect == "chat":
        if not text.strip():
            return {"response_format": {"type": "json_object"}}
        schema = {"name": "reply", "schema": json.loads(text), "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if kind in ("json", "regex") and dialect in ("chat", "completions"):
        return {"structured_outputs": {kind: text if kind == "regex" else json.loads(text or "{}")}}
    raise BadInput(
        f"the {dialect} dialect cannot ask for the grammar {grammar[:60]!r}",
        remedy="Use JSON with a chat endpoint, or local weights.",
    )


def in_force(asked: Sampling, body: Json) -> Sampling:
    """The sampling that was truly asked of the endpoint: settings it refused fall back to the API's defaults."""
    if not body:
        return asked
    return asked._replace(
        temperature=asked.temperature if "temperature" in body else 1.0,
        top_p=asked.top_p if "top_p" in body else 1.0,
        top_k=asked.top_k if "top_k" in body else 0,
        stop=asked.stop if {"stop", "stop_sequences"} & body.keys() else (),
    )


def as_sent(wire: Wire | None, dialect: str, asked: Asked, ours: Callable[[Asked], Json]) -> Json:
    """The body that a program sent in this dialect, with what only we ask for; empty where there is none.

    ``ours`` writes a request in the dialect.
    """
    if wire is None or wire.dialect != dialect or asked.prefill:
        return {}
    names = {"model", "stream", "stream_options", "return_token_ids"} | ({"seed"} - wire.body.keys())
    names |= {"logprobs"} if not wire.body.get("logprobs") else set()
    gone = {"stream", "stream_options"} if wire.body.get("stream") and not asked.stream else set()
    kept = {k: v for k, v in wire.body.items() if k not in gone}
    return {**kept, **{k: v for k, v in ours(asked._replace(messages=(), tools=())).items() if k in names}}

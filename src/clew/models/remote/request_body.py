"""Fields of a request body that hold a reply to a grammar, and the sampling that a sent body asked for."""

from __future__ import annotations

import json

from clew.core.errors import BadInput
from clew.core.values import Sampling
from clew.models.dialects import Json


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

"""Request bodies: fields that hold a reply to a grammar, a body as a program sent it, and the sampling asked for."""

from __future__ import annotations

import json
from collections.abc import Callable

from clew.core.errors import BadInput
from clew.core.records import Request, Wire
from clew.core.values import Sampling
from clew.models.dialects import Asked, Json
from clew.models.shaping import written


def with_grammar(body: Json, request: Request, dialect: str) -> Json:
    """A body with what asks an endpoint to hold its reply to the request's grammar.

    Raises:
        BadInput: this dialect has no words for it, or token ids of the reply are given, which the endpoint would take
            for the prompt's and begin the grammar behind them.
    """
    grammar = request.sampling.grammar
    if request.forced:
        told = f"a reply whose beginning is given, held to the grammar {grammar[:60]!r} by an endpoint"
        raise BadInput(told, remedy="Sample the whole reply, or use local weights.")
    return _asking(body, held_to(grammar, dialect), dialect)


def held_to(grammar: str, dialect: str) -> Json:
    """The fields that ask for a grammar: OpenAI's for JSON with chat, vLLM's elsewhere. Raises BadInput: none."""
    kind, _, text = grammar.partition(":")
    if kind == "json" and dialect == "chat":
        if not text.strip():
            return {"response_format": {"type": "json_object"}}
        schema = {"name": "reply", "schema": json.loads(text), "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if kind in ("json", "regex", "lark") and dialect in ("chat", "completions", "generate"):
        name = "grammar" if kind == "lark" else kind
        return {"structured_outputs": {name: json.loads(text or "{}") if kind == "json" else text}}
    raise BadInput(
        f"the {dialect} dialect cannot ask for the grammar {grammar[:60]!r}",
        remedy="Use JSON with a chat endpoint, or local weights.",
    )


def with_shape(body: Json, shape: str, dialect: str) -> Json:
    """A body with the settings of ``Sampling.shape``, by their own names, as vLLM, SGLang and `clew serve` take them.

    Raises:
        BadInput: this dialect has no words for them.
    """
    fields: Json = json.loads(shape)
    if dialect not in ("chat", "completions", "generate"):
        told = f"the {dialect} dialect cannot ask for {', '.join(fields)}"
        raise BadInput(told, remedy="Leave them out, or use a chat or completions endpoint.")
    return _asking(body, fields, dialect)


def _asking(body: Json, fields: Json, dialect: str) -> Json:
    """A body with further fields of sampling, where the dialect has them."""
    return body | (fields if dialect != "generate" else {"sampling_params": body["sampling_params"] | fields})


def in_force(asked: Sampling, body: Json) -> Sampling:
    """The sampling that was truly asked of the endpoint: settings it refused fall back to the API's defaults."""
    if not body:
        return asked
    body = body.get("sampling_params", body)
    return asked._replace(
        temperature=asked.temperature if "temperature" in body else 1.0,
        top_p=asked.top_p if "top_p" in body else 1.0,
        top_k=asked.top_k if "top_k" in body else 0,
        stop=asked.stop if {"stop", "stop_sequences"} & body.keys() else (),
        shape=written({name: body.get(name) for name in json.loads(asked.shape or "{}")}),
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

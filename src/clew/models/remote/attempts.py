"""One request to an endpoint under way, and what was in force when it was answered."""

from __future__ import annotations

import json
import time

from clew.core.errors import BadInput
from clew.core.records import Request
from clew.core.values import Attempt, Sampling
from clew.models.dialects import Json


class Flight:
    """One request under way."""

    def __init__(self, request: Request, streaming: bool, deadline: float) -> None:
        self.request, self.streaming = request, streaming
        self.began = time.monotonic()
        self.bounded_by_run = request.deadline is not None and request.deadline < deadline
        self._seconds = min(deadline, deadline if request.deadline is None else request.deadline)
        self.attempts: list[Attempt] = []
        self.tokens = 0.0  # most that it can use

    def left(self) -> float:
        """Seconds until the first of the two deadlines: the run's, and the model's own for one request."""
        return max(0.0, self._seconds - (time.monotonic() - self.began))

    def note(self, status: int, error: str) -> None:
        self.attempts.append(Attempt(time.monotonic() - self.began, status, error))


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

"""Turns sampled ids into answers: parses the message, looks for stop strings, builds the Completion."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.core.protocols import Renderer
from clew.core.values import F32, Completion, Message, Usage
from clew.models.engine.state import I64, Joining, Waiting
from clew.models.kept import pack

Pair = tuple[F32, F32]
PARSED = 4096  # replies whose parse is remembered: small policies say the same things


class Answers:
    """Makes Completions of what one renderer's tokens stand for.

    Args:
        model: the name they carry.
        context: most positions of a row.
    """

    def __init__(self, renderer: Renderer, model: str, context: int) -> None:
        self._renderer: Any = renderer  # has ``decode`` where stop strings are used
        self._model, self._context = model, context
        self._parsed: dict[tuple[int, ...], Message] = {}

    def watch(self, joined: Joining, tokens: I64, count: int) -> str:
        """How a request ends whose text holds a stop string, or whose time is up; else nothing.

        Args:
            tokens: of its row, int64 [longest reply], of which ``count`` are sampled.
        """
        request, stops = joined.entry.request, joined.entry.request.sampling.stop
        if stops:
            reach = max(map(len, stops)) + 8  # tokens, of which each shows at least a character
            tail = [*request.forced, *tokens[max(0, count - reach) : count].tolist()][-reach:]
            text = self._renderer.decode(tail)
            if any(stop in text for stop in stops):
                return "stop"
        late = request.deadline is not None and time.monotonic() > joined.entry.arrived + request.deadline
        return "cut" if late else ""

    def completion(
        self, entry: Waiting, version: int, prompt: int, cached: int, finish: str, ids: tuple[int, ...], numbers: Pair
    ) -> Completion:
        """The answer to a request of ``prompt`` tokens; ``numbers`` are logprobs and entropies, [n] each."""
        request = entry.request
        whole = request.forced + ids if request.forced else ids
        message = self._parsed.get(whole)
        if message is None:
            if len(self._parsed) >= PARSED:
                self._parsed.clear()
            message = self._parsed[whole] = self._renderer.parse(whole)
        message = stopped(message, request.sampling.stop)
        asked, most = request.sampling, len(request.forced) + self._context - prompt
        in_force = asked._replace(max_tokens=most) if most < asked.max_tokens else None
        usage, seconds = Usage(prompt, len(ids), cached), time.monotonic() - entry.arrived
        done = (message, ids, *numbers, finish, in_force, version, self._model, usage, 0.0, seconds)
        kept = pack(entry.kept[: len(ids)]) if entry.kept else b""
        if request.tops is None:
            return Completion(*done, reached=entry.reached, kept=kept)
        plain, tops = np.array(entry.plain, np.float32), tuple(entry.tops)
        return Completion(*done, plain=plain, tops=tops, reached=entry.reached, kept=kept)


def stopped(message: Message, stops: Sequence[str]) -> Message:
    """A reply up to the first of its stop strings."""
    for stop in stops:
        message = message._replace(text=message.text.partition(stop)[0])
    return message

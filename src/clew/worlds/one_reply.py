"""A world that shows one question, takes one reply and ends: what an agent meets that works on a row of data.

``exchange.dataset`` opens one for each row. An agent may answer without acting on it. The world must never hold the
row's answer.
"""

from __future__ import annotations

import json

from clew.core.keys import state_key
from clew.core.values import Observation, ToolCall
from clew.worlds.bases import Exact, alive, foreign, load


class Question(Exact):
    """The question ``text`` of the task ``name``; ``reply`` is what was answered, None before."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text, self._closed = name, text, False
        self.reply: str | None = None

    @property
    def state_key(self) -> bytes:
        return state_key(self._name, json.dumps(self.reply))

    def observe(self) -> Observation:
        return Observation(self._text) if self.reply is None else Observation("answered", None, True)

    def step(self, action: str | ToolCall) -> Observation:
        """Take the reply.

        Raises:
            WorldError: there was one already, or the world is closed.
        """
        alive(self._closed or self.reply is not None, action)
        self.reply = action.arguments if isinstance(action, ToolCall) else str(action)
        return self.observe()._replace(call_id=action.id if isinstance(action, ToolCall) else None)

    def snapshot(self) -> bytes:
        return json.dumps([self._name, self.reply]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Raises WorldError where the snapshot is of another question."""
        _, reply = load(snapshot, self._name, 2)
        if not isinstance(reply, str | None):
            raise foreign()
        self.reply = reply

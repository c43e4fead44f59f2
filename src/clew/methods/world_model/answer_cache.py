"""Answers of a model of a world by state and action, so that one process sees one world: equal acts, equal answers.

The worlds of one taskset share a cache. It holds what a model said, whole; who reads it must treat a kept answer as a
new one. It is never written to a file: a record holds its answers itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MOST, ROOM = 100_000, 100_000_000  # answers; characters of them together


class AnswerCache:
    """The last answers, by key. A run that wants an answer which another run is asking for waits for that one."""

    def __init__(self, most: int = MOST, room: int = ROOM) -> None:
        self._answers: OrderedDict[bytes, str] = OrderedDict()
        self._asked: dict[tuple[int, bytes], asyncio.Lock] = {}
        self._most, self._room = most, room

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: bytes) -> str | None:
        """The answer of a key, where there is one."""
        if key in self._answers:
            self._answers.move_to_end(key)
        return self._answers.get(key)

    def put(self, key: bytes, answer: str) -> None:
        """Keep an answer; the first of a key stays."""
        if key not in self._answers:
            self._answers[key] = answer
            self._room -= len(answer)
        while self._answers and (len(self._answers) > self._most or self._room < 0):
            self._room += len(self._answers.popitem(last=False)[1])

    @asynccontextmanager
    async def alone(self, key: bytes) -> AsyncIterator[None]:
        """Only one run of an event loop is inside for one key: who comes second finds the answer kept."""
        place = (id(asyncio.get_running_loop()), key)
        lock = self._asked.setdefault(place, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._asked.get(place) is lock:
                del self._asked[place]

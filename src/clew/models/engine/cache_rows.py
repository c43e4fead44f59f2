"""The rows of the engine's cache: sampled tokens, the request in each row, and growth of rows and lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clew.models.engine.forwards.fast import STEADY_SPAN, Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.slots import Slots
from clew.models.engine.speculation.drafts import Drafts
from clew.models.engine.state import Joining

LEAST = 8  # rows that the cache has at the least, where so many are asked for
ROOM = 256  # tokens of a reply that a row has room for at first; more when they are sampled


class Rows:
    """Arrays with an entry for each row of the cache, the cache itself (``forward``), who holds which (``slots``), and
    what drafts for them (``drafts``).

    ``tokens``, ``logprobs`` and ``entropies`` (negative, as they are drawn) are [rows, longest reply].
    """

    seed: npt.NDArray[np.uint64]
    offset: npt.NDArray[np.uint64]  # forced tokens
    count: npt.NDArray[np.int64]  # tokens sampled
    last: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float32]
    entropies: npt.NDArray[np.float32]

    def __init__(self, forward: Fast | Generic, max_rows: int, cache_bytes: int) -> None:
        self.forward, self._max_rows, self._cache_bytes = forward, max_rows, cache_bytes
        self.slots = Slots()
        self.drafts: Drafts | None = None
        self.joined: list[Joining | None] = []
        self.pinned = 0  # the last row that is about to be copied
        self.promised = 0  # the longest prompt that is not yet in its row
        self._columns(0, 0)
        self._resize(min(LEAST, max_rows), 128)

    def vacant(self, positions: int) -> int | None:
        """A row nobody comes back to, else a new one, else the least used; None where all are busy.

        Where all are busy and none needs the length that the rows have, they are cut shorter, and there may be more.
        """
        slots, slot = self.slots, self.slots.idle()
        if slot is not None and positions > slots.size and slots.rows > self._most(positions):
            return int(slots.busy.argmin())  # rows are about to be longer and fewer, and those at the end go
        if slot is not None and slots.used[slot] == 0:
            return slot
        most = self._most(slots.size)
        if slot is None and most < self._max_rows and slots.rows >= max(most, LEAST):
            needed = max(self.promised, int((slots.length + self.count).max())) + ROOM
            size = _rounded(max(positions, needed))
            if 2 * size <= slots.size:
                self._resize(slots.rows, size)
                most = self._most(size)
        if slots.rows < most or (slot is None and slots.rows < LEAST):
            slot = slots.rows
            self._resize(min(max(most, slot + 1), 2 * slots.rows), slots.size)
        return slot

    def fit(self, positions: int, reply: int, slot: int = 0) -> None:
        """Make room for rows of ``positions`` tokens, of which ``reply`` are sampled.

        Idle rows behind ``slot`` and all that are busy or pinned go where longer ones would not fit the memory.
        """
        slots, size = self.slots, self.slots.size
        if positions <= size and reply <= self.tokens.shape[1]:
            return
        if positions > size:
            size = min(max(_rounded(positions), 2 * size), self.forward.context + 1)
        if reply > self.tokens.shape[1]:
            self._columns(slots.rows, min(max(reply, 2 * self.tokens.shape[1]), self.forward.context + 1))
        if size != slots.size:
            busy = int(np.flatnonzero(slots.busy).max(initial=max(slot, self.pinned))) + 1
            self._resize(min(slots.rows, max(busy, LEAST, self._most(size))), size)

    def _most(self, size: int) -> int:
        """Rows of ``size`` positions that the memory has room for."""
        return min(self._max_rows, self._cache_bytes // (self.forward.token_bytes * size))

    def _resize(self, rows: int, size: int) -> None:
        self.forward.resize(rows, size)
        if self.drafts is not None:
            self.drafts.resize(rows, size)
        self.slots.resize(rows, size)
        self.joined = (self.joined + [None] * rows)[:rows]
        self._columns(rows, self.tokens.shape[1])

    def _columns(self, rows: int, reply: int) -> None:
        """Make the per-row arrays [rows] and [rows, reply] at least this large, keeping what they hold."""
        shapes: list[tuple[str, type, tuple[int, ...]]] = [("seed", np.uint64, ()), ("offset", np.uint64, ())]
        shapes += [("count", np.int64, ()), ("last", np.int64, ()), ("tokens", np.int64, (reply,))]
        for name, kind, width in [*shapes, ("logprobs", np.float32, (reply,)), ("entropies", np.float32, (reply,))]:
            new: Any = np.zeros((rows, *width), kind)
            old = getattr(self, name, new[:0])[:rows]
            new[(slice(len(old)), *(slice(w) for w in old.shape[1:]))] = old
            setattr(self, name, new)


def _rounded(positions: int) -> int:
    """Up to what attention reads at once, so that its reach is a matter of a row's own length."""
    return -(-positions // STEADY_SPAN) * STEADY_SPAN

"""The rows of the cache: what each has sampled, which request runs in it, and how their number and length grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clew.models.engine.drafts import Drafts
from clew.models.engine.fast import LEAST, Fast
from clew.models.engine.generic import Generic
from clew.models.engine.slots import Slots
from clew.models.engine.state import Joining


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
        self._columns(0, 0)
        self._resize(min(LEAST, max_rows), 128)

    def vacant(self) -> int | None:
        """A row nobody comes back to, else a new one, else the least used; None where all are busy."""
        slots, slot = self.slots, self.slots.idle()
        if slot is not None and slots.used[slot] == 0:
            return slot
        most = min(self._max_rows, self._cache_bytes // (self.forward.token_bytes * slots.size))
        if slots.rows < most or (slot is None and slots.rows < LEAST):
            slot = slots.rows
            self._resize(min(max(most, slot + 1), 2 * slots.rows), slots.size)
        return slot

    def fit(self, positions: int, reply: int) -> None:
        """Make room for rows of ``positions`` tokens, of which ``reply`` are sampled."""
        size = self.slots.size
        if positions <= size and reply <= self.tokens.shape[1]:
            return
        if positions > size:
            size = min(max(positions, 2 * size), self.forward.context + 1)
        self._columns(self.slots.rows, max(reply, self.tokens.shape[1]))
        if size != self.slots.size:
            self._resize(self.slots.rows, size)

    def _resize(self, rows: int, size: int) -> None:
        self.forward.resize(rows, size)
        if self.drafts is not None:
            self.drafts.resize(rows, size)
        self.slots.resize(rows, size)
        self.joined = (self.joined + [None] * rows)[:rows]
        self._columns(rows, self.tokens.shape[1])

    def _columns(self, rows: int, reply: int) -> None:
        """Make the per-row arrays [rows] and [rows, reply] at least this large, keeping what they hold."""
        for name, kind, width in (
            ("seed", np.uint64, ()), ("offset", np.uint64, ()), ("count", np.int64, ()), ("last", np.int64, ()),
            ("tokens", np.int64, (reply,)), ("logprobs", np.float32, (reply,)), ("entropies", np.float32, (reply,)),
        ):  # fmt: skip
            new: Any = np.zeros((rows, *width), kind)
            old = getattr(self, name, new[:0])
            new[(slice(len(old)), *(slice(w) for w in old.shape[1:]))] = old
            setattr(self, name, new)

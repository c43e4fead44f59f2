"""The rows of the engine's cache: sampled tokens, the request in each row, and how much room each has.

``Batch`` and the admission of requests ask here. Nothing that runs may lose its room here; prefixes that are kept for
whoever comes back go when the memory is full, the least used first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clew.models.engine.forwards.arena import SHORT, stretch
from clew.models.engine.forwards.fast import Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.slots import Slots
from clew.models.engine.speculation.drafts import Drafts
from clew.models.engine.state import Joining

LEAST = 8  # requests that run in any case, where so many are asked for, whatever memory they need
ROOM = 32  # tokens of a reply that a row has room for at first; more when they are sampled
WASTE = 4  # a row with more than this times the room that is asked for is given less


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
        self.forward, self._max_rows = forward, max_rows
        self._limit = cache_bytes // forward.token_bytes  # positions
        self.slots = Slots()
        self.drafts: Drafts | None = None
        self.joined: list[Joining | None] = []
        self.pinned: set[int] = set()  # rows that are about to be copied
        self._columns(0, 0)
        self._resize(min(LEAST, max_rows), SHORT)

    @property
    def most_bytes(self) -> int:
        """Memory of a full cache: its limit, or less where so many rows of the longest context take less."""
        longest = self._max_rows * self._stretch(self.forward.context)
        return min(self._limit, longest) * self.forward.token_bytes

    def vacant(self, positions: int) -> int | None:
        """A row with room for so many tokens: one nobody comes back to, else a new one, else the least used.

        None where all are busy, or what runs leaves no memory.
        """
        slots, want = self.slots, self._stretch(positions)
        slot = self._idle(want)
        more = slot is None or (slots.used[slot] > 0 and self.forward.arena.fits(want, self._limit))
        if more and slots.rows < self._max_rows:
            slot = slots.rows
            self._resize(min(self._max_rows, 2 * slots.rows), slots.size)
        return slot if slot is not None and self.fit(slot, positions) else None

    def fit(self, slot: int, positions: int, runs: int = 0) -> bool:
        """Make room for so many tokens in a row, with what it holds, and say whether there is any.

        Rows that are idle lose theirs where memory is short. A row that runs, of which ``runs`` tokens are cached,
        gets it in any case, and so does one of the first ``LEAST`` that are to run.
        """
        slots, arena = self.slots, self.forward.arena
        want, has = self._stretch(positions), int(arena.room[slot])
        if want <= has <= WASTE * want:
            return True
        must = runs > 0 or int(slots.busy.sum()) < LEAST
        if not must and want > self._limit - int(arena.room[slots.busy].sum()):
            return False
        while not arena.fits(want, self._limit):
            if (victim := self._oldest(slot)) is None:
                if must:
                    break
                return False
            self.forget(victim)
        self.forward.arena.take(slot, want, runs or int(slots.length[slot]), self._limit)
        slots.length[slot] = min(int(slots.length[slot]), want)
        if want > slots.size:
            self._resize(slots.rows, want)
        return True

    def replies(self, tokens: int) -> None:
        """Make room to note replies of so many tokens."""
        if tokens > self.tokens.shape[1]:
            self._columns(self.slots.rows, min(max(tokens, 2 * self.tokens.shape[1]), self.forward.context + 1))

    def forget(self, slot: int) -> None:
        """Nothing of this row is needed any more; its memory is free."""
        self.slots.free(slot)
        self.forward.free(slot)

    def clear(self) -> None:
        """Forget what idle rows hold: the weights have changed, or a computation failed."""
        for slot in np.flatnonzero(~self.slots.busy).tolist():
            self.forget(slot)
        if self.forward.arena.total > self._limit:
            self.forward.arena.shrink()

    def begin(self, idle: bool) -> None:
        """Requests are about to get rows. Where nothing runs, what earlier ones took beyond the memory is given back,
        and all prefixes with it."""
        self.pinned.clear()
        if idle and self.forward.arena.total > self._limit:
            self.clear()

    def _stretch(self, positions: int) -> int:
        return stretch(positions, self.forward.context)

    def _open(self, but: int = -1) -> npt.NDArray[np.int64]:
        """Rows in which nothing runs and from which nothing is about to be copied."""
        open_ = np.flatnonzero(~self.slots.busy)
        if but < 0 and not self.pinned:
            return open_
        return open_[[slot != but and slot not in self.pinned for slot in open_.tolist()]]

    def _idle(self, want: int) -> int | None:
        """An unheld row, such with room at hand first, else the least used that is idle; None where all are busy."""
        if not (open_ := self._open()).size:
            return None
        room, used = self.forward.arena.room[open_], self.slots.used[open_]
        fits = (room >= want) & (room <= WASTE * want)
        return int(open_[np.lexsort((room, ~fits, used))[0]])

    def _oldest(self, but: int) -> int | None:
        """The least used idle row that has memory."""
        open_ = self._open(but)
        open_ = open_[self.forward.arena.room[open_] > 0]
        return int(open_[self.slots.used[open_].argmin()]) if open_.size else None

    def _resize(self, rows: int, size: int) -> None:
        self.forward.arena.number(rows)
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

"""Bookkeeping of the key-value cache: who holds each row, which tokens lie in it, and what a request can use again."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from clew.core.records import Node, Request
from clew.models.engine.taps.placing import Write, apart

I32 = npt.NDArray[np.int32]
Holder = tuple[str, int, int]  # as of ``Request``: run, conversation, sample
NOBODY: Holder = ("", -1, -1)


class Slots:
    """Bookkeeping of the rows of a cache; holds no tensors.

    Per row: ``tokens`` int32 [rows, size], of which the first ``length`` are cached; ``used``, the last tick it was
    used in; ``holder``, who comes back to it; ``busy``, whether a request runs in it. ``ready`` tokens can be copied
    at once, the others when the prefill of wave ``wave`` is done. ``written`` is what was written into hidden states
    while the tokens were computed: rows share a prefix no further than their writes are the same.
    """

    def __init__(self) -> None:
        self.rows, self.size = 0, 0
        self.tokens: I32 = np.zeros((0, 0), np.int32)
        self.length = np.zeros(0, np.int64)
        self.used = np.zeros(0, np.int64)
        self.busy = np.zeros(0, bool)
        self.ready = np.zeros(0, np.int64)
        self.wave = np.zeros(0, np.int64)
        self.holder: list[Holder] = []
        self.path: list[tuple[Node, ...]] = []
        self.reply: list[tuple[int, ...]] = []
        self.written: list[tuple[Write, ...]] = []
        self.where: dict[Holder, int] = {}

    def resize(self, rows: int, size: int) -> None:
        """Add or cut rows at the end; change the number of positions."""
        kept, length = min(rows, self.rows), min(size, self.size)
        tokens = np.zeros((rows, size), np.int32)
        tokens[:kept, :length] = self.tokens[:kept, :length]
        for holder in self.holder[kept:]:
            self.where.pop(holder, None)
        more = rows - kept
        for name in ("length", "used", "busy", "ready", "wave"):
            old = getattr(self, name)[:kept]
            setattr(self, name, np.concatenate([old, np.zeros(more, old.dtype)]))
        self.holder = self.holder[:kept] + [NOBODY] * more
        self.path = self.path[:kept] + [()] * more
        self.reply = self.reply[:kept] + [()] * more
        self.written = self.written[:kept] + [()] * more
        self.tokens, self.rows, self.size = tokens, rows, size

    def clear(self) -> None:
        """Forget what idle rows hold: the weights have changed, or a computation failed."""
        for slot in np.flatnonzero(~self.busy):
            self.free(int(slot))

    def free(self, slot: int) -> None:
        self.where.pop(self.holder[slot], None)
        self.holder[slot], self.path[slot], self.reply[slot], self.written[slot] = NOBODY, (), (), ()
        self.length[slot] = self.ready[slot] = self.used[slot] = 0

    def release(self, runs: Collection[str]) -> None:
        """Rows of these runs become nobody's, running ones as well, and are used for others first. Their tokens stay,
        for whoever asks the same."""
        for slot, holder in enumerate(self.holder):
            if holder[0] in runs:
                self.hold(slot, NOBODY)
                self.path[slot], self.reply[slot], self.used[slot] = (), (), 0

    def hold(self, slot: int, holder: Holder) -> None:
        """Give the row to a holder, who has no other."""
        if self.holder[slot] != holder:
            self.where.pop(self.holder[slot], None)
            self.holder[slot] = holder
        if holder != NOBODY:
            self.where[holder] = slot

    def idle(self) -> int | None:
        """An unheld row, else the least used one that is not busy; None where all are busy."""
        open_ = np.flatnonzero(~self.busy)
        return int(open_[self.used[open_].argmin()]) if open_.size else None

    def continued(self, slot: int, request: Request) -> list[int] | None:
        """New tokens of a request that goes on from the reply this row ended with, else None.

        Costs no more than the new tokens: the path up to the earlier tip is recognised by its key.
        """
        known, path, reply = self.path[slot], request.path, self.reply[slot]
        n = len(known)
        if not n or len(path) <= n:
            return None
        tip, before = known[-1], path[n - 1]
        if tip is not before and (not tip.key or tip.key != before.key or tip.ids != before.ids):
            return None
        if path[n].ids != reply:
            return None
        new = list(reply[-1:])
        for node in path[n + 1 :]:
            new += node.ids or ()
        return [*new, *request.head, *request.forced]

    def match(self, ids: I32, own: int, written: tuple[Write, ...] = ()) -> tuple[int, int]:
        """The row that shares the longest prefix with ``ids`` under the same writes, and its length.

        Of equals ``own``, then ready rows.
        """
        reach = min(len(ids) - 1, int(self.length.max(initial=0)))
        if reach <= 0:
            return own, 0
        same = self.tokens[:, :reach] == ids[:reach]
        common = np.minimum(np.where(same.all(1), reach, same.argmin(1)), self.length)
        if written or any(self.written):
            common = np.minimum(common, [apart(written, other) for other in self.written])
        score = (common << 16) - np.where(common > self.ready, self.wave + 1, 0)
        score[own] += 1
        best = int(score.argmax())
        return best, int(common[best])

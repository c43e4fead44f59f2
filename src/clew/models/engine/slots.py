"""Bookkeeping of the key-value cache: who holds each row, which tokens lie in it, and what a request can use again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.core.records import Node, Request
from clew.models.engine.taps.placing import Write, apart

I32 = npt.NDArray[np.int32]
Holder = tuple[str, int, int]  # as of ``Request``: run, conversation, sample
SHARE = 16  # shortest prefix that a row takes from another: a shorter one is sooner computed
NOBODY: Holder = ("", -1, -1)


class Slots:
    """Bookkeeping of the rows of a cache; holds no tensors.

    Per row: ``tokens`` int32 [rows, size], of which the first ``length`` are cached; ``used``, the last tick it was
    used in; ``holder``, who comes back to it; ``busy``, whether a request runs in it. ``ready`` tokens can be copied
    at once, the others when the prefill of wave ``wave`` is done. ``written`` is what was written into hidden states
    while the tokens were computed: rows share a prefix no further than their writes are the same. Rows whose first
    ``SHARE`` tokens are the same are found by these: those that share nothing cost a search nothing.
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
        self._first: list[bytes] = []  # of each row, its first tokens
        self._alike: dict[bytes, list[int]] = {}  # rows by their first tokens

    def resize(self, rows: int, size: int) -> None:
        """Add or cut rows at the end; change the number of positions."""
        kept, length = min(rows, self.rows), min(size, self.size)
        tokens = np.zeros((rows, size), np.int32)
        tokens[:kept, :length] = self.tokens[:kept, :length]
        for slot in range(kept, self.rows):
            self.where.pop(self.holder[slot], None)
            self._know(slot, b"")
        more = rows - kept
        for name in ("length", "used", "busy", "ready", "wave"):
            old = getattr(self, name)[:kept]
            setattr(self, name, np.concatenate([old, np.zeros(more, old.dtype)]))
        self.holder = self.holder[:kept] + [NOBODY] * more
        self.path = self.path[:kept] + [()] * more
        self.reply = self.reply[:kept] + [()] * more
        self.written = self.written[:kept] + [()] * more
        self._first = self._first[:kept] + [b""] * more
        self.tokens, self.rows, self.size = tokens, rows, size

    def write(self, slot: int, start: int, tokens: Sequence[int] | npt.NDArray[Any]) -> None:
        """Note tokens of a row from a position on."""
        self.tokens[slot, start : start + len(tokens)] = tokens
        if start < SHARE:
            end = start + len(tokens)
            self._know(slot, self.tokens[slot, :SHARE].tobytes() if end >= SHARE else b"")

    def _know(self, slot: int, first: bytes) -> None:
        """Note the first tokens of a row, nothing where it has fewer than are looked up."""
        if (old := self._first[slot]) == first:
            return
        if old:
            self._alike[old].remove(slot)
            if not self._alike[old]:
                del self._alike[old]
        self._first[slot] = first
        if first:
            self._alike.setdefault(first, []).append(slot)

    def free(self, slot: int) -> None:
        """Forget what a row holds."""
        self._know(slot, b"")
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

        Of equals ``own``, then ready rows. Rows other than ``own`` share at least ``SHARE`` tokens or none.
        """
        if len(ids) <= SHARE:
            return own, int(self._common(np.array([own]), ids, written)[0])
        rows = np.array([own, *(r for r in self._alike.get(ids[:SHARE].tobytes(), ()) if r != own)])
        common = self._common(rows, ids, written)
        score = (common << 16) - np.where(common > self.ready[rows], self.wave[rows] + 1, 0)
        score[0] += 1
        best = int(score.argmax())
        return int(rows[best]), int(common[best])

    def _common(self, rows: npt.NDArray[np.int64], ids: I32, written: tuple[Write, ...]) -> npt.NDArray[np.int64]:
        """How many tokens of ``ids``, but the last, each of these rows has cached under the same writes: [n]."""
        reach = min(len(ids) - 1, int(self.length[rows].max()))
        if reach <= 0:
            return np.zeros(len(rows), np.int64)
        same = self.tokens[rows, :reach] == ids[:reach]
        common = np.minimum(np.where(same.all(1), reach, same.argmin(1)), self.length[rows])
        if written or any(self.written[row] for row in rows.tolist()):
            common = np.minimum(common, [apart(written, self.written[row]) for row in rows.tolist()])
        found: npt.NDArray[np.int64] = common
        return found

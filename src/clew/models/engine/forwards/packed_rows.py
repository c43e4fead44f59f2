"""New tokens of several rows in one pass: which token stands where, and which rows go together.

``Fast``, ``Batched`` and the reader of hidden states lay out their passes by it. It must hold no tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
PACK = 8192  # most padded positions of a packed prefill


class Pack(NamedTuple):
    """The new tokens of some rows, one after the other."""

    tokens: I64  # [N]
    slots: I64  # [m], cache rows
    starts: I64  # [m], first new position
    counts: I64  # [m], new tokens
    row: I64  # [N], which of the m
    offset: I64  # [N], place among the row's new tokens
    span: int  # positions that attention reads

    @classmethod
    def of(cls, slots: I64, ids: Sequence[Sequence[int]], starts: I64, span: Callable[[int], int]) -> Pack:
        """``span``: positions that attention reads of rows of at most so many."""
        counts = np.array([len(i) for i in ids], dtype=np.int64)
        row = np.repeat(np.arange(len(slots)), counts)
        offset = np.arange(len(row)) - (counts.cumsum() - counts)[row]
        tokens = np.fromiter(chain.from_iterable(ids), np.int64, len(row))
        return cls(tokens, slots, starts, counts, row, offset, span(int((starts + counts).max())))

    @classmethod
    def joined(cls, packs: Sequence[Pack]) -> Pack:
        """Several one after the other; ``span`` is the longest."""
        if len(packs) == 1:
            return packs[0]
        before = np.cumsum([0, *(len(pack.slots) for pack in packs)])
        row = np.concatenate([pack.row + n for pack, n in zip(packs, before, strict=False)])
        tokens, slots, starts, counts, offset = (
            np.concatenate([getattr(pack, name) for pack in packs])
            for name in ("tokens", "slots", "starts", "counts", "offset")
        )
        return cls(tokens, slots, starts, counts, row, offset, max(pack.span for pack in packs))

    @property
    def first(self) -> I64:
        return self.counts.cumsum() - self.counts

    @property
    def at(self) -> I64:
        """[N], positions."""
        return self.starts[self.row] + self.offset

    @property
    def padded(self) -> I64:
        """[m, longest]: places in the rows' new tokens; padding repeats a row's last."""
        return np.minimum(np.arange(int(self.counts.max())), self.counts[:, None] - 1)


def as_came(order: I64, counts: Sequence[int]) -> I64:
    """Places, among the tokens of rows taken in ``order``, of those of the rows as they came: int64 [N].

    counts: tokens of each row, as they came.
    """
    many: I64 = np.asarray(counts, dtype=np.int64)
    before, first = np.cumsum(many) - many, np.empty(len(many), np.int64)
    first[order] = np.cumsum(many[order]) - many[order]
    found: I64 = np.repeat(first - before, many) + np.arange(int(many.sum()))
    return found


def similar(counts: I64) -> list[I64]:
    """Split rows so that padding a group to its longest wastes little and fits into ``PACK`` positions."""
    order = np.argsort(-counts, kind="stable")
    groups: list[I64] = []
    start = 0
    while start < len(order):
        longest = int(counts[order[start]])
        stop = start + max(1, PACK // longest)
        worth = counts[order[start:stop]] * 3 >= longest if longest > 32 else np.ones(len(order[start:stop]), bool)
        stop = start + (len(worth) if worth.all() else int(worth.argmin()))
        groups.append(np.sort(order[start:stop]))
        start = stop
    return groups

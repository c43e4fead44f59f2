"""Attention over the cache in blocks: what ``Fast`` computes between a layer's projections.

Rows are read bank by bank, that is those whose stretches are equally long together. It must never write into the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from clew.models.engine.forwards.arena import Arena, Bank, Layout
from clew.models.engine.forwards.packed_rows import I64, Pack
from clew.models.engine.forwards.transfers import sent_ids
from clew.models.engine.forwards.weights import Shape, attended

SPAN, STEADY_SPAN = 16, 64  # attention reads a multiple of this many positions
SLAB = 32  # tokens of each row whose masks are made at once
BLOCK = 32  # most tokens of a row that attention takes as decode does
Attend = Callable[[int, Tensor], Tensor]  # a layer's number and queries [n, heads, dim] give [n, heads * dim]
Reader = tuple[slice, Attend]  # attention for some of a pass's tokens


class Attention:
    """Attention for rows of ``arena``, which holds each layer's keys and values; arguments as of ``Fast``.

    Attributes:
        transposed: whether keys are to be held transposed (see ``Arena.hold``). In float32 on a CPU decode's products
            read them so in half the time. Those of 16 bits are read faster as they are; a GPU was not measured.
    """

    def __init__(self, arena: Arena, shape: Shape, dtype: torch.dtype, device: torch.device, steady: bool) -> None:
        self.arena, self.shape, self.device, self._steady = arena, shape, device, steady
        self._step = STEADY_SPAN if steady else SPAN
        self.transposed = device.type == "cpu" and dtype.itemsize >= 4 and not steady
        self._line = torch.zeros(0, dtype=dtype, device=device)  # of ``_sees``

    def one(self, lay: Layout, at: I64) -> Attend:
        """Attention for one query of each row, at these positions [n]."""

        def reader(bank: Bank) -> Reader:
            here = at[bank.part]
            span = span_of(bank.room, self._step, int(here.max()) + 1)
            if bank.at is not None and bank.dense:  # others that lie between compute in vain
                here = np.zeros(bank.many, np.int64)
                here[bank.at] = at[bank.part]
            mask, among = self._mask(here, span), None if bank.at is None else self._ids(bank.at)

            def attend(number: int, q: Tensor) -> Tensor:
                if among is None or not bank.dense:
                    return self._attend_one(q, *self.arena.pair(bank, span, number, among), mask)
                every = q.new_zeros(bank.many, *q.shape[1:]).index_copy_(0, among, q)
                return self._attend_one(every, *self.arena.pair(bank, span, number), mask).index_select(0, among)

            return bank.part, attend

        return _together([reader(bank) for bank in lay.banks])

    def packed(self, lay: Layout, ids: Sequence[Sequence[int]], starts: I64, every: bool) -> tuple[Pack, Attend]:
        """New tokens of rows, from ``starts`` on, and attention for their queries; ``every``: all outputs are read."""
        packs = packs_of(lay, ids, starts, self._step)

        def reader(bank: Bank, pack: Pack, first: int) -> Reader:
            attend, among = self._within(pack, every), None if bank.at is None else self._ids(bank.at)

            def read(number: int, q: Tensor) -> Tensor:
                return attend(q, *self.arena.pair(bank, pack.span, number, among))

            return slice(first, first + len(pack.tokens)), read

        firsts = np.cumsum([0, *(len(pack.tokens) for pack in packs)]).tolist()
        readers = [reader(bank, pack, first) for bank, pack, first in zip(lay.banks, packs, firsts, strict=False)]
        return Pack.joined(packs), _together(readers)

    def _within(self, pack: Pack, every: bool) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """Attention of packed queries [N, heads, dim] over what a layer has cached of their rows: [N, heads * dim]."""
        if self._steady:
            return partial(self._by_offset, pack=pack)
        if not every or int(pack.counts.max()) > BLOCK:
            return partial(self._at_once, pack=pack)
        s, m, here = self.shape, len(pack.slots), pack.padded
        longest = here.shape[1]
        even = len(pack.row) == m * longest  # nothing to pad
        spread = None if even else self._ids(pack.first[:, None] + here).view(-1)
        back = None if even else self._ids(pack.row * longest + pack.offset)
        mask = self._sees(np.repeat(pack.starts[:, None] + here, s.group, 1), pack.span)[:, None]
        mask = mask.expand(m, s.kv, -1, -1).reshape(m * s.kv, longest * s.group, -1)

        def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            q = q if spread is None else q.index_select(0, spread)
            q = q.view(m, longest, s.kv, s.group, s.dim).transpose(1, 2).reshape(m * s.kv, -1, s.dim)
            a = attended(mask, q, *self._flat(keys, values), steady=False)
            a = a.view(m, s.kv, longest, -1).transpose(1, 2).reshape(m * longest, -1)
            return a if back is None else a.index_select(0, back)

        return attend

    def _at_once(self, q: Tensor, keys: Tensor, values: Tensor, pack: Pack) -> Tensor:
        """Attention of packed queries [N, heads, dim], padded to the longest row: [N, heads * dim]."""
        s, m, longest = self.shape, len(pack.counts), int(pack.counts.max())
        here = pack.padded
        padded = q.index_select(0, self._ids(pack.first[:, None] + here).view(-1)).view(m, longest, s.heads, s.dim)
        mask = self._sees(pack.starts[:, None] + here, pack.span)[:, None]
        if self.transposed:  # torch's fused attention takes none: without a copy this takes three to five times as long
            keys = keys.contiguous()
        a = F.scaled_dot_product_attention(
            padded.transpose(1, 2), keys, values, attn_mask=mask, scale=1.0, enable_gqa=True
        )
        a = a.transpose(1, 2).reshape(m * longest, s.heads * s.dim)
        return a.index_select(0, self._ids(pack.row * longest + pack.offset))

    def _by_offset(self, q: Tensor, keys: Tensor, values: Tensor, pack: Pack) -> Tensor:
        """The same, one token of each row at a time, as decode does it: the same bits in whatever pieces."""
        s, m, longest = self.shape, len(pack.counts), int(pack.counts.max())
        keys, values = self._flat(keys, values)
        out = q.new_empty(longest, m * s.kv, s.group, s.dim)
        for t in range(0, longest, SLAB):
            here = np.minimum(np.arange(t, min(t + SLAB, longest))[:, None], pack.counts - 1)  # [slab, m]
            slab = q.index_select(0, self._ids(pack.first + here).view(-1)).view(-1, m * s.kv, s.group, s.dim)
            masks = self._mask((pack.starts + here).reshape(-1), pack.span).view(-1, m * s.kv, 1, pack.span)
            for mask, queries, a in zip(masks, slab, out[t:], strict=False):
                a.copy_(attended(mask, queries, keys, values, steady=True))
        return out.view(longest * m, -1).index_select(0, self._ids(pack.offset * m + pack.row))

    def _attend_one(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """One query for each row: q [n, heads, dim], keys and values [n, kv, span, dim], mask [n * kv, 1, span]."""
        s, n = self.shape, len(q)
        queries = q.reshape(n * s.kv, s.group, s.dim)
        return attended(mask, queries, *self._flat(keys, values), self._steady).reshape(n, -1)

    def _flat(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [m, kv, span, dim] as products take them: [m * kv, dim, span] and [m * kv, span, dim]."""
        s = self.shape
        return keys.mT.reshape(-1, s.dim, keys.shape[2]), values.reshape(-1, values.shape[2], s.dim)

    def _mask(self, at: I64, span: int) -> Tensor:
        """Additive [n * kv, 1, span]: queries at positions ``at`` see those up to their own."""
        return self._sees(np.repeat(at, self.shape.kv), span)[:, None]

    def _sees(self, at: I64, span: int) -> Tensor:
        """Additive [..., span]: 0 up to the positions ``at`` [...], minus infinity behind them.

        Windows of one line of zeros and then minus infinities are copied: to compare every place takes ten times as
        long, a tenth of a prefill of many rows.
        """
        if len(self._line) < 2 * span:
            self._line = self._line.new_zeros(4 * span)
            self._line[2 * span :] = float("-inf")
        size = len(self._line) // 2
        windows = self._line.as_strided((size, span), (1, 1))
        return windows.index_select(0, self._ids(size - 1 - at.reshape(-1))).view(*at.shape, span)

    def _ids(self, values: Sequence[int] | npt.NDArray[Any]) -> Tensor:
        return sent_ids(values, self.device)


def span_of(room: int, step: int, length: int) -> int:
    """How many positions attention reads of rows with so much room, of which the longest has ``length``."""
    return min(room, -(-length // step) * step)


def packs_of(lay: Layout, ids: Sequence[Sequence[int]], starts: I64, step: int) -> list[Pack]:
    """New tokens of rows as they lie, those of each bank in a pack of their own; spans are multiples of ``step``."""
    return [Pack.of(lay.rows[b.part], ids[b.part], starts[b.part], partial(span_of, b.room, step)) for b in lay.banks]


def _together(readers: list[Reader]) -> Attend:
    """Attention for all queries of a pass, bank by bank."""
    if len(readers) == 1:
        return readers[0][1]
    return lambda number, q: torch.cat([attend(number, q[part]) for part, attend in readers])

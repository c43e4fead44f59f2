"""The fast forward: packed prefill and batched decode over one slotted key-value cache.

Cache layout [layers, rows, kv heads, positions, key then value]. Decode reads neighbouring rows as views, with one
grouped matrix product for all heads that share a key; prefill packs the new tokens of all rows and runs the last layer,
and the vocabulary head, only for the token of each row that is read. Verification is a prefill of which every token is
read, with the attention of decode over the few tokens of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clew.models.engine.forwards.packed_rows import I64, Pack, neighbours, similar
from clew.models.engine.forwards.weights import Layer, Shape, Weights, attended, packed, packs, products, read
from clew.models.engine.taps.blocks import target_of
from clew.models.engine.taps.writes import Plan, Writes, apply

CHUNK = 512  # longest stretch of one row in a packed prefill
SPAN, STEADY_SPAN = 16, 64  # attention reads a multiple of this many positions
SLAB = 32  # tokens of each row whose masks are made at once
BLOCK = 32  # most tokens of a row that attention takes as decode does
TABLE = 4096  # vocabularies up to this size have what the first layer makes of each token computed beforehand


class Fast:
    """Forward passes of a Llama, Mistral, Qwen2 or Qwen3 module.

    Args:
        module: the Hugging Face module; ``use`` takes a copy of its weights.
        shape: from ``shape_of``.
        context: most positions of a row.
        steady: a token's numbers have the same bits whatever is computed beside it and in whatever pieces its row was
            prefilled. Matrix products are taken 16 rows at a time, as other numbers of rows may take another kernel
            and round otherwise; attention sees one token of a row at a time, over a multiple of 64 positions.

    Attributes:
        taps: layers (0-based, not the last) whose outputs are kept in a pass; set it between passes.
        hidden: these outputs, before any norm, [N, taps * width], for the tokens of the last pass, row after row.
        writes: what requests write into hidden states, by row; what is kept is as written.
    """

    reuses = True
    taps: tuple[int, ...] = ()
    _picked: Tensor | None = None  # tokens whose outputs are kept, where not all
    hidden: Tensor

    def __init__(self, module: nn.Module, shape: Shape, context: int, steady: bool = False) -> None:
        self._module, self.shape, self.context, self._steady = module, shape, context, steady
        self._times, self._plus = products(steady)
        parameter = next(module.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.token_bytes = 2 * shape.layers * shape.kv * shape.dim * parameter.element_size()
        self.vocabulary, self.layers, self.width = shape.vocabulary, shape.layers, shape.width
        self.rows, self.size = 0, 0
        self._kv, self.hidden = torch.empty(0), torch.empty(0)
        self.writes = Writes(target_of(module, shape.layers, shape.width, context), self.device, self.dtype)

    def again(self) -> Fast:
        """Another forward of the same module, without weights yet and with a cache of its own."""
        return Fast(self._module, self.shape, self.context, self._steady)

    def read(self) -> Weights:
        """A snapshot of the module's present weights, for ``use``."""
        return read(self._module, self.shape, self.context)

    @torch.inference_mode()
    def use(self, weights: Weights) -> None:
        """Compute with these weights from now on; what is cached is void."""
        s = self.shape
        fit = packs(self.device, self.dtype) and not self._steady
        self._w = packed(weights, s) if fit else replace(weights, head=weights.head.t())
        self.clear()
        kind = torch.promote_types(self.dtype, torch.float32)
        self._least, self._head_least = (
            torch.tensor((weights.eps * n) ** 0.5, dtype=kind, device=self.device) for n in (s.width, s.dim)
        )
        small = self.vocabulary <= TABLE and s.layers > 1
        self._first = self._project(self._w.layers[0], weights.embed) if small else None

    @torch.inference_mode()
    def clear(self) -> None:
        """Forget what is cached: a masked position is multiplied by 0, which does not mend a NaN."""
        self._kv.zero_()

    @torch.inference_mode()
    def resize(self, rows: int, size: int) -> None:
        """Make room for ``rows`` rows of ``size`` positions, keeping what is cached."""
        s = self.shape
        kv = torch.zeros(s.layers, rows, s.kv, size, 2 * s.dim, dtype=self.dtype, device=self.device)
        if self.rows:
            kept, length = min(rows, self.rows), min(size, self.size)
            kv[:, :kept, :, :length] = self._kv[:, :kept, :, :length]
        self._kv, self.rows, self.size = kv, rows, size
        self._views: tuple[tuple[int, int, int], list[Tensor]] = ((0, 0, 0), [])
        self._base = np.arange(rows * s.kv).reshape(rows, s.kv) * size
        self._range = torch.arange(size, device=self.device)
        self._zero = torch.zeros((), dtype=self.dtype, device=self.device)
        self._never = torch.full((), float("-inf"), dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first ``length`` positions of rows onto others; all are read before any is written."""
        take, put = self._ids(sources), self._ids(targets)
        self._kv[:, put, :, :length] = self._kv[:, take, :, :length]

    @torch.inference_mode()
    def decode(self, rows: I64, tokens: I64, positions: I64) -> Tensor:
        """Logits [n, V] after one token for each of n rows, at its position."""
        span = self._span(int(positions.max()) + 1)
        given, index = self._ids(tokens), self._ids(self._base[rows] + positions[:, None]).view(-1)
        turn, mask = self._w.turn.index_select(0, self._ids(positions)), self._mask(positions, span)
        x, where = self._w.embed.index_select(0, given), self._where(rows)
        plan = self.writes.plan(rows, positions) if self.writes else {}
        for number, layer in enumerate(self._w.layers):
            q = self._store(number, self._projected(number, layer, x, given), turn, index)
            x = self._rest(layer, x, self._attend_one(q, self._rows(number, where, span), mask))
            self._keep(number, x, plan)
        return self._logits(x)

    @torch.inference_mode()
    def verify(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64) -> Tensor:
        """Cache tokens of rows, each from its start; logits [N, V] after every one of them, row after row."""
        return self._logits(self._packed(rows, ids, starts, depth=self.shape.layers))

    @torch.inference_mode()
    def prefill(self, slots: I64, ids: Sequence[Sequence[int]], starts: I64) -> Tensor:
        """Cache new tokens of rows ``slots``, each from its start; logits [m, V] after the last token of each."""
        counts = np.array([len(i) for i in ids], dtype=np.int64)
        starts, ids, first = starts.copy(), list(ids), counts.cumsum() - counts
        kept: list[tuple[I64, Tensor]] = []  # outputs of tapped layers, and where they belong

        def run(which: I64, pieces: list[Sequence[int]], wanted: bool = True) -> Tensor:
            out = self._packed(slots[which], pieces, starts[which], wanted)
            if self.taps:
                passed = zip(first[which].tolist(), map(len, pieces), strict=True)
                kept.append((np.concatenate([np.arange(at, at + n) for at, n in passed]), self.hidden))
            return out

        while (long := np.flatnonzero(counts > CHUNK)).size:
            for i in long:  # only keys and values are wanted of these
                run(np.array([i]), [ids[i][:CHUNK]], False)
                ids[i], starts[i], counts[i] = ids[i][CHUNK:], starts[i] + CHUNK, counts[i] - CHUNK
                first[i] += CHUNK
        groups = similar(counts)
        if len(groups) == 1:
            logits = run(np.arange(len(ids)), ids)
        else:
            logits = torch.empty(len(slots), self.vocabulary, dtype=self.dtype, device=self.device)
            for group in groups:
                logits[self._ids(group)] = run(group, [ids[i] for i in group])
        if len(kept) > 1:
            order = np.concatenate([index for index, _ in kept]).argsort()
            self.hidden = torch.cat([part for _, part in kept])[self._ids(order)]
        return logits

    def _packed(
        self, slots: I64, ids: Sequence[Sequence[int]], starts: I64, wanted: bool = True, depth: int | None = None
    ) -> Tensor:
        """One pass over the new tokens of some rows, packed; logits after each row's last if wanted.

        With ``depth`` every token passes so many layers, and their last outputs are given.
        """
        every = depth is not None
        pack = Pack.of(slots, ids, starts, self._span)
        at, row, counts = pack.at, pack.row, pack.counts
        given, index = self._ids(pack.tokens), self._ids(self._base[slots[row]] + at[:, None]).view(-1)
        turn = self._w.turn.index_select(0, self._ids(at))
        x, where = self._w.embed.index_select(0, given), self._where(slots)
        attend = self._attention(pack, every)
        plan = self.writes.plan(slots[row], at, last=every) if self.writes else {}
        self._keep(-1, x, {})
        for number, layer in enumerate(self._w.layers[: self.shape.layers - 1 if depth is None else depth]):
            q = self._store(number, self._projected(number, layer, x, given), turn, index)
            x = self._rest(layer, x, attend(q, self._rows(number, where, pack.span)))
            self._keep(number, x, plan)
        if every:
            return x
        number, layer = self.shape.layers - 1, self._w.layers[-1]
        self._store(number, self._project(layer, x, keys_only=True), turn, index)
        if not wanted:
            return x
        read = self._ids(counts.cumsum() - 1)
        x = x.index_select(0, read)
        q = self._turn(self._project(layer, x, queries_only=True), turn.index_select(0, read))
        mask = self._mask(starts + counts - 1, pack.span)
        a = self._attend_one(q, self._rows(number, where, pack.span), mask)
        x = self._rest(layer, x, a)
        if self.writes:
            self._keep(number, x, self.writes.at_last(slots, starts + counts - 1))
        return self._logits(x)

    def _keep(self, number: int, x: Tensor, plan: Plan) -> None:
        """Write into the output of a layer; of a tapped one keep all tokens, or those picked."""
        if number in plan:
            apply(plan[number], x)
        if number in self.taps:
            if self._picked is not None:
                x = x.index_select(0, self._picked)
            if number == self.taps[0]:
                self._kept = x.new_empty(len(x), len(self.taps), x.shape[-1])
                self.hidden = self._kept.flatten(1)  # of no token too
            self._kept[:, self.taps.index(number)] = x

    def _attention(self, pack: Pack, every: bool) -> Callable[[Tensor, Tensor], Tensor]:
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
        last = self._ids(np.repeat(pack.starts[:, None] + here, s.group, 1)).view(m, 1, -1, 1)
        mask = torch.where(self._range[: pack.span] > last, self._never, self._zero)
        mask = mask.expand(m, s.kv, -1, -1).reshape(m * s.kv, longest * s.group, -1)

        def attend(q: Tensor, kv: Tensor) -> Tensor:
            q = q if spread is None else q.index_select(0, spread)
            q = q.view(m, longest, s.kv, s.group, s.dim).transpose(1, 2).reshape(m * s.kv, -1, s.dim)
            flat = kv.reshape(m * s.kv, -1, 2 * s.dim)
            scores = torch.baddbmm(mask, q, flat[..., : s.dim].transpose(1, 2))
            a = torch.bmm(scores.softmax(-1), flat[..., s.dim :])
            a = a.view(m, s.kv, longest, -1).transpose(1, 2).reshape(m * longest, -1)
            return a if back is None else a.index_select(0, back)

        return attend

    def _at_once(self, q: Tensor, kv: Tensor, pack: Pack) -> Tensor:
        """Attention of packed queries [N, heads, dim], padded to the longest row: [N, heads * dim]."""
        s, m, longest = self.shape, len(pack.counts), int(pack.counts.max())
        here = pack.padded
        padded = q.index_select(0, self._ids(pack.first[:, None] + here).view(-1)).view(m, longest, s.heads, s.dim)
        unseen = self._range[: pack.span] > self._ids(pack.starts[:, None] + here)[..., None]  # [m, longest, span]
        mask = torch.where(unseen, self._never, self._zero)[:, None]
        keys, values = kv[..., : s.dim], kv[..., s.dim :]
        a = F.scaled_dot_product_attention(
            padded.transpose(1, 2), keys, values, attn_mask=mask, scale=1.0, enable_gqa=True
        )
        a = a.transpose(1, 2).reshape(m * longest, s.heads * s.dim)
        return a.index_select(0, self._ids(pack.row * longest + pack.offset))

    def _by_offset(self, q: Tensor, kv: Tensor, pack: Pack) -> Tensor:
        """The same, one token of each row at a time, as decode does it: the same bits in whatever pieces."""
        s, m, longest = self.shape, len(pack.counts), int(pack.counts.max())
        flat = kv.reshape(m * s.kv, -1, 2 * s.dim)
        keys, values = flat[..., : s.dim].transpose(1, 2), flat[..., s.dim :]
        out = q.new_empty(longest, m * s.kv, s.group, s.dim)
        for t in range(0, longest, SLAB):
            here = np.minimum(np.arange(t, min(t + SLAB, longest))[:, None], pack.counts - 1)  # [slab, m]
            slab = q.index_select(0, self._ids(pack.first + here).view(-1)).view(-1, m * s.kv, s.group, s.dim)
            masks = self._mask((pack.starts + here).reshape(-1), pack.span).view(-1, m * s.kv, 1, pack.span)
            for mask, queries, a in zip(masks, slab, out[t:], strict=False):
                a.copy_(attended(mask, queries, keys, values, steady=True))
        return out.view(longest * m, -1).index_select(0, self._ids(pack.offset * m + pack.row))

    def _projected(self, number: int, layer: Layer, x: Tensor, tokens: Tensor) -> Tensor:
        """Queries, keys and values of a layer; those of the first depend on the token alone."""
        if number == 0 and self._first is not None:
            return self._first.index_select(0, tokens)
        return self._project(layer, x)

    def _project(self, layer: Layer, x: Tensor, keys_only: bool = False, queries_only: bool = False) -> Tensor:
        """Queries, keys and values, [N, heads + 2 kv, dim] or part of them, normalised but not yet turned."""
        s = self.shape
        low, high = s.heads if keys_only else 0, s.heads if queries_only else s.heads + 2 * s.kv
        part = slice(low * s.dim, high * s.dim)
        matrix = layer.kv if keys_only else layer.q if queries_only else layer.qkv
        bias = None if layer.qkv_bias is None else layer.qkv_bias[part]
        y = self._times(self._unit(x, self._least), layer.qkv[:, part] if matrix is None else matrix, bias)
        y = y.view(-1, high - low, s.dim)
        if layer.head_norm is not None:
            turned = min(high, s.heads + s.kv)
            z = y[:, : turned - low]
            z.copy_(self._unit(z, self._head_least).mul_(layer.head_norm[low:turned]))
        return y

    def _unit(self, x: Tensor, least: Tensor) -> Tensor:
        """x over its length; the root of the width is in the weights that follow (1910.07467, eq. 4)."""
        if x.dtype.itemsize < 4:
            return self._unit(x.float(), least).to(x.dtype)
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(least)

    def _turn(self, z: Tensor, turn: Tensor) -> Tensor:
        """Rotary positions of queries or keys [N, heads, dim], in place: a product of complex numbers."""
        pairs = z.view(*z.shape[:2], -1, 2)
        if z.dtype.itemsize < 4:
            pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()) * turn))
        else:
            torch.view_as_complex(pairs).mul_(turn)
        return z

    def _store(self, number: int, y: Tensor, turn: Tensor, index: Tensor) -> Tensor:
        """Cache the keys and values of a projection at flat places ``index``; its queries, turned."""
        s = self.shape
        self._turn(y[:, : -s.kv], turn)
        new = torch.cat((y[:, -2 * s.kv : -s.kv], y[:, -s.kv :]), -1)
        self._kv[number].view(-1, 2 * s.dim).index_copy_(0, index, new.view(-1, 2 * s.dim))
        return y[:, : -2 * s.kv]

    def _attend_one(self, q: Tensor, kv: Tensor, mask: Tensor) -> Tensor:
        """One query for each row: q [n, heads, dim], kv [n, kv, span, 2 dim], mask [n * kv, 1, span]."""
        s, n = self.shape, len(q)
        flat = kv.reshape(n * s.kv, -1, 2 * s.dim)
        queries, keys, values = q.reshape(n * s.kv, s.group, s.dim), flat[..., : s.dim].mT, flat[..., s.dim :]
        return attended(mask, queries, keys, values, self._steady).reshape(n, -1)

    def _mask(self, at: I64, span: int) -> Tensor:
        """Additive [n * kv, 1, span]: queries at positions ``at`` see those up to their own."""
        last = self._ids(np.repeat(at, self.shape.kv)).view(-1, 1, 1)
        return torch.where(self._range[:span] > last, self._never, self._zero)

    def _rest(self, layer: Layer, x: Tensor, a: Tensor) -> Tensor:
        """Output projection and feed-forward, each with its residual; changes x in place."""
        if layer.out_bias is not None:
            x += layer.out_bias
        x = self._plus(x, a, layer.out)
        gate, up = self._times(self._unit(x, self._least), layer.gate_up, layer.gate_up_bias).chunk(2, -1)
        if layer.down_bias is not None:
            x += layer.down_bias
        return self._plus(x, F.silu(gate, inplace=True).mul_(up), layer.down)

    def _logits(self, x: Tensor) -> Tensor:
        return self._times(self._unit(x, self._least).mul_(self._w.norm), self._w.head, self._w.head_bias)

    def _where(self, slots: I64) -> tuple[int, int] | Tensor:
        """Neighbouring rows as first and number, others as indices."""
        return neighbours(slots) or self._ids(slots)

    def _rows(self, number: int, where: tuple[int, int] | Tensor, span: int) -> Tensor:
        """What a layer has cached of some rows, [m, kv, span, 2 dim]: a view where they are neighbours, else a copy."""
        if isinstance(where, Tensor):
            return self._kv[number, :, :, :span].index_select(0, where)
        key = *where, span
        if key != self._views[0]:
            first, m = where
            self._views = key, list(self._kv[:, first : first + m, :, :span])
        return self._views[1][number]

    def _span(self, length: int) -> int:
        step = STEADY_SPAN if self._steady else SPAN
        return min(self.size, -(-length // step) * step)

    def _ids(self, values: Sequence[int] | npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(self.device)

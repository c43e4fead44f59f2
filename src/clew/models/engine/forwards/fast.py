"""The fast forward: packed prefill and batched decode over a key-value cache in blocks (``Arena``).

Decode reads rows with stretches of one length as a view, with one grouped matrix product for all heads that share a
key; prefill packs the new tokens of all rows and runs the last layer, and the vocabulary head, only for the token of
each row that is read. Verification is a prefill of which every token is read, with the attention of decode over the few
tokens of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clew.models.engine.forwards.arena import KEYS, VALUES, Arena, Layout, Spot
from clew.models.engine.forwards.attention import Attention
from clew.models.engine.forwards.packed_rows import I64, as_came, similar
from clew.models.engine.forwards.transfers import sent_ids
from clew.models.engine.forwards.weights import Layer, Shape, Weights, packed, packs, products, read
from clew.models.engine.taps.blocks import target_of
from clew.models.engine.taps.writes import Plan, Writes, apply

CHUNK = 512  # longest stretch of one row in a packed prefill
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
        self.hidden = torch.empty(0)
        self._reserve()
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

    def _reserve(self) -> None:
        """Begin with a cache of no rows."""
        self.arena, s = Arena(), self.shape
        self._attention = Attention(self.arena, s, self.dtype, self.device, self._steady)
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        for number in range(s.layers):
            self.arena.hold((number, KEYS), s.kv, s.dim, like, self._attention.transposed)
            self.arena.hold((number, VALUES), s.kv, s.dim, like)

    def clear(self) -> None:
        """Forget what is cached."""
        self.arena.clear()

    def resize(self, rows: int, size: int) -> None:
        """Make room for ``rows`` rows of ``size`` positions each, keeping what is cached."""
        self.arena.even(rows, size)

    def free(self, row: int) -> None:
        """Nothing of this row is needed any more."""
        self.arena.free(row)

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first ``length`` positions of rows onto others; all are read before any is written."""
        self.arena.move(sources, targets, length)

    @torch.inference_mode()
    def decode(self, rows: I64, tokens: I64, positions: I64) -> Tensor:
        """Logits [n, V] after one token for each of n rows, at its position."""
        lay = self.arena.layout(rows)
        if lay.order is not None:
            tokens, positions = tokens[lay.order], positions[lay.order]
        given, at, attend = self._ids(tokens), self._ids(positions), self._attention.one(lay, positions)
        turn, spots = self._w.turn.index_select(0, at), lay.spots(at)
        x = self._w.embed.index_select(0, given)
        plan = self.writes.plan(lay.rows, positions) if self.writes else {}
        back = self._picked = None if lay.back is None else self._ids(lay.back)
        for number, layer in enumerate(self._w.layers):
            q = self._store(number, self._projected(number, layer, x, given), turn, spots)
            x = self._rest(layer, x, attend(number, q))
            self._keep(number, x, plan)
        self._picked = None
        return self._logits(x if back is None else x.index_select(0, back))

    @torch.inference_mode()
    def verify(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64) -> Tensor:
        """Cache tokens of rows, each from its start; logits [N, V] after every one of them, row after row."""
        lay = self.arena.layout(rows)
        if lay.order is None:
            return self._logits(self._packed(lay, ids, starts, depth=self.shape.layers))
        back = self._ids(as_came(lay.order, [len(i) for i in ids]))
        x = self._packed(lay, [ids[i] for i in lay.order.tolist()], starts[lay.order], depth=self.shape.layers)
        self.hidden = self.hidden.index_select(0, back) if self.taps else self.hidden
        return self._logits(x.index_select(0, back))

    @torch.inference_mode()
    def prefill(self, slots: I64, ids: Sequence[Sequence[int]], starts: I64) -> Tensor:
        """Cache new tokens of rows ``slots``, each from its start; logits [m, V] after the last token of each."""
        counts = np.array([len(i) for i in ids], dtype=np.int64)
        starts, ids, first = starts.copy(), list(ids), counts.cumsum() - counts
        kept: list[tuple[I64, Tensor]] = []  # outputs of tapped layers, and where they belong

        def run(which: I64, wanted: bool = True) -> Tensor:
            lay = self.arena.layout(slots[which])
            which = which if lay.order is None else which[lay.order]
            pieces = [ids[i][:CHUNK] for i in which.tolist()]
            out = self._packed(lay, pieces, starts[which], wanted)
            if self.taps:
                passed = zip(first[which].tolist(), map(len, pieces), strict=True)
                kept.append((np.concatenate([np.arange(at, at + n) for at, n in passed]), self.hidden))
            return out if lay.back is None or not wanted else out.index_select(0, self._ids(lay.back))

        while (long := np.flatnonzero(counts > CHUNK)).size:
            for i in long:  # only keys and values are wanted of these
                run(np.array([i]), wanted=False)
                ids[i], starts[i], counts[i] = ids[i][CHUNK:], starts[i] + CHUNK, counts[i] - CHUNK
                first[i] += CHUNK
        groups = similar(counts)
        if len(groups) == 1:
            logits = run(np.arange(len(ids)))
        else:
            logits = torch.empty(len(slots), self.vocabulary, dtype=self.dtype, device=self.device)
            for group in groups:
                logits[self._ids(group)] = run(group)
        if kept:
            order = np.concatenate([index for index, _ in kept]).argsort()
            self.hidden = torch.cat([part for _, part in kept])[self._ids(order)]
        return logits

    def _packed(
        self, lay: Layout, ids: Sequence[Sequence[int]], starts: I64, wanted: bool = True, depth: int | None = None
    ) -> Tensor:
        """One pass over the new tokens of some rows, packed as they lie; logits after each row's last if wanted.

        With ``depth`` every token passes so many layers, and their last outputs are given.
        """
        every = depth is not None
        pack, attend = self._attention.packed(lay, ids, starts, every)
        given, at, last = self._ids(pack.tokens), self._ids(pack.at), starts + pack.counts - 1
        turn, spots = self._w.turn.index_select(0, at), lay.spots(at, pack.counts)
        x = self._w.embed.index_select(0, given)
        plan = self.writes.plan(pack.slots[pack.row], pack.at, last=every) if self.writes else {}
        self._keep(-1, x, {})
        for number, layer in enumerate(self._w.layers[: self.shape.layers - 1 if depth is None else depth]):
            q = self._store(number, self._projected(number, layer, x, given), turn, spots)
            x = self._rest(layer, x, attend(number, q))
            self._keep(number, x, plan)
        if every:
            return x
        number, layer = self.shape.layers - 1, self._w.layers[-1]
        self._store(number, self._project(layer, x, keys_only=True), turn, spots)
        if not wanted:
            return x
        read = self._ids(pack.counts.cumsum() - 1)
        x = x.index_select(0, read)
        q = self._turn(self._project(layer, x, queries_only=True), turn.index_select(0, read))
        x = self._rest(layer, x, self._attention.one(lay, last)(number, q))
        if self.writes:
            self._keep(number, x, self.writes.at_last(lay.rows, last))
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

    def _store(self, number: int, y: Tensor, turn: Tensor, spots: list[Spot]) -> Tensor:
        """Cache the keys and values of a projection; its queries, turned."""
        s = self.shape
        self._turn(y[:, : -s.kv], turn)
        self.arena.store((number, KEYS), spots, y[:, -2 * s.kv : -s.kv])
        self.arena.store((number, VALUES), spots, y[:, -s.kv :])
        return y[:, : -2 * s.kv]

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

    def _ids(self, values: Sequence[int] | npt.NDArray[Any]) -> Tensor:
        return sent_ids(values, self.device)

"""Drafters that read the target's hidden states, as the engine runs them, each with a key-value cache of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from clew.models.drafters.cache import Rows, packed
from clew.models.drafters.drawing import draw_block, draw_chain, draw_each, draw_table
from clew.models.drafters.eagle import Eagle, First
from clew.models.drafters.layers import Attention, Block, Norm, Trained, turn
from clew.models.drafters.parallel import DSpark, MarkovHead
from clew.models.engine.forwards.weights import pack, times
from clew.models.engine.speculation.proposal import F64, I64, Proposal
from clew.models.sampling import Laws, in_force

TABLE = 4096  # vocabularies up to this size have the Markov head's biases of every token computed beforehand


class _Layer:
    """A decoder layer's weights, matrices that read the same fused."""

    def __init__(self, layer: Block | First) -> None:
        a: Attention = layer.self_attn
        self.heads, self.kv, self.dim = a.heads, a.kv, a.dim
        qkv = torch.cat((a.q_proj.weight, a.k_proj.weight, a.v_proj.weight)).detach().t()
        self.qkv, self.pairs = pack(qkv), pack(qkv[:, a.heads * a.dim :])
        self.norms: Tensor | None = None
        if isinstance(a.q_norm, Norm) and isinstance(a.k_norm, Norm):
            self.norms = torch.cat((a.q_norm.weight.expand(a.heads, -1), a.k_norm.weight.expand(a.kv, -1))).detach()
        self.gate_up = pack(torch.cat((layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight)).detach().t())
        self.out, self.down = pack(a.o_proj.weight.detach().t()), pack(layer.mlp.down_proj.weight.detach().t())
        self.after: Norm = layer.post_attention_layernorm
        self.eps = self.after.eps

    def project(self, y: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [..., heads, dim] and pairs [..., kv, 2 dim] of y [..., into]; cos, sin [..., 1, dim]."""
        whole = times(y, self.qkv).view(*y.shape[:-1], -1, self.dim)
        z = whole[..., : self.heads + self.kv, :]
        z = turn(self._normed(z, self.norms), cos, sin)
        return z[..., : self.heads, :], torch.cat((z[..., self.heads :, :], whole[..., -self.kv :, :]), -1)

    def context(self, y: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Pairs [N, kv, 2 dim] alone."""
        k, v = times(y, self.pairs).view(len(y), -1, self.dim).chunk(2, -2)
        k = self._normed(k, None if self.norms is None else self.norms[self.heads :])
        return torch.cat((turn(k, cos, sin), v), -1)

    def _normed(self, z: Tensor, weights: Tensor | None) -> Tensor:
        return z if weights is None else F.rms_norm(z, (self.dim,), None, self.eps) * weights

    def attend(self, q: Tensor, pairs: Tensor, mask: Tensor | None) -> Tensor:
        """[n, T, heads * dim]: q [n, T, heads, dim] over pairs [n, S, kv, 2 dim]; mask boolean [n, 1, T or 1, S]."""
        k, v = pairs.transpose(1, 2).chunk(2, -1)
        a = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask, enable_gqa=self.heads != self.kv)
        return a.transpose(1, 2).flatten(2)

    def rest(self, x: Tensor, a: Tensor) -> Tensor:
        x = x + times(a, self.out)
        gate, up = times(self.after(x), self.gate_up).chunk(2, -1)
        return x + times(F.silu(gate) * up, self.down)


class _Tapped:
    """What both have: taps, a cache of pairs, moves."""

    def __init__(self, module: DSpark | Eagle) -> None:
        d = module.design
        self.module: Trained = module
        self.design = d
        self.block, self.taps, self.vocabulary = d.block, d.taps, d.vocabulary
        weight = module.fc.weight
        self._layers = [_Layer(layer) for layer in module.layers]
        self._cos, self._sin = (t.to(weight.dtype)[:, None] for t in (module.cos, module.sin))
        self._cache = Rows(d.layers, (d.kv, 2 * d.dim), d.block, weight.dtype, weight.device)
        self._held = [self._cache]  # all that is kept for each row
        self._within = torch.arange(d.block, device=weight.device)
        self._device = weight.device
        self._fc, self._head = pack(weight.detach().t()), pack(module.lm_head.weight.detach().t())

    def resize(self, rows: int, size: int) -> None:
        for held in self._held:
            held.resize(rows, size)

    def clear(self) -> None:
        for held in self._held:
            held.clear()

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        for held in self._held:
            held.move(sources, targets, length)

    def _ids(self, array: I64) -> Tensor:
        return torch.from_numpy(array).to(self._device)


class Parallel(_Tapped):
    """DFlash and DSpark: one pass for the block, then the sequential head left to right.

    Args:
        module: trained; its weights are read when this is made.
        temperatures: [block], by which confidence logits are divided (2607.05147, section 3.2.1); 1 where not given.
    """

    module: DSpark

    def __init__(self, module: DSpark, temperatures: Sequence[float] | None = None) -> None:
        super().__init__(module)
        d, m = self.design, module
        self._heat = None if temperatures is None else m.fc.weight.new_tensor(list(temperatures))
        self._mask = m.embed_tokens.weight[d.mask].detach()
        head = m.markov_head
        self._table: Tensor | None = None
        with torch.no_grad():
            if head is not None and head.kind == "vanilla" and d.vocabulary <= TABLE:
                self._table = head.markov_w1.weight @ head.markov_w2.weight.t()
            if m.confidence_head is not None:
                w = m.confidence_head.proj.weight[0]
                self._sees_hidden = w[: d.width]
                self._sees_before = (
                    w.new_zeros(d.vocabulary) if head is None else head.markov_w1.weight @ w[d.width :]
                ) + m.confidence_head.proj.bias

    @torch.inference_mode()
    def extend(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, hidden: Tensor) -> None:
        at, _, positions = packed(rows, ids, starts)
        place, where = self._cache.at(at, positions), self._ids(positions)
        m = self.module
        context = m.hidden_norm(times(hidden.to(m.fc.weight.dtype), self._fc))
        cos, sin = self._cos[where], self._sin[where]
        for flat, layer in zip(self._cache.flat, self._layers, strict=True):
            flat.index_copy_(0, place, layer.context(context, cos, sin))

    @torch.inference_mode()
    def propose(self, rows: I64, anchors: I64, positions: I64, laws: Laws, u: F64) -> Proposal:
        before = self._ids(anchors)
        hidden = self._states(rows, before, positions)
        base = times(hidden, self._head)
        head = self.module.markov_head
        if head is None:
            tokens, logq = draw_block(base, laws, u)
        elif self._table is None:
            tokens, logq = draw_chain(base, _Biases(head, hidden), before, laws, u)
        elif len(rows) == 1 and base.device.type == "cpu" and laws.top_k is None and laws.top_p is None:
            tokens, logq = draw_table(base, self._table, int(anchors[0]), laws, u)
        else:
            table = self._table
            tokens, logq = draw_chain(base, lambda k, x: table.index_select(0, x), before, laws, u)
        return Proposal(tokens, logq, self._chance(hidden, torch.cat((before[:, None], tokens[:, :-1]), 1), logq))

    def _states(self, rows: I64, anchors: Tensor, positions: I64) -> Tensor:
        """[n, block, width] behind anchors [n]."""
        d, n, span = self.design, len(rows), int(positions.max())
        x = self._mask.expand(n, d.block, -1).clone()
        x[:, 0] = self.module.embed_tokens.weight[anchors]
        where = self._ids(positions)[:, None] + self._within
        cos, sin = self._cos[where], self._sin[where]
        row: slice | Tensor = slice(int(rows[0]), int(rows[0]) + 1)
        mask: Tensor | None = None
        if n > 1:
            seen = torch.arange(span, device=self._device) < self._ids(positions)[:, None]
            row, mask = self._ids(rows), F.pad(seen, (0, d.block), value=True)[:, None, None]
        for cached, layer, norm in zip(self._cache.view(), self._layers, self.module.layers, strict=True):
            q, own = layer.project(norm.input_layernorm(x), cos, sin)
            x = layer.rest(x, layer.attend(q, torch.cat((cached[row, :span], own), 1), mask))
        out: Tensor = self.module.norm(x)
        return out

    def _chance(self, hidden: Tensor, before: Tensor, logq: Tensor) -> Tensor:
        """[n, block]; without a confidence head the likeliest token's probability, which the draw does not touch."""
        if self.module.confidence_head is None:
            return logq.amax(-1).exp().float()
        logits = hidden @ self._sees_hidden + self._sees_before[before]
        return (logits if self._heat is None else logits / self._heat).sigmoid().float()


class _Biases:
    """A sequential head's biases left to right: of a head whose table is too large, or that carries a state."""

    def __init__(self, head: MarkovHead, hidden: Tensor) -> None:
        self._head, self._hidden = head, hidden
        self._state: Tensor | None = None

    def __call__(self, k: int, before: Tensor) -> Tensor:
        found, self._state = self._head.step(self._head.markov_w1(before), self._hidden[:, k], self._state)
        return found


class Autoregressive(_Tapped):
    """The Eagle-like drafter: as many passes of its one layer as tokens."""

    module: Eagle

    def __init__(self, module: Eagle) -> None:
        super().__init__(module)
        d, weight = self.design, module.fc.weight
        self._states = Rows(1, (d.width,), d.block, weight.dtype, weight.device)
        self._held.append(self._states)

    @torch.inference_mode()
    def extend(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, hidden: Tensor) -> None:
        at, tokens, positions = packed(rows, ids, starts)
        m, states = self.module, self._states.flat[0]
        states.index_copy_(0, self._states.at(at, positions), times(hidden.to(m.fc.weight.dtype), self._fc))
        paired = positions > 0  # a pair needs the state of the position before
        at, tokens, before = at[paired], tokens[paired], positions[paired] - 1
        if not len(before):
            return
        place, where = self._cache.at(at, before), self._ids(before)
        y = m.layers[0].read(m.embed_tokens.weight[self._ids(tokens)], states[place])
        new = self._layers[0].context(y, self._cos[where], self._sin[where])
        self._cache.flat[0].index_copy_(0, place, new)

    @torch.inference_mode()
    def propose(self, rows: I64, anchors: I64, positions: I64, laws: Laws, u: F64) -> Proposal:
        m, layer, noise = self.module, self._layers[0], torch.from_numpy(u).to(self._device)
        tokens, drawn, logps = self._ids(anchors), [], []
        state = self._states.flat[0][self._states.at(rows, positions - 1)]
        index = slice(int(rows[0]), int(rows[0]) + 1) if len(rows) == 1 else self._ids(rows)
        for k in range(self.block):
            places = positions - 1 + k
            where, span = self._ids(places), int(places.max()) + 1
            y = m.layers[0].read(m.embed_tokens.weight[tokens], state)
            q, new = layer.project(y, self._cos[where], self._sin[where])
            self._cache.flat[0].index_copy_(0, self._cache.at(rows, places), new)
            mask = None
            if len(rows) > 1:
                mask = (torch.arange(span, device=self._device) <= where[:, None])[:, None, None]
            a = layer.attend(q[:, None], self._cache.view()[0][index, :span], mask)
            state = layer.rest(m.layers[0].residual(state), a[:, 0])
            logp = in_force(m.widened(times(m.norm(state), self._head)), laws)
            tokens = draw_each(logp, noise[:, k])
            drawn.append(tokens)
            logps.append(logp)
        logq = torch.stack(logps, 1)
        return Proposal(torch.stack(drawn, 1), logq, logq.amax(-1).exp().float())

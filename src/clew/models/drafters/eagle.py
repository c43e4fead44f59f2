"""The autoregressive drafter in the manner of Eagle-3 (2503.01840): one layer, run once for each token it proposes,
first on the target's tapped states, then on its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.models.drafters.layers import Attention, Design, Feed, Norm, Trained, frozen, rotary

Pairs = tuple[Tensor, Tensor]


class First(nn.Module):
    """A decoder layer that reads the token's embedding beside the state; its residual is the state alone."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(design, 2 * design.width), Feed(design)
        self.input_layernorm, self.hidden_norm = Norm(design.width, design.eps), Norm(design.width, design.eps)
        self.post_attention_layernorm, self.norm_first = Norm(design.width, design.eps), design.norm_first

    def residual(self, state: Tensor) -> Tensor:
        """What attention is added to."""
        kept: Tensor = self.hidden_norm(state) if self.norm_first else state
        return kept

    def read(self, embedded: Tensor, state: Tensor) -> Tensor:
        return torch.cat((self.input_layernorm(embedded), self.hidden_norm(state)), -1)

    def rest(self, state: Tensor, attended: Tensor) -> Tensor:
        x = self.residual(state) + attended
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Eagle(Trained):
    """The trained part. A pair (state at i, token at i + 1) stands at place i.

    Args:
        embed, head: the target's embedding and output matrices [V, width], copied and frozen.
        known: the target's token ids of the rows of ``head``, int64, where it has fewer than the target.
    """

    def __init__(self, design: Design, embed: Tensor, head: Tensor, known: Tensor | None = None) -> None:
        super().__init__()
        if design.layers != 1 or design.rank or design.confidence:
            remedy = "It has one layer, no sequential and no confidence head."
            raise BadInput(f"{design} is no Eagle drafter", remedy=remedy)
        self.design = d = design
        self.embed_tokens, self.lm_head = frozen(embed, head)
        self.fc = nn.Linear(len(d.taps) * d.width, d.width, bias=False)
        self.layers: Any = nn.ModuleList([First(d)])
        self.norm = Norm(d.width, d.eps)
        self.known = known
        self.cos: Tensor
        self.sin: Tensor
        for name, table in zip(("cos", "sin"), rotary(d), strict=True):
            self.register_buffer(name, table, persistent=False)

    def widened(self, logits: Tensor) -> Tensor:
        """Logits [..., V] of the head's own; tokens that it does not know are never proposed."""
        if self.known is None:
            return logits
        out = logits.new_full((*logits.shape[:-1], self.design.vocabulary), float("-inf"))
        out[..., self.known.to(logits.device)] = logits
        return out

    def forward(self, taps: Tensor, ids: Tensor, anchors: Tensor) -> tuple[Tensor, None]:
        """Logits [B, A, block, V] behind anchors [B, A], the true tokens fed at every step (training-time test).

        Args:
            taps: [B, T, taps * width]. ids: [B, T + block or more].
        """
        d, layer, (rows, length), many = self.design, self.layers[0], taps.shape[:2], anchors.shape[1]
        states = self.fc(taps)
        place = torch.arange(length, device=ids.device)
        read = layer.read(self.embed_tokens(ids[:, 1 : length + 1]), states)
        k, v = layer.self_attn.pairs(read, self.cos[:length], self.sin[:length])
        seen = (place < anchors[..., None] - 1)[:, None]  # [B, 1, A, T]
        state = states.gather(1, (anchors - 1).clamp(min=0)[..., None].expand(-1, -1, d.width))
        own = torch.eye(many, dtype=torch.bool, device=ids.device).expand(rows, 1, -1, -1)
        logits = []
        for step in range(d.block):
            at = anchors - 1 + step
            turned = self.cos[at], self.sin[at]
            y = layer.read(self.embed_tokens(ids.gather(1, at + 1)), state)
            new = layer.self_attn.pairs(y, *turned)
            k, v, seen = torch.cat((k, new[0]), 2), torch.cat((v, new[1]), 2), torch.cat((seen, own), -1)
            state = layer.rest(state, layer.self_attn.attend(layer.self_attn.queries(y, *turned), k, v, seen))
            logits.append(self.widened(self.lm_head(self.norm(state))))
        return torch.stack(logits, 2), None

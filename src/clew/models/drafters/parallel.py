"""The parallel drafter: one pass for a whole block over the target's tapped states (DFlash), a small sequential head
that corrects each token's law by the token before, and a head that foretells acceptance (DSpark, 2607.05147)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clew.models.drafters.layers import Block, Design, Norm, Trained, frozen, rotary


class MarkovHead(nn.Module):
    """Bias on the logits of a block's token k from the token before it (2607.05147, eq. 4 to 6).

    "vanilla" is a table of V x V of low rank, "gated" weighs the embedding by the block's state, "rnn" carries a state
    along the block.
    """

    def __init__(self, design: Design) -> None:
        super().__init__()
        r, self.kind = design.rank, design.head
        self.markov_w1 = nn.Embedding(design.vocabulary, r)
        self.markov_w2 = nn.Linear(r, design.vocabulary, bias=False)
        if self.kind == "gated":
            self.gate_proj = nn.Linear(design.width + r, r)
        elif self.kind == "rnn":
            self.joint_proj = nn.Linear(2 * r + design.width, 3 * r)
        nn.init.normal_(self.markov_w1.weight, std=r**-0.5)
        nn.init.zeros_(self.markov_w2.weight)  # training begins at the plain parallel drafter

    def step(self, before: Tensor, hidden: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Bias [..., V] from the embedding of the token before [..., r] and the block's state [..., width]."""
        if self.kind == "vanilla":
            return self.markov_w2(before), None
        if self.kind == "gated":
            gate = self.gate_proj(torch.cat((hidden, before), -1)).sigmoid()
            return self.markov_w2(gate * before), None
        state = torch.zeros_like(before) if state is None else state
        gate, new, out = self.joint_proj(torch.cat((state, before, hidden), -1)).chunk(3, -1)
        gate = gate.sigmoid()
        return self.markov_w2(out.tanh()), gate * state + (1 - gate) * new.tanh()

    def along(self, before: Tensor, hidden: Tensor) -> Tensor:
        """Biases [..., k, V] of a block whose tokens are known: ``before`` [..., k, r], ``hidden`` [..., k, width]."""
        if self.kind != "rnn":
            return self.step(before, hidden, None)[0]
        # The output of a step reads the state before it, as in the published head.
        state, found = None, []
        for e, h in zip(before.unbind(-2), hidden.unbind(-2), strict=True):
            bias, state = self.step(e, h, state)
            found.append(bias)
        return torch.stack(found, -2)


class ConfidenceHead(nn.Module):
    """Logit of the chance that token k is accepted given that those before it were: reads x_{k-1}, never x_k."""

    def __init__(self, into: int) -> None:
        super().__init__()
        self.proj = nn.Linear(into, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.proj(x).squeeze(-1)
        return out


class DSpark(Trained):
    """The trained part of a parallel drafter; without rank and confidence it is DFlash.

    Args:
        embed, head: the target's embedding and output matrices [V, width], copied and frozen.
    """

    def __init__(self, design: Design, embed: Tensor, head: Tensor) -> None:
        super().__init__()
        self.design = d = design
        self.embed_tokens, self.lm_head = frozen(embed, head)
        self.fc = nn.Linear(len(d.taps) * d.width, d.width, bias=False)
        self.hidden_norm, self.norm = Norm(d.width, d.eps), Norm(d.width, d.eps)
        self.layers: Any = nn.ModuleList(Block(d) for _ in range(d.layers))
        self.markov_head = MarkovHead(d) if d.rank else None
        self.confidence_head = ConfidenceHead(d.width + d.rank) if d.confidence else None
        self.cos: Tensor
        self.sin: Tensor
        for name, table in zip(("cos", "sin"), rotary(d), strict=True):
            self.register_buffer(name, table, persistent=False)

    def states(self, taps: Tensor, ids: Tensor, anchors: Tensor) -> Tensor:
        """States [B, A, block, width] of blocks behind anchors [B, A] (positions in each row).

        A block sees the taps of positions before its anchor and, in both directions, itself.

        Args:
            taps: [B, T, taps * width], outputs of the tapped layers. ids: [B, T or more].
        """
        d, (rows, length), many = self.design, taps.shape[:2], anchors.shape[1]
        within = torch.arange(d.block, device=ids.device)
        at = (anchors[..., None] + within).flatten(1)  # [B, A * block]
        given = torch.full((rows, many, d.block), d.mask, dtype=torch.long, device=ids.device)
        given[..., 0] = ids.gather(1, anchors)
        x = self.embed_tokens(given.flatten(1))
        context = self.hidden_norm(self.fc(taps))
        seen = torch.arange(length, device=ids.device) < anchors.repeat_interleave(d.block, 1)[..., None]
        number = torch.arange(many * d.block, device=ids.device) // d.block
        own = (number[:, None] == number).expand(rows, -1, -1)
        mask = torch.cat((seen, own), -1)[:, None]
        turned, before = (self.cos[at], self.sin[at]), (self.cos[:length], self.sin[:length])
        for layer in self.layers:
            x = layer(x, layer.self_attn.pairs(context, *before), turned, mask)
        return self.norm(x).view(rows, many, d.block, d.width)  # type: ignore[no-any-return]

    def forward(self, taps: Tensor, ids: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits [B, A, block, V] and confidence logits [B, A, block], the true tokens standing before each token."""
        hidden = self.states(taps, ids, anchors)
        logits = self.lm_head(hidden)
        within = torch.arange(self.design.block, device=ids.device)
        before = ids.gather(1, (anchors[..., None] + within).flatten(1)).view(*anchors.shape, -1)
        seen = hidden
        if self.markov_head is not None:
            embedded = self.markov_head.markov_w1(before)
            logits = logits + self.markov_head.along(embedded, hidden)
            seen = torch.cat((hidden, embedded), -1)
        return logits, None if self.confidence_head is None else self.confidence_head(seen)

"""Layers of drafters: Qwen3's decoder block, whose keys and values may come from another model's hidden states.

Names of modules and tensors are those of ``transformers`` and ``speculators``, which can read a saved folder.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clew.core.errors import BadInput

HEADS = ("vanilla", "gated", "rnn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Shape of a drafter.

    Attributes:
        kind: "dspark", "dflash" (the same without heads), "eagle3" or "independent".
        block: most tokens proposed.
        taps: the target's layers whose outputs are read, 0-based and rising; none where "independent".
        width, vocabulary: the target's. layers, heads, kv, dim, feed: the drafter's own.
        rank: of the Markov head; 0 for none. head: "vanilla", "gated" or "rnn".
        confidence: whether the chance of acceptance has a head of its own.
        mask: token id that stands where nothing is known yet.
        head_norm: whether each head of queries and keys has a norm, as Qwen3's. norm_first: whether the residual of
            Eagle's layer is the state behind its norm. Published drafters differ in both.
    """

    kind: str = "dspark"
    block: int = 7
    taps: tuple[int, ...] = ()
    width: int
    vocabulary: int
    layers: int = 2
    heads: int
    kv: int
    dim: int
    feed: int
    rank: int = 0
    head: str = "vanilla"
    confidence: bool = False
    mask: int = 0
    context: int = 4096
    theta: float = 10_000.0
    eps: float = 1e-6
    head_norm: bool = True
    norm_first: bool = False

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise BadInput(f"no sequential head is called {self.head!r}", remedy=f"Known: {', '.join(HEADS)}.")
        if self.block < 1 or self.layers < 1 or self.rank < 0 or self.heads % self.kv or self.dim % 2:
            raise BadInput(f"{self} is no drafter", remedy="block and layers >= 1, rank >= 0, heads a multiple of kv.")
        if list(self.taps) != sorted(set(self.taps)) or (not self.taps and self.kind != "independent"):
            raise BadInput(f"taps {self.taps} do not rise", remedy="Name layers of the target, from 0, rising.")

    def dict(self) -> dict[str, Any]:
        return asdict(self)


class Trained(nn.Module):
    """What every drafter's module has: its design, and the target's output matrix."""

    design: Design
    lm_head: nn.Linear


class Norm(nn.Module):
    """Root mean square norm (1910.07467)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotary(design: Design, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Cosines and sines of all positions and of a block past the last, [context + block, dim] each (2104.09864)."""
    steps = torch.arange(0, design.dim, 2, dtype=torch.float64) / design.dim
    angle = torch.outer(torch.arange(design.context + design.block, dtype=torch.float64), design.theta**-steps)
    angle = torch.cat((angle, angle), -1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def turn(z: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions of z [..., dim]."""
    low, high = z.chunk(2, -1)
    return z * cos + torch.cat((-high, low), -1) * sin


class Attention(nn.Module):
    """``into`` is the width that queries, keys and values are read from: the model's, twice that in Eagle's layer."""

    def __init__(self, design: Design, into: int = 0) -> None:
        super().__init__()
        d, into = design, into or design.width
        self.heads, self.kv, self.dim = d.heads, d.kv, d.dim
        self.q_proj = nn.Linear(into, d.heads * d.dim, bias=False)
        self.k_proj = nn.Linear(into, d.kv * d.dim, bias=False)
        self.v_proj = nn.Linear(into, d.kv * d.dim, bias=False)
        self.o_proj = nn.Linear(d.heads * d.dim, d.width, bias=False)
        self.q_norm, self.k_norm = (Norm(d.dim, d.eps) if d.head_norm else nn.Identity() for _ in range(2))

    def queries(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, heads, T, dim] of x [B, T, width]; cos, sin [B, T, dim] or [T, dim]."""
        q = self.q_norm(self.q_proj(x).unflatten(-1, (self.heads, self.dim)))
        return turn(q, cos.unsqueeze(-2), sin.unsqueeze(-2)).transpose(1, 2)

    def pairs(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, kv, T, dim]."""
        k = self.k_norm(self.k_proj(x).unflatten(-1, (self.kv, self.dim)))
        v = self.v_proj(x).unflatten(-1, (self.kv, self.dim))
        return turn(k, cos.unsqueeze(-2), sin.unsqueeze(-2)).transpose(1, 2), v.transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[B, T, width] of queries over keys; mask is additive or boolean, [B or 1, 1, T, keys]."""
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=self.heads != self.kv)
        out: Tensor = self.o_proj(a.transpose(1, 2).flatten(2))
        return out


class Feed(nn.Module):
    def __init__(self, design: Design) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(design.width, design.feed, bias=False)
        self.up_proj = nn.Linear(design.width, design.feed, bias=False)
        self.down_proj = nn.Linear(design.feed, design.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    """Pre-norm decoder block over a context that another model's states stand for (2607.05147, eq. 3)."""

    def __init__(self, design: Design) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(design), Feed(design)
        self.input_layernorm = Norm(design.width, design.eps)
        self.post_attention_layernorm = Norm(design.width, design.eps)

    def forward(self, x: Tensor, context: tuple[Tensor, Tensor], at: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """x [B, T, width]; context keys and values [B, kv, S, dim]; at: cos and sin of x; mask [B, 1, T, S + T]."""
        y = self.input_layernorm(x)
        k, v = self.self_attn.pairs(y, *at)
        k, v = torch.cat((context[0], k), 2), torch.cat((context[1], v), 2)
        x = x + self.self_attn.attend(self.self_attn.queries(y, *at), k, v, mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


def frozen(embed: Tensor, head: Tensor) -> tuple[nn.Embedding, nn.Linear]:
    """Copies of the target's embedding and output head, both [V, width], which are not trained."""
    table = nn.Embedding(embed.shape[0], embed.shape[1])
    table.weight = nn.Parameter(embed.detach().clone(), requires_grad=False)
    out = nn.Linear(head.shape[1], head.shape[0], bias=False)
    out.weight = nn.Parameter(head.detach().clone(), requires_grad=False)
    return table, out

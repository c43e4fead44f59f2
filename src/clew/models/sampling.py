"""The law a token is drawn from, and the draw: softmax with temperature, top-k and top-p, by inverse CDF.

Token t of a reply uses one counter-hashed uniform of (Call seed, t), so a draw never depends on the batch around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.core.keys import uniforms
from clew.core.values import Sampling
from clew.models.shaping import shape_of

LOWEST = -1e30  # stands for log 0 where it is multiplied by 0


@dataclass(frozen=True, slots=True)
class Laws:
    """Sampling settings of the rows of a batch; None where no row asks for it. Tensors are [n]."""

    temperature: Tensor | None = None  # 1 where greedy
    greedy: Tensor | None = None
    top_k: Tensor | None = None  # vocabulary size where not asked for
    top_p: Tensor | None = None
    min_p: Tensor | None = None  # 0 where not asked for

    @classmethod
    def of(cls, asked: Sequence[Sampling], device: torch.device | str = "cpu") -> Laws:
        """Gather settings of several requests."""
        first = asked[0]
        least = [shape_of(a.shape).min_p for a in asked]
        same = all(a is first or a[1:4] == first[1:4] for a in asked)
        if same and first[1:4] == (1.0, 1.0, 0) and not any(least):
            return _PLAIN
        heat = torch.tensor([a.temperature for a in asked], dtype=torch.float64, device=device)
        top_k = torch.tensor([a.top_k or 2**31 for a in asked], device=device)
        top_p = torch.tensor([a.top_p for a in asked], dtype=torch.float64, device=device)
        greedy = heat == 0
        return cls(
            torch.where(greedy, 1.0, heat) if bool((heat != 1).any()) else None,
            greedy if bool(greedy.any()) else None,
            top_k if bool((top_k < 2**31).any()) else None,
            top_p if bool((top_p < 1).any()) else None,
            torch.tensor(least, dtype=torch.float64, device=device) if any(least) else None,
        )

    def take(self, index: npt.NDArray[np.int64]) -> Laws:
        """The laws of rows ``index``, which may repeat."""
        if self is _PLAIN:
            return self
        parts = (self.temperature, self.greedy, self.top_k, self.top_p, self.min_p)
        where = torch.from_numpy(index)
        return Laws(*(None if part is None else part[where.to(part.device)] for part in parts))


_PLAIN = Laws()


def noise(seeds: npt.NDArray[np.uint64], start: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.float64]:
    """Uniforms [n, count] in [0, 1 - 2^-40) for tokens ``start`` to ``start + count`` of each reply."""
    offsets: Any = start[:, None] + np.arange(count, dtype=np.uint64)
    # Short of 1, so that u times the sum of the probabilities stays below that sum after rounding.
    return uniforms(seeds[:, None], offsets) * (1 - 2.0**-40)


def in_force(logits: Tensor, laws: Laws) -> Tensor:
    """Log-probabilities (nats) of the distribution in force, [n, V]; -inf where it puts nothing.

    Temperature, then min-p (2407.01082), then top-k, then top-p on what is left, renormalised; greedy is a point mass.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if laws.temperature is not None:
        logits = logits / laws.temperature[:, None].to(logits.dtype)
    if laws.min_p is not None:
        edge = logits.amax(-1, keepdim=True) + laws.min_p.log().to(logits.dtype)[:, None]
        logits = logits.masked_fill(logits < edge, float("-inf"))
    if laws.top_k is not None or laws.top_p is not None:
        logits = logits.masked_fill(~_kept(logits, laws), float("-inf"))
    if laws.greedy is not None:
        best = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, logits.argmax(-1, keepdim=True), True)
        logits = logits.masked_fill(laws.greedy[:, None] & ~best, float("-inf"))
    return torch.log_softmax(logits, -1)


def _kept(logits: Tensor, laws: Laws) -> Tensor:
    ordered, index = torch.sort(logits, dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    keep = torch.ones_like(logits, dtype=torch.bool)
    if laws.top_k is not None:
        keep = rank < laws.top_k[:, None]
        ordered = ordered.masked_fill(~keep, float("-inf"))
    if laws.top_p is not None:
        p = ordered.double().softmax(-1)
        keep = keep & ((p.cumsum(-1) - p < laws.top_p[:, None]) | (rank == 0))
    return torch.zeros_like(keep).scatter_(-1, index, keep)


class Drawn(NamedTuple):
    """A token for each of n rows, and what is recorded of the distribution in force, in nats."""

    tokens: Tensor  # int64 [n, 1]
    logprobs: Tensor  # [n, 1], of these tokens
    negentropies: Tensor  # [n]
    law: Tensor  # [n, V], log-probabilities, at most LOWEST where it puts nothing


@torch.inference_mode()
def draw(logits: Tensor, laws: Laws, u: Tensor, masked: bool = False) -> Drawn:
    """Draw one token for each row. What it gives back is as it comes: every operation counts at every token.

    Args:
        logits: [n, V], float32 or float64.
        u: float64 [n, 1], uniforms from ``noise``.
        masked: some logits are -inf.
    """
    logp = in_force(logits, laws)
    p = logp.exp()
    cdf = p.cumsum(-1, dtype=torch.float64)
    # Clamped for a row of NaN, from which nothing lawful can be drawn: its logprob is NaN.
    tokens = torch.searchsorted(cdf, u * cdf[:, -1:], right=True).clamp_(max=logits.shape[-1] - 1)
    chosen = logp.gather(-1, tokens)
    if masked or laws is not _PLAIN:
        logp = logp.clamp(min=LOWEST)
    return Drawn(tokens, chosen, torch.linalg.vecdot(p, logp), logp)

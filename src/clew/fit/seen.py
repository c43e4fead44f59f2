"""What a step has seen of sampler and trainer: their ratio, and how far they are from each other before the update.

The trainer fills it micro-batch by micro-batch. Over several ranks the figures are those of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from clew.fit.collate import Micro
from clew.fit.sharding.ranks import Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one step did. ``ratio`` describes exp(trainer - sampler logprob) over the sampled tokens, before the update:
    mean, min, max, and the share outside [0.8, 1.25]. ``mismatch`` is max |sampler - trainer| in nats over tokens that
    the very weights being trained have sampled, None if there were none.
    """

    step: int
    version: int  # of the weights after the step
    loss: dict[str, float]
    grad_norm: float  # before clipping
    ratio: dict[str, float] = field(default_factory=dict)
    mismatch: float | None = None
    rows: int = 0
    tokens: int = 0  # that passed the model, padding excluded
    trained: int = 0  # that some component applied to
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def metrics(self) -> dict[str, float]:
        """Flat numbers for a tracker."""
        out = {f"loss/{name}": value for name, value in self.loss.items()}
        out |= {f"ratio/{name}": value for name, value in self.ratio.items()}
        if self.mismatch is not None:
            out["mismatch"] = self.mismatch
        for name in ("grad_norm", "rows", "tokens", "trained", "seconds", "cpu_seconds"):
            out[name] = float(getattr(self, name))
        return out


class Seen:
    """Ratio and mismatch, gathered over micro-batches of all ranks."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.ratios: list[Tensor] = []
        self.gaps: list[Tensor] = []
        self.trained = 0

    def add(self, micro: Micro, logp: Tensor, agree: bool = True) -> None:
        self.trained += len(micro.at)
        gap = (logp - micro.old)[micro.known]
        if len(gap):
            self.ratios.append(gap.exp())
        if agree:
            self.agrees(micro, logp)

    def agrees(self, micro: Micro, logp: Tensor) -> None:
        """Note how far the sampler is from the trainer where the present weights have sampled."""
        if bool(micro.current.any()):
            self.gaps.append((logp - micro.old)[micro.current].abs().max())

    def mismatch(self) -> float | None:
        return self.ranks.largest(float(torch.stack(self.gaps).max()) if self.gaps else None)

    def ratio(self) -> dict[str, float]:
        r = self.ranks.joined(torch.cat(self.ratios) if self.ratios else torch.empty(0))
        if not len(r):
            return {}
        outside = ((r < 0.8) | (r > 1.25)).float().mean()
        return {"mean": float(r.mean()), "min": float(r.min()), "max": float(r.max()), "outside": float(outside)}

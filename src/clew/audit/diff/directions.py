"""Directions that a feature must beat: what a vector does that was not found by a crosscoder.

All are float [width] in the states of model A, and are brought to the norm of the feature that they are compared with.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from clew.core.keys import derive


def matched(vector: Tensor, like: Tensor) -> Tensor:
    """The vector at the norm of another."""
    made: Tensor = vector * (like.norm() / vector.norm().clamp(min=1e-12))
    return made


def at_random(width: int, count: int, seed: int) -> Tensor:
    """Directions drawn evenly, [count, width]."""
    draw = torch.Generator().manual_seed(derive(seed, "random directions") % (1 << 63))
    return torch.randn(count, width, generator=draw)


def mean_difference(states: Tensor, shown: Tensor) -> Tensor:
    """Mean state [n, width] where the behaviour was shown, less the mean where not."""
    return states[shown].mean(0) - states[~shown].mean(0)


def probe(states: Tensor, shown: Tensor, penalty: float = 1e-2) -> Tensor:
    """Direction of a logistic regression of ``shown`` on states [n, width], in the states' own scale; fitted by L-BFGS
    on standardised states with a ridge penalty."""
    mean, spread = states.mean(0), states.std(0).clamp(min=1e-6)
    x, y = (states - mean) / spread, shown.to(states.dtype)
    weight = torch.zeros(x.shape[1] + 1, requires_grad=True)
    solver = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> float:
        solver.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(x @ weight[:-1] + weight[-1], y)
        value = value + penalty * weight[:-1].square().sum()
        torch.autograd.backward(value)
        return float(value.detach())

    solver.step(loss)  # type: ignore[no-untyped-call]
    return weight[:-1].detach() / spread


def main_difference(a: Tensor, b: Tensor, seed: int = 0) -> Tensor:
    """First principal component of h_A - h_B over rows [n, width], turned towards the mean difference."""
    gap = a - b
    centred = gap - gap.mean(0)
    rng = np.random.default_rng(derive(seed, "principal component"))
    start = torch.from_numpy(rng.standard_normal(gap.shape[1]).astype(np.float32))
    square = centred.t() @ centred
    _, vectors = torch.linalg.eigh(square)
    top = vectors[:, -1]
    side = float(top @ gap.mean(0)) or float(top @ start)
    turned: Tensor = top if side > 0 else -top
    return turned

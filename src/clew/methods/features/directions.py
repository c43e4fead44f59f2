"""Directions that a feature must beat: what a vector does that was not found by a crosscoder.

All are float [width] in the states of model A, and are brought to the norm of the feature that they are compared with.
Most are read off states. ``change`` reads weights alone: the left singular vectors of W_A - W_B, the baseline where A
is B with a LoRA adapter, or a fine-tuning that changed few matrices. Nothing here changes a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from clew.core.keys import derive
from clew.models.engine.taps.blocks import blocks_of

# The last matrix of attention and of feed-forward, by the names that decoders of transformers give them.
WRITERS = frozenset({"o_proj", "out_proj", "down_proj", "c_proj", "dense", "dense_4h_to_h", "fc2", "wo", "w2"})
LEAST = 0.05  # share of the change of weights below which a direction is not tried


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


# ---- of weights --------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """Directions float [n, width] of norm 1, the strongest first; the share of the squared change that each holds; how
    many matrices changed, of how many that were compared."""

    directions: Tensor
    shares: list[float]
    changed: int
    compared: int


@torch.no_grad()
def change(a: nn.Module, b: nn.Module, layer: int, width: int, most: int = 3) -> Change:
    """The top singular directions of what A's weights write beyond B's, blocks 0 to ``layer``.

    Matrices weigh as they are: nothing says how large their inputs are. The sign of a direction means nothing.
    """
    square, changed, compared = torch.zeros(width, width), 0, 0
    theirs = dict(_writers(b, layer, width))
    for name, mine in _writers(a, layer, width):
        other = theirs.get(name)
        if other is None:
            continue
        own, base = _weight(mine).float(), _weight(other).float()
        if own.shape != base.shape:
            continue
        gap = own - base.to(own.device)
        compared += 1
        if bool(gap.any()):
            changed += 1
            square += (gap @ gap.t()).cpu()
    whole = float(square.trace())
    if not whole:
        return Change(torch.zeros(0, width), [], changed, compared)
    values, vectors = torch.linalg.eigh(square)
    shares = (values.flip(0)[:most] / whole).tolist()
    count = sum(share >= LEAST for share in shares)
    return Change(vectors.flip(1)[:, :count].t().contiguous(), shares[:count], changed, compared)


def _writers(module: nn.Module, layer: int, width: int) -> Iterator[tuple[str, nn.Module]]:
    """Names and modules of the matrices that write into the residual stream."""
    _, blocks = blocks_of(module)
    for number in range(min(layer + 1, len(blocks))):
        for name, part in blocks[number].named_modules():
            if name.rpartition(".")[2] in WRITERS and isinstance(getattr(part, "weight", None), Tensor):
                weight = _weight(part)
                if weight.ndim == 2 and len(weight) == width:
                    yield f"{number}.{name}", part


def _weight(part: nn.Module) -> Tensor:
    """The weight [outputs, inputs] of a linear layer, with its LoRA adapters added where it has any."""
    layer: Any = part
    base = layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer
    weight: Tensor = base.weight
    for adapter in getattr(layer, "active_adapters", ()):
        weight = weight + layer.get_delta_weight(adapter)
    return weight.t() if type(base).__name__ == "Conv1D" else weight  # GPT-2 keeps them the other way round

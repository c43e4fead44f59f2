"""Directions that a feature must beat: what a vector does that was not found by a crosscoder.

All are float [width] in the states of model A, and are brought to the norm of the feature that they are compared with.
Most are read off states. ``change`` reads weights alone: the left singular vectors of W_A - W_B, the baseline where A
is B with a LoRA adapter, or a fine-tuning that changed few matrices. Nothing here changes a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from clew.core.keys import derive
from clew.fit import adapters
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
    with _plain(a), _plain(b):
        theirs = dict(_writers(b, layer, width))
        for name, mine in _writers(a, layer, width):
            other = theirs.get(name)
            if other is None or other.shape != mine.shape:
                continue
            compared += 1
            gap = mine.float() - other.to(mine.device).float()
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


def _writers(module: nn.Module, layer: int, width: int) -> Iterator[tuple[str, Tensor]]:
    """Names and weights [width, inputs] of the matrices that write into the residual stream."""
    _, blocks = blocks_of(module)
    for number in range(min(layer + 1, len(blocks))):
        for name, part in blocks[number].named_modules():
            weight = getattr(part, "weight", None)
            if name.rpartition(".")[2] not in WRITERS or not isinstance(weight, Tensor) or weight.ndim != 2:
                continue
            if type(part).__name__ == "Conv1D":  # GPT-2 keeps them the other way round
                weight = weight.t()
            if len(weight) == width:
                yield f"{number}.{name}", weight


@contextmanager
def _plain(module: nn.Module) -> Iterator[None]:
    """The module with its adapters, if it has any, added to its weights."""
    if any("lora_" in name for name, _ in module.named_parameters()):
        with adapters.merged(module):
            yield
    else:
        yield

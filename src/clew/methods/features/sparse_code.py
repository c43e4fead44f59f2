"""The two products of a sparse dictionary, computed at the active latents alone, with gradients.

``Crosscoder`` calls them. Of n rows and D latents only some k a row are active, so the decoder, its gradient and the
gradient of the encoder are sums over n * k places instead of products of size n * D; only the encoder's forward is
dense. The figures are those of the dense products, up to rounding (a test compares them).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

ROOM = 1 << 22  # numbers gathered at once, so that they stay near the processor
DENSE = 64  # one number gathered costs as much as so many multiplied (measured on x86-64)


class Active(NamedTuple):
    """Which latents are active in n rows: ``rows`` (rising) and ``latents``, int64 [places], with their ``values``,
    float [places]. A value of 0 is a place that was kept free, as where fewer than k latents are above 0."""

    rows: Tensor
    latents: Tensor
    values: Tensor
    n: int

    def dense(self, width: int) -> Tensor:
        """The values as float [n, width]."""
        out = self.values.new_zeros(self.n, width)
        return out.index_put((self.rows, self.latents), self.values, accumulate=True)


def weighed_sum(into: Tensor, out: Tensor, values: Tensor, table: Tensor, count: int) -> Tensor:
    """[count, width]: row ``into[i]`` gets ``values[i] * table[out[i]]``; ``into`` rises."""
    starts = torch.searchsorted(into, torch.arange(count, device=into.device))
    return functional.embedding_bag(out, table, starts, mode="sum", per_sample_weights=values)


def dots(rows: Tensor, latents: Tensor, x: Tensor, table: Tensor) -> Tensor:
    """x[rows[i]] . table[latents[i]] for each place: by the whole product where most of it is wanted."""
    if len(table) * len(x) <= DENSE * len(rows):
        return (x @ table.t())[rows, latents]
    size = max(1, ROOM // x.shape[1])
    parts = zip(torch.split(rows, size), torch.split(latents, size), strict=True)
    return torch.cat([(x[r] * table[c]).sum(1) for r, c in parts])


class _Encoded(torch.autograd.Function):
    """Pre-activations x . W[latent] + b[latent] at the places; ``found`` holds them, computed before."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, latents: Tensor, found: Tensor) -> Any:
        ctx.save_for_backward(x, rows, latents)
        ctx.count = len(weight)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        x, rows, latents = ctx.saved_tensors
        order = latents.argsort(stable=True)
        into, part = latents[order], grad[order]
        weight = weighed_sum(into, rows[order], part, x, ctx.count)
        bias = grad.new_zeros(ctx.count).index_add(0, latents, grad)
        return None, weight, bias, None, None, None


class _Decoded(torch.autograd.Function):
    """Sum over the places of a row of value * W[latent]."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, rows: Tensor, latents: Tensor, n: int) -> Any:
        ctx.save_for_backward(values, weight, rows, latents)
        return weighed_sum(rows, latents, values, weight, n)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        grad = grads[0].contiguous()
        values, weight, rows, latents = ctx.saved_tensors
        order = latents.argsort(stable=True)
        table = weighed_sum(latents[order], rows[order], values[order], grad, len(weight))
        return dots(rows, latents, grad, weight), table, None, None, None


def encoded(x: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, latents: Tensor, found: Tensor) -> Tensor:
    """The pre-activations ``found`` [places] of rows x [n, width] with gradients to ``weight`` [D, width] and ``bias``
    [D]; none to x."""
    made: Tensor = _Encoded.apply(x, weight, bias, rows, latents, found)  # type: ignore[no-untyped-call]
    return made


def decoded(active: Active, weight: Tensor) -> Tensor:
    """Rows [n, width] as sums of ``weight`` [D, width] at the active places, with gradients to both."""
    made: Tensor = _Decoded.apply(active.values, weight, active.rows, active.latents, active.n)  # type: ignore[no-untyped-call]
    return made

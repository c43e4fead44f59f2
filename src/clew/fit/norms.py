"""RMSNorm with a backward pass of its own: the usual one runs ten small kernels, on a CPU a tenth of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx


class RMSNorm(torch.autograd.Function):
    """y = w x / rms(x) with rms(x) = sqrt(mean(x^2) + eps) over the last axis (arXiv 1910.07467 eq. 4).

    With n = x / rms and g the gradient of y: the gradient of x is (w g - n mean(w g n)) / rms, that of w is sum(g n).
    """

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
        inverse = square.div_(x.shape[-1]).add_(eps).rsqrt_()
        normal = x * inverse
        ctx.save_for_backward(normal, weight, inverse)
        out: Tensor = normal * weight
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, weight, inverse = ctx.saved_tensors
        product = grad * normal
        flat = product.flatten(0, -2)
        mean = torch.mv(flat, weight).view(inverse.shape).div_(-normal.shape[-1])
        return torch.addcmul(grad * weight, normal, mean).mul_(inverse), flat.sum(0), None


def _forward(self: nn.Module, x: Tensor) -> Tensor:
    return RMSNorm.apply(x, self.weight, self.variance_epsilon)  # type: ignore[no-any-return,no-untyped-call]


def find(module: nn.Module) -> list[nn.Module]:
    """The RMSNorm layers of a float32 CPU module that this one can stand in for: tried on numbers, not on names."""
    found = []
    for layer in module.modules():
        weight, eps = getattr(layer, "weight", None), getattr(layer, "variance_epsilon", None)
        if isinstance(weight, Tensor) and isinstance(eps, float) and weight.ndim == 1 and weight.device.type == "cpu":
            x = torch.linspace(-2, 3, weight.shape[0])[None]
            with torch.no_grad():
                if weight.dtype == x.dtype and torch.allclose(layer(x), _forward(layer, x), rtol=1e-5, atol=1e-6):
                    found.append(layer)
    return found


@contextmanager
def swapped(layers: list[nn.Module]) -> Iterator[None]:
    """Inside, the layers run as RMSNorm above."""
    for layer in layers:
        layer.forward = MethodType(_forward, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward

"""One scale for each singular value of some matrices of a model: few numbers that turn what its last blocks say.

``M' = U diag(s (1 + d)) V^T * sum(s) / sum(s (1 + d))``, with the offsets ``d`` and the singular values ``s`` of M: the
sum of the singular values stays (the form of TRINITY's released router, spec of arXiv 2606.21228, 3.1). A router's
backbone applies them in memory, ``clew.fit.scaled_head`` trains them. A file of weights must never be written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.core.values import F32
from clew.models.engine.forwards.weights import unwrap
from clew.models.engine.taps.blocks import blocks_of, quantised

LEAST = 0.05  # of 1 + d: a singular value is never turned over, nor lost


class Parts(NamedTuple):
    """A matrix [out, in] taken apart: u [out, r], s [r], v [r, in]."""

    u: Tensor
    s: Tensor
    v: Tensor

    @classmethod
    def of(cls, matrix: Tensor) -> Parts:
        """In float32 at least, whatever the matrix is in."""
        return cls(*torch.linalg.svd(matrix.detach().float(), full_matrices=False))

    def scaled(self, offsets: Tensor) -> Tensor:
        """The matrix with its singular values scaled by 1 + offsets [r], their sum kept."""
        s = self.s * (1 + offsets).clamp_min(LEAST)
        return (self.u * (s * (self.s.sum() / s.sum()))) @ self.v


def chosen(module: nn.Module, block: int) -> list[str]:
    """Names of the matrices that get scales: the linear layers of one block, counted from 0.

    Raises:
        BadInput: quantised weights, a model whose blocks cannot be found, or a block without a linear layer.
    """
    if how := quantised(module):
        raise BadInput(
            f"weights in {how} have no singular values to scale", remedy="Use weights that are not quantised."
        )
    name, found = blocks_of(module)
    out = [
        f"{name}.{block}.{part}.weight"
        for part, layer in found[block].named_modules()
        if isinstance(layer, nn.Linear) and min(layer.weight.shape) > 1
    ]
    if not out:
        raise BadInput(f"block {block} of the backbone has no linear layer", remedy="Leave out --scales.")
    return out


def matrices(module: nn.Module, names: Sequence[str]) -> dict[str, nn.Parameter]:
    """The matrices of these names.

    Raises:
        BadInput: one of them is no matrix of the module.
    """
    known = dict(unwrap(module).named_parameters())
    for name in names:
        if name not in known or known[name].ndim != 2:
            raise BadInput(f"the backbone has no matrix {name[:80]!r}", remedy="Fit the router anew for this backbone.")
    return {name: known[name] for name in names}


@torch.no_grad()
def apply(module: nn.Module, scales: Mapping[str, F32]) -> None:
    """Change a module's matrices in place; the same numbers give the same matrices each time.

    Args:
        scales: offsets float32 [r] by the name of a matrix.

    Raises:
        BadInput: a matrix is not there, or has another number of singular values.
    """
    for name, matrix in matrices(module, list(scales)).items():
        offsets = torch.from_numpy(scales[name].copy()).to(matrix.device)
        if offsets.shape != (min(matrix.shape),):
            raise BadInput(
                f"{name[:80]} has {min(matrix.shape)} singular values, and its scales are {len(offsets)}",
                remedy="Fit the router anew for this backbone.",
            )
        matrix.copy_(Parts.of(matrix).scaled(offsets))

"""``ShardedPolicy``: what a trainer over several ranks trains, beside the whole model that serves on the first rank."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor


class Served(Protocol):
    """A ``Local``, as far as it is needed here."""

    ref: str
    version: int
    module: nn.Module

    def take_weights(self, weights: Mapping[str, torch.Tensor], version: int) -> None: ...
    def save(self, path: Path) -> None: ...
    def guide(self, grammar: str) -> Any: ...


class ShardedPolicy:
    """A Policy whose ``module`` is a copy of the served model's, to be cut over the ranks.

    ``publish`` and ``save`` must be called by every rank: the whole weights come together on the first, whose model
    then serves them. On the others ``served`` keeps the weights it began with, and is of no use.
    """

    def __init__(self, served: Served) -> None:
        self.served, self.ref, self.version = served, served.ref, served.version
        self.module = copy.deepcopy(served.module)
        self.guide = served.guide

    def publish(self, version: int | None = None) -> int:
        """Serve the present weights on the first rank, as this version or the next."""
        self.version = self.version + 1 if version is None else version
        weights = {name: whole(p) for name, p in self.module.named_parameters() if p.requires_grad}
        if not dist.is_initialized() or dist.get_rank() == 0:
            self.served.take_weights(weights, self.version)
        return self.version

    def save(self, path: Path) -> None:
        """Write the model folder that ``Local.save`` does, by the first rank."""
        if not dist.is_initialized() or dist.get_rank() == 0:
            self.served.save(path)


def whole(weight: torch.Tensor) -> torch.Tensor:
    """A weight on the CPU, put together where it is cut; every rank must call it."""
    found = weight.detach()
    return (found.full_tensor() if isinstance(found, DTensor) else found).cpu()

"""A module cut among ranks by FSDP2 (``torch.distributed.fsdp.fully_shard``), and its weights gathered again.

The trainer cuts its module here before it builds an optimiser, and hands new weights to the served model by
``Serving.publish``. Micro-batches are dealt out here too. Nothing here may be skipped by one rank: each gather and each
pass through a cut module is collective.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.fit.sharding.ranks import Group, Ranks

if TYPE_CHECKING:
    from clew.core.protocols import Policy

T = TypeVar("T")
SCORED = "_clew_scored"  # the module's method by which its scorer is called


def cut(module: nn.Module, ranks: Group) -> None:
    """Cut a module's parameters among the ranks, in place: each block by itself, what is left together.

    Blocks are the modules that Hugging Face says must not be split (``_no_split_modules``). A parameter becomes a
    DTensor of which a rank holds rows; a block's whole weights exist only while it computes.

    Raises:
        BadInput: the module is cut already.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if isinstance(module, FSDPModule):
        raise BadInput("the model is cut among ranks already", remedy="Give the trainer the whole model and its ranks.")
    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    names = set(getattr(module, "_no_split_modules", None) or ())
    for block in [part for part in module.modules() if type(part).__name__ in names]:
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)


def entered(module: nn.Module, scorer: Any) -> Any:
    """A scorer of a cut module, to be called in its place.

    A scorer calls the module's parts, so that the root's own hook, which gathers embeddings and head, never runs. As a
    method of the module that FSDP knows of, it is a forward pass like any other.
    """
    from torch.distributed.fsdp import register_fsdp_forward_method

    setattr(module, SCORED, scorer.__call__)
    register_fsdp_forward_method(module, SCORED)
    return getattr(module, SCORED)


def check_whole(named: Sequence[tuple[str, nn.Parameter]], module: nn.Module) -> None:
    """Refuse parameters of a cut module that are gathered at the moment: a step of an optimiser would be lost.

    Raises:
        BadInput: some of these are plain tensors, though the module is cut.
    """
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    plain = [name for name, parameter in named if not isinstance(parameter, DTensor)]
    if plain and any(isinstance(part, FSDPModule) for part in module.modules()):
        raise BadInput(
            f"the optimiser is built too late: of {len(named)} parameters {len(plain)} are plain tensors, as "
            f"{plain[0]}, because the sharded module has made a forward pass already",
            remedy="Build the trainer, and any optimiser, directly after sharding, or call module.reshard() before.",
        )


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its rows, on every rank; collective where it is cut."""
    gathered: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return gathered


def put(parameter: Tensor, value: Tensor) -> None:
    """Copy a whole tensor, which every rank holds, into a parameter: of a cut one this rank's rows."""
    with torch.no_grad():
        parameter.copy_(like(value, parameter))


def like(value: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor, which every rank holds, cut as a parameter is; nothing is sent."""
    cuts: Any = parameter
    if not hasattr(cuts, "device_mesh"):
        return value
    from torch.distributed.tensor import distribute_tensor

    here = value.to(cuts.device_mesh.device_type)
    return distribute_tensor(here, cuts.device_mesh, cuts.placements, src_data_rank=None)


def dealt(parts: list[T], blank: T, ranks: Ranks) -> list[T]:
    """The micro-batches of this rank, as many as of any other: where there are too few, ``blank`` ones fill up."""
    mine = parts[ranks.rank :: ranks.world]
    return mine + [blank] * (-(-len(parts) // ranks.world) - len(mine))


class Serving:
    """The weights that a trainer changes, and the model that serves them.

    Args:
        model: its ``module`` is what is trained, unless a copy is.
        ranks: of several, rank 0 trains a copy, so that its model stays whole and can sample; the others cut their
            model's own module, which then serves nobody.
        masters: train a float32 copy, from which the served weights of lower precision are rounded.
    """

    def __init__(self, model: Policy, ranks: Ranks, masters: bool = False) -> None:
        served: Any = model
        self.model, self.ranks = model, ranks
        self.served: nn.Module = served.module
        self.copied = masters or (ranks.world > 1 and ranks.leads)
        self.trained: nn.Module = copy.deepcopy(self.served) if self.copied else self.served
        if masters:
            self.trained.float()
        if isinstance(ranks, Group) and ranks.world > 1:
            self.trained.to(ranks.device)

    @torch.no_grad()
    def publish(self, version: int | None = None) -> int:
        """Serve the trained weights as this version, or as the next; collective. Returns the version."""
        if self.copied or self.ranks.world > 1:
            into = dict(self.served.named_parameters()) if self.copied else {}
            for name, parameter in self.trained.named_parameters():
                if parameter.requires_grad:
                    gathered = whole(parameter.detach())
                    if name in into:
                        into[name].copy_(gathered)
        if self.ranks.leads:
            return self.model.publish(version)
        follower: Any = self.model  # holds rows of weights only: it counts versions, and serves none
        follower.version = self.model.version + 1 if version is None else version
        return self.model.version

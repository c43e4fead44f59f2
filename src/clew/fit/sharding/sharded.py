"""``Sharded``: the ranks of one training, each of which holds a part of every weight (torch's FSDP2).

``Trainer(..., ranks=Sharded())`` uses it in each process that torchrun has started. Every rank must be given the same
rows in the same order. Nothing here may run on one rank alone: the others would wait for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.fit.collate import Micro
from clew.fit.forward import Scored, Scorer

METHOD = "clew_scored"  # on the module: the scorer enters by it, so that FSDP gathers the weights of its root first


class Sharded:
    """The ranks of the default process group, which is begun here where torchrun's variables name one.

    Args:
        checkpointing: compute the activations of each block again in the backward pass, which saves their memory.

    Raises:
        BadInput: no group of processes was started, or the ranks have other versions of torch or Clew.
    """

    def __init__(self, *, checkpointing: bool = False) -> None:
        if not dist.is_initialized():
            if not dist.is_torchelastic_launched():
                remedy = "Start it with torchrun: torchrun --nproc-per-node 2 SCRIPT."
                raise BadInput("no group of processes trains together here", remedy=remedy)
            if torch.cuda.is_available():
                torch.cuda.set_device(dist.get_node_local_rank())
            dist.init_process_group()
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        self.factor, self.checkpointing = float(self.world), checkpointing
        self._agree("versions", {name: version(name) for name in ("torch", "clew")})

    def cut(self, module: nn.Module, scorer: Scorer) -> None:
        """Cut every weight over the ranks; afterwards the module's parameters are DTensors.

        Raises:
            BadInput: the ranks hold different weights or modules.
        """
        shapes = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
        first = [p.detach().flatten()[:8].tolist() for p in module.parameters()]
        self._agree("weights", hashlib.sha256(repr((shapes, first)).encode()).hexdigest())
        device = next(module.parameters()).device.type
        mesh = init_device_mesh(device, (self.world,))
        for block in blocks(module):
            if self.checkpointing:
                _again(block)
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)
        plain = scorer.scored
        setattr(module, METHOD, MethodType(lambda _, *given: plain(*given), module))
        register_fsdp_forward_method(module, METHOD)

        def entered(*given: Any) -> Scored:
            found: Scored = getattr(module, METHOD)(*given)
            return found

        scorer.scored = entered  # type: ignore[method-assign, assignment]

    def check(self, rows: Sequence[LossRow], parameters: Sequence[nn.Parameter], module: nn.Module) -> None:
        """Compare what the ranks are about to train on, and what the optimiser holds.

        Raises:
            BadInput: on every rank, where one has other rows; or the optimiser holds parameters that the module has no
                more, which happens to one that is built before the weights are cut, or after a forward pass.
        """
        told = hashlib.sha256()
        for row in rows:
            told.update(row.ids.tobytes() + row.sampled.tobytes() + repr(sorted(row.weights)).encode())
            told.update(b"".join(row.weights[name].tobytes() for name in sorted(row.weights)))
        self._agree("rows", told.hexdigest())
        held = {id(p) for p in module.parameters()}
        if any(id(p) not in held or not isinstance(p, DTensor) for p in parameters):
            raise BadInput(
                "the optimiser holds parameters that the sharded module has no more",
                remedy="Build the optimiser after the module is sharded and before any forward pass; Trainer does.",
            )

    def share(self, micros: Sequence[Micro]) -> list[tuple[Micro, bool]]:
        """Every ``world``-th micro-batch; where these are fewer than another rank's, one more that does not count."""
        most = -(-len(micros) // self.world)
        mine = list(micros[self.rank :: self.world])
        return [(micro, True) for micro in mine] + [(micros[0], False)] * (most - len(mine))

    def total(self, value: float) -> float:
        return float(sum(self._all(value)))

    def most(self, value: float | None) -> float | None:
        return max((one for one in self._all(value) if one is not None), default=None)

    def all(self, values: list[Tensor]) -> list[Tensor]:
        mine = torch.cat(values).cpu() if values else torch.zeros(0)
        return [one for one in self._all(mine) if len(one)]

    def _all(self, value: Any) -> list[Any]:
        out = [None] * self.world
        dist.all_gather_object(out, value)
        return out

    def _agree(self, what: str, mine: object) -> None:
        found = self._all(mine)
        other = [rank for rank, one in enumerate(found) if one != found[0]]
        if other:
            told = f"rank {other[0]} has other {what} than rank 0"
            detail = f": {found[other[0]]} and {found[0]}" if what == "versions" else ""
            raise BadInput(told + detail, remedy="Start all ranks from the same line, files and seeds.")


def blocks(module: nn.Module) -> list[nn.Module]:
    """The repeated blocks of a causal LM: the members of its longest list of modules."""
    lists = [list(part) for part in module.modules() if isinstance(part, nn.ModuleList)]
    return max(lists, key=len, default=[])


def _again(block: nn.Module) -> None:
    plain = block.forward

    def forward(self: nn.Module, *given: Any, **named: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(plain, *given, use_reentrant=False, **named)

    block.forward = MethodType(forward, block)

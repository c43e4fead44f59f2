"""Optimisers: AdamW, or Muon for the hidden matrices with AdamW for the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from clew.core.errors import BadInput
from clew.fit.sharding.shards import check_whole
from clew.fit.sharding.whole_muon import WholeMuon

Cut = Callable[[torch.optim.Optimizer, dict[str, Any]], dict[str, Any]]


class Optimiser:
    """One or two torch optimisers behind one step; ``scale`` multiplies every learning rate (for schedules)."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        self.base = [[group["lr"] for group in part.param_groups] for part in parts]

    def step(self, scale: float = 1.0) -> None:
        for part, rates in zip(self.parts, self.base, strict=True):
            for group, rate in zip(part.param_groups, rates, strict=True):
                group["lr"] = rate * scale
            part.step()

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def state_bytes(self) -> int:
        """Memory of the states once a step is taken: two moments and a count of AdamW, one of Muon, on this rank."""
        total = 0
        for part in self.parts:
            moments, count = (2, 4) if isinstance(part, torch.optim.AdamW) else (1, 0)
            for p in (p for group in part.param_groups for p in group["params"]):
                here = p.to_local() if hasattr(p, "to_local") else p
                total += moments * here.numel() * here.element_size() + count
        return total

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, state: list[dict[str, Any]], cut: Cut | None = None) -> None:
        """``cut`` cuts what one process saved as the parameters of a part are cut among ranks."""
        if len(state) != len(self.parts):
            raise BadInput(
                f"the checkpoint holds {len(state)} optimiser states, this trainer has {len(self.parts)}",
                remedy="Build the trainer with the settings that it was saved with.",
            )
        for part, saved in zip(self.parts, state, strict=True):
            part.load_state_dict(saved if cut is None else cut(part, saved))


def build(
    module: nn.Module,
    name: str = "adamw",
    lr: float = 7e-4,
    betas: tuple[float, float] = (0.9, 0.95),
    weight_decay: float = 0.0,
    muon_lr: float = 0.02,
) -> Optimiser:
    """An optimiser over the trainable parameters.

    ``muon`` (Jordan et al. 2024, kellerjordan.github.io/posts/muon) takes the matrices between the embeddings and the
    output head at ``muon_lr``; embeddings, head and vectors go to AdamW (1711.05101) at ``lr``.

    Raises:
        BadInput: an unknown name, nothing to train, or a sharded module whose parameters are gathered at the moment.
    """
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    trainable = [p for _, p in named]
    if not trainable:
        raise BadInput("the model has no trainable parameter", remedy="Unfreeze it, or ask for lora={'r': 8}.")
    if "torch.distributed.fsdp" in sys.modules:  # else nothing can be sharded, and loading it takes half a second
        check_whole(named, module)
    fused = all(p.device.type in ("cpu", "cuda") for p in trainable)

    def adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=lr, betas=betas, weight_decay=weight_decay, fused=fused)

    if name == "adamw":
        return Optimiser([adamw(trainable)])
    if name != "muon":
        raise BadInput(f"no optimiser is called {name!r}", remedy="Known: adamw, muon.")
    ends = {id(p) for end in _ends(module) for p in end.parameters()}
    hidden = [p for p in trainable if p.ndim == 2 and id(p) not in ends]
    rest = [p for p in trainable if p.ndim != 2 or id(p) in ends]
    parts: list[torch.optim.Optimizer] = []
    if hidden:
        muon = WholeMuon if hasattr(hidden[0], "device_mesh") else torch.optim.Muon
        parts.append(muon(hidden, lr=muon_lr, momentum=0.95, weight_decay=weight_decay))
    if rest:
        parts.append(adamw(rest))
    return Optimiser(parts)


def _ends(module: nn.Module) -> list[nn.Module]:
    found = [
        getattr(module, name)() for name in ("get_input_embeddings", "get_output_embeddings") if hasattr(module, name)
    ]
    return [m for m in found if m is not None]

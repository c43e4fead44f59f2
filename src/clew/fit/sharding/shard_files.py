"""Sharded checkpoints: every rank writes its rows of weights and optimiser state, and any number of ranks reads them.

``Trainer`` calls here with its module and optimiser. The files are those of ``torch.distributed.checkpoint``, which
cuts tensors anew for the ranks that read, one process without ranks among them. Names are those of parameters, so that
nothing hangs on the order in which an optimiser holds them.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.fit.optim import Optimiser
from clew.fit.sharding.shards import like
from clew.fit.sharding.whole_muon import WholeMuon

FOLDER = "shards"  # within a checkpoint


def save(folder: Path, module: nn.Module, optimizer: Optimiser, lora: bool) -> None:
    """Write this rank's part of a checkpoint; collective. With adapters, only they are written of the weights."""
    dcp = _dcp()
    names = {id(p): name for name, p in module.named_parameters()}
    held = _weights(module, lora)
    for part in optimizer.parts:
        for parameter, state in part.state.items():
            held |= {f"optimizer.{names[id(parameter)]}.{key}": value for key, value in state.items()}
    dcp.save(held, checkpoint_id=folder / FOLDER)


def _dcp() -> Any:
    """torch.distributed.checkpoint, which takes half a second to load and does not export its functions by name."""
    return importlib.import_module("torch.distributed.checkpoint")


def exists(folder: Path) -> bool:
    return (folder / FOLDER).is_dir()


def load(folder: Path, module: nn.Module, optimizer: Optimiser, lora: bool) -> None:
    """Read a sharded checkpoint into a module and its optimiser, cut among any number of ranks or whole; collective.

    Raises:
        BadInput: it is of another model or optimiser.
    """
    dcp = _dcp()
    stored: Mapping[str, Any] = dcp.FileSystemReader(folder / FOLDER).read_metadata().state_dict_metadata
    wanted, states = _weights(module, lora), dict[int, dict[str, Tensor]]()
    names = {id(p): name for name, p in module.named_parameters()}
    by = dict[str, list[str]]()
    for key in stored:
        by.setdefault(key.rpartition(".")[0], []).append(key)
    for part in optimizer.parts:
        for parameter in (p for group in part.param_groups for p in group["params"]):
            for key in by.get(f"optimizer.{names[id(parameter)]}", ()):
                made = _room(part, parameter, stored[key])
                if made is not None:
                    wanted[key] = states.setdefault(id(parameter), {})[key.rpartition(".")[2]] = made
    _check(folder, wanted, stored, optimizer)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process reads alone on purpose
        dcp.load(wanted, checkpoint_id=folder / FOLDER)
    for part in optimizer.parts:
        for parameter in (p for group in part.param_groups for p in group["params"]):
            part.state[parameter] = states.get(id(parameter), {})


def cut(part: torch.optim.Optimizer, saved: Mapping[str, Any]) -> dict[str, Any]:
    """What one process saved of an optimiser, cut as this one's parameters are, for its ``load_state_dict``."""
    parameters = [p for group in part.param_groups for p in group["params"]]
    state = {}
    for number, values in saved["state"].items():
        parameter = parameters[number]
        if isinstance(part, WholeMuon):
            if part.owns(parameter):
                state[number] = values
        else:
            fits = {key: value.shape == parameter.shape for key, value in values.items()}
            state[number] = {key: like(v, parameter) if fits[key] else v for key, v in values.items()}
    return {**saved, "state": state}


def _weights(module: nn.Module, lora: bool) -> dict[str, Tensor]:
    return {f"model.{name}": p.detach() for name, p in module.named_parameters() if p.requires_grad or not lora}


def _room(part: torch.optim.Optimizer, parameter: Tensor, stored: Any) -> Tensor | None:
    """An empty tensor for a value of an optimiser's state; None where another rank holds it."""
    if stored.size != parameter.shape:
        return torch.zeros(stored.size, dtype=stored.properties.dtype)
    if not isinstance(part, WholeMuon):
        return torch.zeros_like(parameter.detach())
    here: Any = parameter
    return torch.zeros(stored.size, device=here.device_mesh.device_type) if part.owns(parameter) else None


def _check(folder: Path, wanted: Mapping[str, Tensor], stored: Mapping[str, Any], of: Optimiser) -> None:
    strange = [name for name, t in wanted.items() if name not in stored or stored[name].size != t.shape]
    if strange:
        name = strange[0].removeprefix("model.")
        raise BadInput(
            f"{folder} is a checkpoint of another model: {name} is missing there or has another shape",
            remedy="Build the trainer with the model and the adapters that it was saved with.",
        )
    kept = {name.rpartition(".")[2] for name in stored if name.startswith("optimizer.")}
    mine = {"momentum_buffer" if isinstance(p, torch.optim.Muon) else "exp_avg" for p in of.parts}
    if kept and mine != kept & {"momentum_buffer", "exp_avg"}:
        raise BadInput(
            f"{folder} holds the state of another optimiser ({', '.join(sorted(kept))})",
            remedy="Build the trainer with the settings that it was saved with.",
        )

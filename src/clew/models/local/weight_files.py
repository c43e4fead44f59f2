"""Weights of a folder copied into a module that is there: what a server of weights does when others are pushed to it.

``Local.take`` calls it. The folder is a stranger's: only safetensors are read, and nothing is copied before every
tensor is known to fit, so that a wrong folder leaves the weights as they were.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from clew.core.errors import BadInput

FILES = "*.safetensors"


@torch.no_grad()
def copy_into(module: nn.Module, folder: Path) -> None:
    """Copy the tensors of a model folder, as ``save_pretrained`` writes it, into a module of the same shape.

    Raises:
        BadInput: the folder holds no safetensors, one cannot be read, or they are another model's.
    """
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob(FILES))
    if not files:
        raise BadInput(f"{folder} holds no {FILES}", remedy="Save the weights with save_pretrained.")
    mine = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    try:
        held = dict[str, Path]()
        for file in files:
            with safe_open(file, framework="pt") as tensors:
                for name in list(tensors.keys()):
                    _fits(name, tensors.get_slice(name).get_shape(), mine, folder)
                    held[name] = file
        _complete(module, set(held), folder)
        for file in files:
            with safe_open(file, framework="pt") as tensors:
                for name in (name for name, where in held.items() if where == file):
                    mine[name].copy_(tensors.get_tensor(name))
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{folder} cannot be read: {type(error).__name__}", remedy="Save the weights again.") from None


def _fits(name: str, shape: list[int], mine: dict[str, torch.Tensor], folder: Path) -> None:
    here = tuple(mine[name].shape) if name in mine else None
    if here != tuple(shape):
        told = f"{name[:120]!r} is {tuple(shape)} there and {here or 'nothing'} here"
        raise BadInput(f"{folder} holds another model's weights: {told}", remedy="Push weights of the served model.")


def _complete(module: nn.Module, names: set[str], folder: Path) -> None:
    """Refuse a folder that leaves a parameter as it is; of parameters that are one tensor, one name is enough."""
    there = {id(p) for name, p in module.named_parameters(remove_duplicate=False) if name in names}
    missing = [name for name, p in module.named_parameters() if id(p) not in there]
    if missing:
        told = f"{folder} lacks {len(missing)} of the model's tensors, {missing[0]!r} among them"
        raise BadInput(told, remedy="Push all weights: merge adapters into them first.")

"""Checkpoints of a sharded trainer: each rank writes its parts, and any number of ranks can go on from them.

``save`` and ``load`` stand in for ``Trainer.save`` and ``Trainer.load``; every rank must call them. A resume with as
many ranks takes the same steps; with more or fewer the order of sums differs, and so do the last bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_parts
from torch.distributed.checkpoint.state_dict_saver import save as save_parts

from clew.core.errors import BadInput
from clew.fit import checkpoint
from clew.fit.trainer import Trainer

PARTS = "parts"


def save(trainer: Trainer, path: str | Path, position: Mapping[str, Any] | None = None) -> Path:
    """Write weights, optimiser states, step count and ``position`` (plain values: where the data stands).

    The folder appears whole or not at all, the one before it is kept as ``path.previous``, and it is also a model
    folder that ``from_pretrained`` loads.
    """
    path = Path(path).absolute()
    beside = path.with_name(path.name + ".parts")
    model, states = get_state_dict(trainer.module, trainer.optimizer.parts)
    save_parts({"model": model, "optimizer": states}, checkpoint_id=beside)
    told = {"steps": trainer.steps, "version": trainer.model.version, "position": dict(position or {})}

    def write(folder: Path) -> None:
        beside.rename(folder / PARTS)
        trainer.model.save(folder)
        torch.save(told, folder / "trainer.pt")

    if dist.get_rank() == 0:
        checkpoint.replace(path, write)
    dist.barrier()
    return path


def load(trainer: Trainer, path: str | Path) -> dict[str, Any]:
    """Go back to what ``save`` wrote, under any number of ranks; returns its ``position``.

    Raises:
        BadInput: no checkpoint of a sharded trainer is there, or one of another model or optimiser.
    """
    folder = checkpoint.locate(path)
    if not (folder / PARTS).is_dir():
        raise BadInput(
            f"{path} is no checkpoint of a sharded trainer", remedy="Load it with Trainer.load, in one process."
        )
    model, states = get_state_dict(trainer.module, trainer.optimizer.parts)
    found: dict[str, Any] = {"model": model, "optimizer": states}
    try:
        load_parts(found, checkpoint_id=folder / PARTS)
    except Exception as error:  # of many kinds, by what is missing
        told = f"{path} is of another model or optimiser: {str(error).strip().partition(chr(10))[0][:200]}"
        raise BadInput(told, remedy="Build the trainer with the settings that it was saved with.") from error
    parts = trainer.optimizer.parts
    set_state_dict(trainer.module, parts, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    told = torch.load(folder / "trainer.pt", weights_only=True)
    trainer.steps = told["steps"]
    trainer.model.publish(told["version"])
    return dict(told["position"])

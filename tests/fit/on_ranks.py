"""What ``test_sharding.py`` lets torchrun start: steps of a sharded trainer, beside those of a plain one on rank 0.

Rank 0 prints one JSON line. Arguments: folder, optimiser, and "resume" to go on from what lies there, or "whole".
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.fit import optim
from clew.fit.sharding import Sharded, ShardedPolicy
from clew.fit.sharding.checkpoints import load, save
from clew.fit.trainer import Trainer
from clew.models.local import Local, small

STEPS = 20
WORDS = [f"w{i}" for i in range(60)]


def model() -> Local:
    return small(WORDS, d=32, layers=2, heads=2, kv_heads=1, context=64, seed=1, ref="small")


def rows(step: int) -> list[LossRow]:
    """Of uneven lengths and number, so that the ranks have unequal shares."""
    dice, out = np.random.default_rng(step), list[LossRow]()
    for length in dice.integers(8, 40, size=13):
        sampled = dice.random(length) < 0.5
        sampled[0], sampled[-1] = False, True
        weights = {"pg": np.where(sampled, dice.standard_normal(length), 0).astype(np.float32)}
        old = np.where(sampled, -4.0, np.nan).astype(np.float32)
        ids = dice.integers(0, len(WORDS), size=length).astype(np.int32)
        out.append(LossRow(ids, sampled, weights, old, version=-1))
    return out


def trained(trainer: Trainer, first: int, last: int) -> list[list[float]]:
    reports = [trainer.step(rows(step)) for step in range(first, last)]
    return [[report.grad_norm, report.loss["pg"], report.ratio["mean"], float(report.trained)] for report in reports]


def apart(ours: Any, theirs: Any) -> float:
    """The largest difference of two modules' weights."""
    other = {name: p.detach() for name, p in theirs.named_parameters()}
    return max(float((p.detach() - other[name]).abs().max()) for name, p in ours.named_parameters())


def refused(work: Callable[[], object]) -> str:
    try:
        work()
    except BadInput as error:
        return str(error)
    return ""


def main(folder: Path, optimizer: Any, what: str) -> None:
    how: dict[str, Any] = {"lr": 7e-4, "optimizer": optimizer, "batch_tokens": 128}

    def made(**more: Any) -> Trainer:
        return Trainer(ShardedPolicy(model()), ranks=Sharded(**more), **how)

    trainer, out = made(), {"world": dist.get_world_size()}  # type: ignore[var-annotated]
    if what == "resume":
        first = load(trainer, folder / "c")["step"]
        out["steps"] = trained(trainer, first, STEPS)
    else:
        out["steps"] = trained(trainer, 0, STEPS // 2)
        save(trainer, folder / "c", {"step": STEPS // 2})
        out["steps"] += trained(trainer, STEPS // 2, STEPS)
        resumed = made(checkpointing=True)
        trained(resumed, load(resumed, folder / "c")["step"], STEPS)
        out["resumed"] = apart(resumed.model.served.module, trainer.model.served.module)
        out["other rows"] = refused(lambda: trainer.step(rows(dist.get_rank())))
        trainer.optimizer = optim.build(model().module, optimizer)
        out["late"] = refused(lambda: trainer.step(rows(0)))
        out["no checkpoint"] = refused(lambda: load(trainer, folder / "nothing"))
    if dist.get_rank() == 0:
        for name in ("plain", "own norms"):
            plain = Trainer(model(), **how)
            if name == "plain":
                plain.norms = []  # RMSNorm with the backward pass that one process has of its own sums in another order
            out[f"{name} steps"] = trained(plain, 0, STEPS)
            out[name] = apart(trainer.model.served.module, plain.module)
        out["version"] = trainer.model.version - plain.model.version
        print(json.dumps(out), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads may outlive the interpreter, and would abort it


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])

"""A rank of the tests of sharded training: torchrun starts it, ``python -m tests.fit.sharded FOLDER JOB...``.

What a job finds is written to FOLDER by rank 0. Without ranks a job runs in one process, which is the slow twin.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.fit.sharding import joining, shards
from clew.fit.sharding.ranks import Ranks
from clew.fit.trainer import Trainer

from .helpers import VOCABULARY, Served, logprobs

STEPS = 20


class Larger(Served):
    """A model of 0.1 million weights."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(seed)
        config = Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=128, tie_word_embeddings=True, use_cache=False,
            bos_token_id=1, eos_token_id=2, pad_token_id=0,
        )  # fmt: skip
        self.module = Qwen3ForCausalLM(config).to(dtype)


@cache
def batches(count: int = STEPS, size: int = 9) -> list[list[LossRow]]:
    """Rows of 5 to 30 tokens for each step: a policy loss, and in every third row a supervised one as well."""
    rng, net = np.random.default_rng(5), Larger().module
    made = []
    for _ in range(count):
        rows = []
        for i in range(size):
            ids = rng.integers(3, VOCABULARY, int(rng.integers(5, 31))).astype(np.int32)
            sampled = rng.random(len(ids)) < 0.5
            sampled[:2] = False, True
            old = np.where(sampled, logprobs(net, ids), np.nan).astype(np.float32)
            weights = {"pg": np.where(sampled, rng.normal(), 0).astype(np.float32)}
            if i % 3 == 0:
                weights["sft"] = np.linspace(0, 1, len(ids), dtype=np.float32)
            rows.append(LossRow(ids, sampled, weights, old, version=0, run=f"run{i // 2}"))
        made.append(rows)
    return made


class Reversed(Trainer):
    """Sums the gradients of a step's micro-batches in another order: what rounding alone does to a training."""

    def _micros(self, rows: Any, losses: Any) -> Any:
        return super()._micros(rows, losses)[::-1]


def trained(
    ranks: Ranks, folder: Path, name: str = "", begin: str = "", kind: type[Trainer] = Trainer, **settings: Any
) -> Any:
    """Weights, and norms and losses of each of ``steps`` steps; a checkpoint ``name`` after half of them.

    ``begin``: go on from this checkpoint, whose position is the number of steps.
    """
    model, steps = Larger(dtype=settings.pop("dtype", torch.float32)), settings.pop("steps", STEPS)
    trainer = kind(model, ranks=ranks, batch_tokens=60, seed=3, **settings)
    start = trainer.load(begin)["step"] if begin else 0
    reports = []
    for step, rows in enumerate(batches()[start:steps], start):
        reports.append(trainer.step(rows))
        if name and step + 1 == steps // 2:
            trainer.save(folder / name, {"step": step + 1})
    told = [{"norm": r.grad_norm, **r.loss, **r.ratio, "trained": r.trained, "version": r.version} for r in reports]
    return {"weights": model.weights() if ranks.leads else {}, "told": told, "mismatch": reports[0].mismatch}


HOW: dict[str, dict[str, Any]] = {
    "adamw": {"weight_by": "run", "recompute": True, "shared_prefixes": "off"},
    "packed": {"weight_by": "run", "recompute": True, "shared_prefixes": "on"},
    "muon": {"optimizer": "muon"},
    "double": {"dtype": torch.float64, "steps": 6},
    "lora": {"lora": {"r": 2}, "steps": 6},
    "reversed": {"optimizer": "muon", "kind": Reversed},
}


def bits(ranks: Ranks) -> Any:
    """Weights after three steps of Muon on gradients that are given."""
    model = Larger()
    trainer = Trainer(model, ranks=ranks, optimizer="muon")
    for seed in range(3):
        torch.manual_seed(seed)
        for name, parameter in trainer.module.named_parameters():
            parameter.grad = shards.like(torch.randn(dict(Larger().module.named_parameters())[name].shape), parameter)
        trainer.optimizer.step()
    trainer.serving.publish()
    return {"weights": model.weights()}


def disagreeing(ranks: Ranks) -> list[dict[str, str]]:
    """What each rank is told where the last one has other settings, other weights, or other rows."""
    mine, other = batches()[0], ranks.rank == ranks.world - 1
    told = {}
    for what in ("lr", "weights", "rows"):
        try:
            odd = what if other else ""
            trainer = Trainer(Larger(seed=odd == "weights"), lr=1e-4 if odd == "lr" else 7e-4, ranks=ranks)
            trainer.step(mine[::-1] if odd == "rows" else mine)
        except BadInput as error:
            told[what] = str(error)
    return ranks.gathered(told)


def job(ranks: Ranks, folder: Path, text: str) -> Any:
    """A training of ``HOW``, which saves a checkpoint at its half; ``NAME<CHECKPOINT`` goes on from one."""
    if text == "bits":
        return bits(ranks)
    if text == "disagreeing":
        return disagreeing(ranks)
    name, _, begin = text.partition("<")
    return trained(ranks, folder, "" if begin else f"{name}.half", begin, **HOW[name])


def file_of(text: str) -> str:
    """The file of what a job found."""
    return text.replace("<", ".from.").replace("/", "_") + ".pt"


def main() -> None:
    torch.set_num_threads(1)
    folder, *jobs = sys.argv[1:]
    ranks = joining.join(os.environ, wait=60)
    for text in jobs:
        found = job(ranks, Path(folder), text)
        if ranks.leads:
            torch.save(found, Path(folder) / file_of(text))
    joining.leave()


if __name__ == "__main__":
    main()

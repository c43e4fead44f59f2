"""A rank of the tests of sharded training: torchrun starts it, ``python -m tests.fit.sharded FOLDER JOB...``.

Each job is a function below; what it finds goes to FOLDER/JOB.pt, written by rank 0. Without torchrun's variables a job
runs in one process, which is the slow twin.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from clew.core.records import LossRow
from clew.fit.sharding import joining
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


def trained(ranks: Ranks, dtype: torch.dtype = torch.float32, model: Served | None = None, **settings: Any) -> Any:
    """Weights, norms and losses of ``STEPS`` steps."""
    model = model or Larger(dtype=dtype)
    trainer = Trainer(model, ranks=ranks, batch_tokens=60, **settings)
    reports = [trainer.step(rows) for rows in batches()]
    told = [{"norm": r.grad_norm, **r.loss, **r.ratio, "trained": r.trained, "version": r.version} for r in reports]
    return {"weights": model.weights() if ranks.leads else {}, "told": told, "mismatch": reports[0].mismatch}


def adamw(ranks: Ranks, folder: Path) -> Any:
    return trained(ranks, weight_by="run")


def double(ranks: Ranks, folder: Path) -> Any:
    return trained(ranks, dtype=torch.float64)


def main() -> None:
    torch.set_num_threads(1)
    folder, *jobs = sys.argv[1:]
    ranks = joining.join(os.environ, wait=60) if joining.is_rank(os.environ) else Ranks()
    for job in jobs:
        found = globals()[job](ranks, Path(folder))
        if ranks.leads:
            torch.save(found, Path(folder) / f"{job}.pt")
    joining.leave()


if __name__ == "__main__":
    main()

"""What ``test_trl.py`` runs in a process of its own: one step of plain gradient descent by TRL on a Clew world.

Prints one JSON line: how far TRL's step is from the gradient that the rows of the same runs give, computed directly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

import clew.credit
from clew.core.errors import BadInput
from clew.core.registry import build
from clew.integrations.trl import ClewGRPOTrainer
from clew.models.local import small
from clew.store import Groups
from clew.train.rows import rows

FILE = f"{Path(__file__).parents[1] / 'harness' / 'lenient.py'}:Lenient"


def config(folder: Path, **changes: Any) -> Any:
    plain = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "beta": 0.0}
    batch = {"num_generations": 3, "per_device_train_batch_size": 12, "gradient_checkpointing": False, "max_steps": 1}
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "bf16": False}
    return GRPOConfig(output_dir=str(folder), loss_type="dapo", **(plain | batch | quiet | changes))


def expected(module: Any, groups: Groups) -> tuple[dict[str, torch.Tensor], int]:
    """The gradient of -sum(advantage x logprob) over the mean token, row by row."""
    made = rows(groups, clew.credit.g2po(groups, store=False))
    tokens = sum(int(row.sampled.sum()) for row in made)
    module.zero_grad()
    for row in made:
        ids = torch.from_numpy(row.ids.astype("int64"))[None]
        logp = torch.log_softmax(module(ids).logits[0, :-1].float(), -1).gather(-1, ids[0, 1:, None])[:, 0]
        (-(torch.from_numpy(row.weights["pg"])[1:] * logp).sum() / tokens).backward()
    return {name: p.grad.clone() for name, p in module.named_parameters()}, tokens


def main(folder: Path) -> None:
    taskset: Any = build("tasksets", FILE)
    model = small(
        taskset.vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=256, seed=3, ref="tiny", steady=True
    )
    before = {name: p.detach().clone() for name, p in model.module.named_parameters()}
    how: Any = {"sampling": {"max_tokens": 3}, "tasks": 4, "store": folder / "runs.db"}
    trainer = ClewGRPOTrainer(model, taskset, config(folder), credit="g2po", **how)
    trainer.train()
    stepped = {name: before[name] - p.detach() for name, p in model.module.named_parameters()}
    store = trainer.runner.store
    made = [store.group(group) for group in store.groups()]
    groups = Groups([clew.store.Group(store, row) for row in made])
    with torch.no_grad():
        for name, p in model.module.named_parameters():
            p.copy_(before[name])
    model.module.eval()
    wanted, tokens = expected(model.module, groups)
    size = max(float(g.abs().max()) for g in wanted.values())
    off = max(float((stepped[name] - g).abs().max()) for name, g in wanted.items())
    refused = ""
    try:
        ClewGRPOTrainer(model, taskset, config(folder, top_p=0.9))
    except BadInput as error:
        refused = str(error)
    rewards = [run.reward for run in groups.runs]
    told = {"size": size, "off": off, "tokens": tokens, "runs": len(rewards), "mixed": len(set(rewards)) > 1}
    print(json.dumps({**told, "faults": len(store.verify()), "refused": refused}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

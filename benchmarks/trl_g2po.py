"""G2PO inside TRL's GRPOTrainer against Clew's own loop: same tasks, budget, learning rate and estimator.

    python benchmarks/trl_g2po.py [--iterations 20] [--seeds 3] [--model FOLDER] [--folder FOLDER]

Three arms of each seed start from the same pre-trained policy of `household`: (trl) `ClewGRPOTrainer`; (clew)
`Training` on the tasks that TRL drew, iteration by iteration; (control) TRL with the advantages of a batch dealt out to
its tokens at random, in which nothing can be learnt. Each arm takes AdamW steps of one learning rate on 8 tasks of 8
runs, and is then played on the same held-out tasks. Printed: success before, and after each arm with a 95 % interval
over tasks and seeds; differences are paired by task and seed, their interval from a bootstrap over seeds and tasks. A
cell (arm, seed) that lies in --folder is not computed again. The cost is printed first.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
from trl import GRPOConfig

import clew.credit
from clew.core.keys import derive
from clew.core.values import Task
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.integrations.trl import ClewGRPOTrainer
from clew.models.local import Local
from clew.store import open_store
from clew.train.loop import Plan, Training
from clew.train.warmstart import household_sft
from clew.worlds.household import Household

AGENT, TASKS, MEMBERS, HELD_OUT, LR = "clew.harness.agents:player", 8, 8, 128, 7e-4
SAMPLING = {"max_tokens": 8}
ARMS = ("trl", "clew", "control")


class Dealt(ClewGRPOTrainer):
    """The control: advantages say nothing of their tokens."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        out = super()._generate_and_score_completions(inputs)
        counted = out["tool_mask"].bool()
        mine = out["advantages"][counted]
        order = np.random.default_rng([self.args.seed, self.state.global_step]).permutation(len(mine))
        out["advantages"][counted] = mine[torch.from_numpy(order)]
        return out


class Same(Household):
    """Hands out given tasks, iteration by iteration."""

    def __init__(self, given: list[list[str]]) -> None:
        super().__init__()
        self._given = given

    def batch(self, n: int, index: int, seed: int) -> list[Task]:
        return [self.find(task) for task in self._given[index]]


def by_trl(kind: type[ClewGRPOTrainer], model: Local, store: Path, seed: int, iterations: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        budget = {"max_steps": iterations, "num_generations": MEMBERS, "per_device_train_batch_size": TASKS * MEMBERS}
        step = {"learning_rate": LR, "lr_scheduler_type": "constant", "weight_decay": 0.0, "beta": 0.0}
        quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
        plain = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "loss_type": "dapo"}
        args: Any = GRPOConfig(output_dir=folder, seed=seed, **(budget | step | quiet | plain))
        how: dict[str, Any] = {"sampling": SAMPLING, "tasks": TASKS * iterations, "store": store}
        kind(model, Household(), args, credit="g2po", **how).train()
    model.publish()


def by_clew(model: Local, store: Path, drawn: Path, seed: int, iterations: int) -> None:
    with open_store(drawn) as kept:
        named = {kept.group(group).name: kept.group(group).task_id for group in kept.groups()}
    given = [[named[f"trl/{i}/{k}"] for k in range(TASKS)] for i in range(iterations)]
    runner = Runner(AGENT, Same(given), model, store, sampling=SAMPLING)
    plan = Plan(name="clew", iterations=iterations, tasks=TASKS, rollouts=MEMBERS, seed=seed)
    for _ in Training(runner, Trainer(model, lr=LR), clew.credit.g2po, plan, folder=store.with_suffix("")).run():
        pass


def played(model: Local) -> list[float]:
    """The reward of one run of each held-out task, under seeds that are the same for all arms."""
    house = Household()
    runner = Runner(AGENT, house, model, sampling=SAMPLING)
    groups = runner.collect(house.sample(HELD_OUT, 0, "eval"), n=1, seed=derive(0, "held out"))
    return [float(run.reward or 0) for run in groups.runs]


def cell(arm: str, seed: int, folder: Path, source: str, iterations: int) -> list[float]:
    kept = folder / f"{arm}-{seed}.json"
    if not kept.exists():
        began, store = time.process_time(), folder / f"{arm}-{seed}.db"
        store.unlink(missing_ok=True)
        model = household_sft(source)
        if arm == "clew":
            by_clew(model, store, folder / f"trl-{seed}.db", seed, iterations)
        else:
            by_trl(ClewGRPOTrainer if arm == "trl" else Dealt, model, store, seed, iterations)
        found = {"rewards": played(model), "seconds": time.process_time() - began}
        kept.write_text(json.dumps(found))
        print(f"  {arm} seed {seed}: success {np.mean(found['rewards']):.3f}, {found['seconds']:.0f} CPU-s", flush=True)
    return list(json.loads(kept.read_text())["rewards"])


def interval(table: np.ndarray, draws: int = 4000) -> str:
    """Mean of [seeds, tasks] with the 95 % interval of a bootstrap over both."""
    dice, (seeds, tasks) = np.random.default_rng(0), table.shape
    means = [table[dice.integers(seeds, size=seeds)][:, dice.integers(tasks, size=tasks)].mean() for _ in range(draws)]
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{table.mean():.3f} [{low:.3f}, {high:.3f}] n={seeds} seeds x {tasks} tasks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", default=".clew/models/household-sft", help="folder of the policy; else made")
    parser.add_argument("--folder", type=Path, default=Path(".clew/trl_g2po"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of TRL and transformers, on their own options
    options.folder.mkdir(parents=True, exist_ok=True)
    runs = options.seeds * len(ARMS) * options.iterations * TASKS * MEMBERS
    print(f"cost: {runs:,} runs, about {options.seeds * options.iterations * 5 / 60:.0f} CPU-minutes", flush=True)
    found = {
        arm: np.array([cell(arm, s, options.folder, options.model, options.iterations) for s in range(options.seeds)])
        for arm in ARMS
    }
    before = np.array([played(household_sft(options.model))] * options.seeds)
    print(f"before: success {interval(before)}")
    for arm, table in found.items():
        print(f"{arm}: success {interval(table)}; gain {interval(table - before)}")
    print(f"trl - clew: {interval(found['trl'] - found['clew'])}")
    print(f"control - before (must hold 0): {interval(found['control'] - before)}")


if __name__ == "__main__":
    main()

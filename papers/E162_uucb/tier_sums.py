"""The claim in a real model: a small transformer on `sums`, flat rollouts against trees at equal tokens or leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from clew.core.keys import derive
from clew.harness import Runner, tree
from clew.models.local import Local
from clew.store import Groups
from clew.store.view import sampled
from clew.train.warmstart import Recipe, pretrain
from clew.worlds.sums import Sums
from papers.experiment import portions

__all__ = ["cells", "cost", "portions", "run"]

Cell = dict[str, Any]
ARMS = ("flat", "uucb", "entropy", "uct", "random")
WORLD, NOISE, STEPS = "sums(high=8,low=4)", 0.45, 300
TASKS, LEAVES, REPLY = 48, 8, 64


def cells(quick: bool) -> Iterator[Cell]:
    """One line per (budget, arm, seed); a seed is a model with its tasks and its sampling."""
    for seed in range(1 if quick else 5):
        for budget in ("leaves", "tokens"):
            for arm in ARMS[:2] if quick else ARMS[: len(ARMS) - (budget == "tokens")]:  # random: at equal leaves only
                yield {"kind": budget, "arm": arm, "seed": seed}


def cost(cell: Cell) -> float:
    """CPU-seconds of one cell, as measured, a share of the model's training included."""
    return 12.0


@lru_cache(maxsize=8)
def model(seed: int) -> Local:
    """A transformer of 0.1M parameters that has seen 6,000 scratchpads, each step wrong with chance .45."""
    recipe = Recipe(
        taskset=WORLD, noise=NOISE, steps=STEPS, target=0.0, batch=32, decay=0.3, demonstrations=6000, seed=seed
    )
    *_, (_, _, made) = pretrain(recipe, steady=False)
    return made


@lru_cache(maxsize=8)
def usual(seed: int) -> int:
    """Tokens that eight flat rollouts of a task decode on average: the budget of every arm."""
    return round(sum(map(own, flat(seed).runs)) / TASKS)


def own(run: Any) -> int:
    return sum(sampled(call) for call in run.calls[run.shared :])


def flat(seed: int) -> Groups:
    return grown(seed, tree.Growth(selector="flat", leaves=LEAVES, places=0, together=LEAVES), "measure")


def grown(seed: int, growth: tree.Growth, name: str) -> Groups:
    runner = Runner(
        "clew.harness.agents:player", Sums(4, 8), model(seed), sampling={"max_tokens": REPLY, "temperature": 1.0}
    )
    tasks = runner.taskset.sample(TASKS, derive(seed, "tasks"), "eval")  # type: ignore[union-attr]
    return tree.collect(runner, tasks, growth, derive(seed, name))


def run(setting: Cell, seeds: Sequence[int]) -> list[Cell]:
    """Results of one setting, in the order of its seeds."""
    return [_one(setting, seed) for seed in seeds]


def _one(setting: Cell, seed: int) -> Cell:
    bound = {"tokens": usual(seed)} if setting["kind"] == "tokens" else {"leaves": LEAVES}
    growth = tree.Growth(selector=setting["arm"], **bound)  # type: ignore[arg-type]
    model(seed)  # made before the clock starts
    began = time.process_time()
    groups = grown(seed, growth, "arm")
    spent = time.process_time() - began
    rewards = [group.rewards for group in groups]
    depth = [_depth(run_) for run_ in groups.runs if run_.parent is not None]
    out = {
        "dead": [int(not group.signal) for group in groups],
        "std": float(np.mean([r.std() for r in rewards])),
        "success": float(np.mean([r.mean() for r in rewards])),
        "tokens": sum(map(own, groups.runs)) / TASKS,
        "leaves": len(groups.runs) / TASKS,
        "place": float(np.mean(depth)) if depth else 0.0,
        "collect_cpu": round(spent, 3),
        "budget": bound.get("tokens", 0),
    }
    groups[0].store.close()
    return out


def _depth(run_: Any) -> float:
    """Where on its way a fork lies, as a share of its reply's tokens."""
    call = next(c for c in run_.calls if c.kind == "ask")
    whole = call.forced + sampled(call)
    return float(call.forced / whole) if whole else 0.0

"""What a drafter buys in rollouts, and whether refreshing it while the policy is trained keeps it good.

    python benchmarks/drafted_rollouts.py time [--home FOLDER] [--world house|sums] [--rounds 5] [--json FILE]
    python benchmarks/drafted_rollouts.py refresh [--home FOLDER] [--iterations 10] [--seeds 3] [--json FILE]

Two worlds: `household` with the quickstart's policy (2 layers of 64, replies of 2 to 4 tokens), and `sums` with a
policy of 8 layers of 128 that was pre-trained on demonstrations (one reply of about 25 tokens a run). Drafters
are DSpark ones of one layer and blocks of 4, trained for 300 steps on 256 runs of the policy. All four are made first,
about 100 CPU-s for each world, or found in --home, where they are kept.

`time`: the same tasks collected without drafts, under prompt lookup and under the drafter, at 1, 8 and 64 runs at once,
in turn, in one process on one thread, as in the iterations of `clew train --draft` that try the drafter: the scheduler
decides, by costs measured first.
Printed: tokens per second of process time and of wall time over those without drafts in the same round, median
[lowest, highest]; tokens a round; share of rounds drafted; share of the wall time that went into drafting. `whole`
verifies every drafted token, without the scheduler: what the gate is for.

`refresh`: tokens a round, every drafted token verified, over the iterations of a training of the `sums` policy from the
same weights and seeds: with the drafter refreshed after every iteration, with one that is not, and (control) with one
that is not under a policy at rest, which is trained with a learning rate of 0.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import clew.credit
from clew.fit import checkpoint
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.models.drafters import folder as folders
from clew.models.engine.speculation.lengths import Fixed
from clew.models.local import Local
from clew.train.drafters import drafter_job, target_text
from clew.train.drafters.drafter_losses import Schooling
from clew.train.drafters.refresh import Drafting, Trial
from clew.train.loop import Plan, Training
from clew.train.warmstart import Recipe, household_sft, pretrain
from clew.worlds.household import Household
from clew.worlds.sums import Sums

LIMITS = {"house": 8, "sums": 48}
PLAYER = "clew.harness.agents:player"
SUMS = Recipe(taskset="sums", noise=0.1, target=0, steps=400, layers=8, width=128, decay=0.3)


def world(name: str) -> Any:
    return Household() if name == "house" else Sums()


def policy(name: str, home: Path) -> Path:
    """The folder of a policy."""
    found = home / name
    if checkpoint.exists(found):
        return checkpoint.locate(found)
    if name == "house":
        household_sft(found).close()
        return found
    *_, (_, _, model) = pretrain(SUMS, ref="sums", steady=False)
    checkpoint.replace(found, model.save)
    model.close()
    return found


def drafter(name: str, source: Path, home: Path) -> Path:
    """A drafter trained on 256 runs of the policy."""
    out, making = home / f"{name}-dspark", home / f"{name}-dspark.making"
    if checkpoint.exists(out):
        return checkpoint.locate(out)
    model, taskset = Local(source), world(name)
    runner = Runner(PLAYER, taskset, model, sampling={"max_tokens": LIMITS[name]})
    texts = target_text.of_runs(runner.collect(taskset.sample(64, seed=7), n=4, seed=7).runs)
    design = folders.design_for(model.module, mask=drafter_job.mask_of(model), block=4, layers=1)
    how = Schooling(steps=300, lr=1e-3)
    making.mkdir(exist_ok=True)
    learn, _ = drafter_job.tapped(model, texts, design.taps, making)
    step, module = [*drafter_job.learn(model, design, how, learn, making)][-1]
    drafter_job.put(model, module, how, out, step)
    model.close()
    return out


def collect(runner: Runner, tasks: Any, n: int, seed: int) -> tuple[int, float, float]:
    """Tokens, process seconds and wall seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    groups = runner.collect(tasks, n=n, seed=seed)
    took = time.process_time() - cpu, time.perf_counter() - wall
    return sum(len(c.logprobs) for run in groups.runs for c in run.calls if c.logprobs is not None), *took


def timed(name: str, source: Path, draft: Path, rounds: int) -> list[dict[str, Any]]:
    """Every arm at every number of runs, in turn; a round before these warms up."""
    taskset, arms = world(name), {}
    for arm in ("none", "lookup", "dspark", "lookup, whole", "dspark, whole"):
        model = Local(source)
        kind = arm.partition(",")[0]
        given = None if kind == "none" else Drafting(model, "lookup" if kind == "lookup" else draft, rows=64)
        if given is not None and arm.endswith("whole"):
            given._lengths.inner = Fixed(given._drafter.block)  # type: ignore[assignment]
        runner = Runner(PLAYER, taskset, model, sampling={"max_tokens": LIMITS[name]})
        arms[arm] = runner, given
    gc.collect()
    gc.freeze()  # as the command line does once weights are loaded; for every arm alike
    found = []
    for runs in (1, 8, 64):
        times: dict[str, list[Any]] = defaultdict(list)
        repeats = max(1, 16 // runs)  # one after the other, so that a figure is of 0.1 s at least
        for number in range(rounds + 1):
            for arm, (runner, given) in arms.items():
                if given is not None:
                    given.trial = Trial()  # which begins with drafts
                    given.begin()
                gc.collect()
                parts, told = [], {}
                for k in range(repeats):
                    tasks = taskset.sample(max(1, runs // 8), seed=1000 * number + k)
                    parts.append(collect(runner, tasks, min(runs, 8), number))
                whole = [sum(column) for column in zip(*parts, strict=True)]
                if given is not None:
                    told = given.end(whole[2])
                if number:
                    times[arm].append((*whole, told))
        for arm, rows in times.items():
            line: dict[str, Any] = {"world": name, "runs": runs, "arm": arm}
            for i, clock in ((1, "cpu"), (2, "wall")):
                line[clock] = [r[0] / r[i] / (b[0] / b[i]) for r, b in zip(rows, times["none"], strict=True)]
            line["tokens_per_cpu_s"] = statistics.median(r[0] / r[1] for r in rows)
            line["told"] = {k: statistics.mean(r[3].get(k, 0.0) for r in rows) for k in rows[0][3]}
            found.append(line)
    for runner, _ in arms.values():
        runner.model.close()
    return found


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def main_time(options: argparse.Namespace, home: Path) -> Any:
    found = []
    print(f"{'world':6} {'runs':>4} {'drafts':15} {'x none, CPU':>20} {'x none, wall':>20} {'tok/round':>9} "
          f"{'drafted':>8} {'in drafts':>9} {'tok/CPU-s':>10}")  # fmt: skip
    for name in options.world or ("house", "sums"):
        source = policy(name, home)
        lines = timed(name, source, drafter(name, source, home), options.rounds)
        for line in lines:
            told = line["told"] or {"length": 1.0, "drafted": 0.0, "share": 0.0}
            ratios = f"{spread(line['cpu']):>20} {spread(line['wall']):>20}"
            shares = f"{told['length']:9.2f} {told['drafted']:8.0%} {told['share']:9.0%}"
            print(f"{name:6} {line['runs']:4d} {line['arm']:15} {ratios} {shares} {line['tokens_per_cpu_s']:10.0f}",
                  flush=True)  # fmt: skip
        found += lines
    return found


def trained(source: Path, draft: Path, seed: int, iterations: int, arm: str) -> list[float]:
    """Tokens a round in each iteration of a training whose drafts are all verified."""
    model = Local(source)
    given = Drafting(model, draft, rows=64)
    given._lengths.inner = Fixed(given._drafter.block)  # type: ignore[assignment]
    given.trial.next = lambda: True  # type: ignore[method-assign]
    if arm != "refreshed":
        given.refresh = lambda runs, seed=0: []  # type: ignore[method-assign]
    runner = Runner(PLAYER, Sums(), model, sampling={"max_tokens": LIMITS["sums"]})
    trainer = Trainer(model, 0.0 if arm == "policy at rest" else 7e-4)
    plan = Plan(name="t", iterations=iterations, seed=seed)
    done = list(Training(runner, trainer, clew.credit.grpo, plan, draft=given).run())
    model.close()
    return [it.draft["length"] for it in done]


def main_refresh(options: argparse.Namespace, home: Path) -> Any:
    source = policy("sums", home)
    draft = drafter("sums", source, home)
    found: dict[str, list[list[float]]] = {}
    for arm in ("refreshed", "not refreshed", "policy at rest"):
        found[arm] = [trained(source, draft, seed, options.iterations, arm) for seed in range(options.seeds)]
    print(f"tokens a round, mean of {options.seeds} seeds [lowest, highest]")
    shown = sorted({1, 2, 4, 8, options.iterations} & set(range(1, options.iterations + 1)))
    print(f"{'iteration':16}" + "".join(f"{i:>20d}" for i in shown))
    for arm, seeds in found.items():
        cells = [[lengths[i - 1] for lengths in seeds] for i in shown]
        print(f"{arm:16}" + "".join(f"{statistics.mean(c):7.2f} [{min(c):.2f}, {max(c):.2f}]" for c in cells))
    half = options.iterations // 2
    for other in ("not refreshed", "policy at rest"):
        gaps = [
            statistics.mean(np.subtract(a, b)[half:]) for a, b in zip(found["refreshed"], found[other], strict=True)
        ]
        print(f"refreshed - {other}, second half: {spread(gaps)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("time", "refresh"))
    parser.add_argument("--home", type=Path, help="folder in which policies and drafters are kept")
    parser.add_argument("--world", choices=("house", "sums"), action="append", help="of `time`; both where not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = (main_time if options.what == "time" else main_refresh)(options, options.home or Path(folder))
    print(f"{time.process_time() - began:.0f} CPU-seconds in all")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

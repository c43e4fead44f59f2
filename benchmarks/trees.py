"""Flat against tree rollouts on `sums` for the same number of leaves, and the loss of trees against that of rows.

    python benchmarks/trees.py [--rounds 9] [--leaves 8] [--json FILE]

One small transformer (made here, about 15 CPU-s: papers/E162_uucb) answers 48 tasks: (flat) independent rollouts, all
at once; (uucb) trees grown by forks that UUCB chooses, one at a time; (uucb, 4 at once) the same with four forks of a
tree side by side. Rounds take them in turn on fresh sampling, everything recorded in memory. Printed per variant:
decoded tokens, process and wall time of collecting, the share of dead groups, and the depth of branching; then ratios
to flat of the same round as median [lowest, highest]. Last, the policy-gradient loss of the trees with each token once,
as `clew.train.rows` packs it, against one row per leaf with its whole reply, in float64: value, gradient, and process
time. Rows of a tree read their prefixes for context, so that packing saves terms of the loss and no forward pass.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from clew.credit.tree import tree as credit
from clew.harness import Runner
from clew.harness.trees import grow
from clew.models.local import Local
from clew.store import Groups, Run
from clew.store.run import sampled
from clew.train.rows import rows
from clew.worlds.sums import Sums
from papers.E162_uucb import tier_sums

Row = tuple[np.ndarray, np.ndarray]  # token ids, weight of each


def variants(leaves: int) -> dict[str, grow.Growth]:
    return {
        "flat": tier_sums.flat(leaves),
        "uucb": grow.Growth(leaves=leaves),
        "uucb, 4 at once": grow.Growth(leaves=leaves, together=4),
    }


def collect(model: Local, growth: grow.Growth, seed: int) -> tuple[Groups, float, float]:
    """Groups of fresh tasks, process seconds, wall seconds."""
    sampling = {"max_tokens": tier_sums.REPLY, "temperature": 1.0}
    runner = Runner("clew.harness.agents:player", Sums(4, 8), model, sampling=sampling)
    tasks = Sums(4, 8).sample(tier_sums.TASKS, 1000 + seed, "eval")
    wall, cpu = time.perf_counter(), time.process_time()
    groups = grow.collect(runner, tasks, growth, seed)
    return groups, time.process_time() - cpu, time.perf_counter() - wall


def measure(model: Local, leaves: int, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Facts of each variant in each round; a round before these warms up."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in variants(leaves)}
    for number in range(rounds + 1):
        for name, growth in variants(leaves).items():
            groups, cpu, wall = collect(model, growth, number)
            if number:
                facts = tier_sums.facts(groups)
                dead = float(np.mean(facts["dead"]))
                depths = [depth(run) for run in groups.runs if run.parent is not None]
                found[name].append({"tokens": facts["tokens"], "cpu": cpu, "wall": wall, "dead": dead, "depth": depths})
            groups[0].store.close()
    return found


def depth(run: Run) -> tuple[int, float]:
    """How many forks lie on a leaf's way, and at which share of its reply's tokens the last lies."""
    forks, at = 0, run.parent
    while at is not None:
        forks, at = forks + 1, Run(run.store, at.run).parent
    call = next(c for c in run.calls if c.kind == "ask")
    return forks, call.forced / (call.forced + sampled(call))


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def show(found: dict[str, list[dict[str, Any]]]) -> None:
    print(f"{'':16} {'tokens a task':>16} {'CPU s':>18} {'wall s':>18} {'dead groups':>18}  forks on the way, place")
    for name, lines in found.items():
        cells = [spread([x[field] for x in lines]) for field in ("tokens", "cpu", "wall", "dead")]
        depths = np.array([d for x in lines for d in x["depth"]])
        told = "none"
        if len(depths):
            low, middle, high = np.quantile(depths[:, 1], (0.25, 0.5, 0.75))
            told = f"{depths[:, 0].mean():.1f} (most {depths[:, 0].max():.0f}), {middle:.2f} [{low:.2f}, {high:.2f}]"
        print(f"{name:16} {cells[0]:>16} {cells[1]:>18} {cells[2]:>18} {cells[3]:>18}  {told}")
    for name in list(found)[1:]:
        pairs = list(zip(found[name], found["flat"], strict=True))
        told = ", ".join(
            f"{field} {spread([a[field] / b[field] for a, b in pairs])}" for field in ("tokens", "cpu", "wall")
        )
        print(f"{name} over flat: {told}; dead share {spread([a['dead'] - b['dead'] for a, b in pairs])} more")


def leaf_rows(groups: Groups) -> list[Row]:
    """One row per leaf, its whole reply weighed by (reward - mean) / deviation of its group."""
    out = []
    for group in groups:
        if group.signal:
            advantage = (group.rewards - group.rewards.mean()) / group.rewards.std()
            for run, a in zip(group, advantage, strict=True):
                path = run.conversation()
                ids = np.array([t for node in path for t in node.ids or ()])
                call = next(c for c in run.calls if c.kind == "ask")
                weights = np.zeros(len(ids))
                weights[len(ids) - len(run.reply(call.seq).ids or ()) + call.head :] = a
                out.append((ids, weights))
    return out


def loss(module: torch.nn.Module, batch: Sequence[Row]) -> tuple[float, list[torch.Tensor], float]:
    """Minus the sum of weight x ratio to the present policy over all tokens; its gradient; process seconds."""
    module.zero_grad()
    began, total = time.process_time(), 0.0
    for ids, weights in batch:
        tokens = torch.tensor(ids[None].astype(np.int64))
        logp = module(tokens).logits[0, :-1].log_softmax(-1)[torch.arange(len(ids) - 1), tokens[0, 1:]]
        value = -(torch.tensor(weights[1:], dtype=logp.dtype) * (logp - logp.detach()).exp()).sum()
        value.backward()
        total += float(value.detach())
    return total, [p.grad.clone() for p in module.parameters() if p.grad is not None], time.process_time() - began


def compare(model: Local, leaves: int, rounds: int) -> dict[str, Any]:
    """The packed loss and the row loss of one collection of trees, in turn."""
    groups, _, _ = collect(model, variants(leaves)["uucb"], 0)
    packed = [(row.ids, np.where(row.sampled, row.weights["pg"], 0.0).astype(float)) for row in
              rows(groups, credit(groups, baseline="group", store=False))]  # fmt: skip
    apart = leaf_rows(groups)
    module = copy.deepcopy(model.module).double()
    counts = [int(sum((weights != 0).sum() for _, weights in batch)) for batch in (packed, apart)]
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        (value, gradient, first), (other, slope, second) = loss(module, packed), loss(module, apart)
        times.append((first, second))
    gap = max(float((a - b).abs().max()) for a, b in zip(gradient, slope, strict=True))
    return {
        "tokens": counts, "value": abs(value - other) / counts[1], "gradient": gap / counts[1],
        "largest": max(float(b.abs().max()) for b in slope) / counts[1], "cpu": times,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--leaves", type=int, default=tier_sums.LEAVES)
    parser.add_argument("--json", help="write every figure to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = tier_sums.model(0)
    print(f"{tier_sums.TASKS} tasks, {options.leaves} leaves each, {options.rounds} rounds; median [lowest, highest]")
    found = measure(model, options.leaves, options.rounds)
    show(found)
    same = compare(model, options.leaves, 3)
    print(
        f"loss over {same['tokens'][0]:,} packed tokens against {same['tokens'][1]:,} of rows, in float64, per token:"
    )
    print(
        f"  values differ by {same['value']:.1e}, gradients by {same['gradient']:.1e} (largest {same['largest']:.1e})"
    )
    print(f"  CPU time, packed over rows: {spread([a / b for a, b in same['cpu']])}")
    if options.json:
        Path(options.json).write_text(json.dumps({"rollouts": found, "loss": same}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

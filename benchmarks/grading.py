"""What grading costs: 1,000 trajectories of 200 tokens by two models of 1M parameters, against one pass a trajectory.

    python benchmarks/grading.py [--trajectories 1000] [--repeats 3] [--threads 2]

Ours reads recorded runs from a store, scores them by both models in batches of like length, files every value, and
aggregates. The peer is a plain loop as published code has it: transformers, one trajectory at a time, both models,
token ids already in memory, nothing kept. Process and wall time; the ratio with the least and the greatest over
repeats. Both must give the same scores, which is checked on twenty trajectories.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clew.core.errors import BadInput
from clew.core.records import Request
from clew.core.values import Completion, Limits, Usage
from clew.harness import Runner, scoring
from clew.methods.grade import grade as g
from clew.methods.grade import graded
from clew.models.local import Local, small
from clew.worlds.sums import Sums

BAR = 60.0  # wall seconds on two cores
WORDS = [str(i) for i in range(2000)] + ["add", "done"]


class Babbler:
    """Writes replies of a given length, a random word a token; the logprobs it reports are those of a fair choice."""

    ref, version = "babbler", 0

    def __init__(self, renderer: Any, length: int) -> None:
        self.renderer, self.length = renderer, length

    async def complete(self, request: Request) -> Completion:
        draw = random.Random(request.seed)
        tokens = tuple(draw.randrange(7, 2000) for _ in range(self.length))
        logprobs = np.full(len(tokens), -np.log(1993), np.float32)
        message = self.renderer.parse(tokens)
        return Completion(message, tokens, logprobs, finish="length", usage=Usage(10, len(tokens)))


def pair() -> tuple[Local, Local]:
    """Two models of 1.0M parameters, 4 layers of width 128 over 2,000 words."""
    models = [small(WORDS, d=128, layers=4, heads=4, kv_heads=2, seed=s, ref=f"m{s}") for s in (0, 1)]
    size = sum(p.numel() for p in models[0].module.parameters())
    if not 0.8e6 < size < 1.3e6:
        raise BadInput(f"the models have {size} parameters", remedy="Change their width.")
    print(f"two models of {size:,} parameters")
    return models[0], models[1]


def record(folder: Path, models: Sequence[Local], n: int) -> list[Any]:
    """n runs whose only path is about 200 tokens long, in a store on disk."""
    world = Sums(4, 4)
    writer: Any = Babbler(models[0].renderer, 190)
    runner = Runner("clew.harness.agents:player", world, writer, folder / "runs.db", limits=Limits(steps=1),
                    sampling={"max_tokens": 190})  # fmt: skip
    runner.collect(world.sample(n // 4), n=4)
    return list(runner.store.runs(""))


def ours(runs: Sequence[Any], models: Sequence[Any], store: bool) -> Any:
    plan = scoring.plan(runs)
    scores = [scoring.score(runs, m, store=store, found=plan) for m in models]
    found = graded.read(runs, scores[0], scores[1])
    grades = g.grade(found.policy, found.ref, found.spans, found.owner)
    if store:
        sizes = {ask: len(v) for ask, v in scores[0].items()}
        runs[0].store.annotate(graded.filed(found, grades, sizes, "grade", {}))
        runs[0].store.commit()
    return grades


@torch.no_grad()
def peer(rows: Sequence[Sequence[int]], firsts: Sequence[int], models: Sequence[Local]) -> list[float]:
    """Summed log-ratios by one forward pass of each model for each trajectory."""
    out = []
    for row, first in zip(rows, firsts, strict=True):
        ids, found = torch.tensor([row]), []
        for model in models:
            logits = model.module(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
            found.append(logits.gather(-1, ids[0, 1:, None])[first - 1 :, 0])
        out.append(float((found[0] - found[1]).sum()))
    return out


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trajectories", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    models = pair()
    with tempfile.TemporaryDirectory() as folder:
        runs = record(Path(folder), models, options.trajectories)
        plan = scoring.plan(runs)
        rows = [row.ids for row in plan.rows]
        heads = {(c.run, c.seq): c.head for run in runs for c in run.calls if c.kind == "ask"}
        firsts = [row.replies[0].start + heads[row.replies[0].ask] for row in plan.rows]
        print(f"{len(rows)} trajectories, {np.mean([len(r) for r in rows]):.0f} tokens each, {options.threads} threads")
        some = {row.replies[0].ask[0]: i for i, row in enumerate(plan.rows[:20])}
        ours_ = ours([run for run in runs if run.id in some], models, False).run
        alone = peer(rows[:20], firsts[:20], models)
        gap = max(abs(x - alone[some[run.id]]) for x, run in zip(ours_, [r for r in runs if r.id in some], strict=True))
        assert gap < 1e-2, f"ours and the peer differ by {gap} nats over a trajectory"
        mine, theirs = list[tuple[float, float]](), list[tuple[float, float]]()
        for repeat in range(options.repeats):
            fresh = [small(WORDS, d=128, layers=4, heads=4, kv_heads=2, seed=s, ref=f"r{repeat}m{s}") for s in (0, 1)]
            mine.append(timed(lambda fresh=fresh: ours(runs, fresh, True)))  # type: ignore[misc]
            theirs.append(timed(lambda: peer(rows, firsts, models)))
            for model in fresh:
                model.close()
    for name, found in (("ours, filed", mine), ("peer, one at a time", theirs)):
        print(f"  {name:<22} process {spread([c for c, _ in found])} s   wall {spread([w for _, w in found])} s")
    ratios = [[p[i] / m[i] for m, p in zip(mine, theirs, strict=True)] for i in (0, 1)]
    print(f"  peer / ours            process {spread(ratios[0])}     wall {spread(ratios[1])}")
    met = statistics.median([w for _, w in mine]) < BAR
    print(f"under {BAR:.0f} s of wall time: {'met' if met else 'NOT MET'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

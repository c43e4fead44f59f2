"""What a Model that wraps a Model costs: rollouts through a wrapper against rollouts of the bare model.

    python benchmarks/wrapping.py [--runs 64] [--pairs 15] [--json FILE]

Each variant plays the same tasks of `household` with the same untrained weights (every reply runs to its limit), all
runs at once, recorded in the in-memory store, in one process on one thread: (bare) the model itself; (forwarding) in a
`Forwarding` that changes nothing; (hooks) in a `Forwarding` with `asked` and `answered` of its own; (naive) in a class
that has `complete` alone. Variants are taken in turn, in an order that is turned by one each round, on fresh tasks.
Printed: process seconds of each variant, and its ratio to `bare` in the same round, as median [quartiles] of the
rounds. All variants must sample equally many tokens: the sampler's seeds are those of the runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from clew.core.records import Request
from clew.core.values import Completion
from clew.harness import Runner
from clew.models.compose import Forwarding
from clew.models.local import small
from clew.worlds.household import Household

MEMBERS, LIMIT = 8, 8


class Hooks(Forwarding):
    """Looks at every request and at every answer."""

    def asked(self, request: Request) -> Request:
        return request._replace(taps=None)

    def answered(self, request: Request, completion: Completion) -> Completion:
        return completion._replace(model="hooks")


class Naive:
    """What comes first to mind: a class with `complete` that asks the model."""

    def __init__(self, model: Any) -> None:
        self.model, self.ref, self.version, self.renderer = model, model.ref, model.version, model.renderer

    async def complete(self, request: Request) -> Completion:
        completion: Completion = await self.model.complete(request)
        return completion


VARIANTS: dict[str, Any] = {"bare": lambda model: model, "forwarding": Forwarding, "hooks": Hooks, "naive": Naive}


def played(model: Any, house: Household, runs: int, seed: int) -> tuple[float, int]:
    """Process seconds of a collection, and the tokens sampled in it."""
    gc.collect()
    began = time.process_time()
    tasks = house.sample(runs // MEMBERS, seed=100 + seed)
    runner = Runner("clew.harness.agents:player", house, model, ":memory:", sampling={"max_tokens": LIMIT})
    groups = runner.collect(tasks, n=MEMBERS, seed=seed)
    took = time.process_time() - began
    return took, sum(call.usage.completion for run in groups.runs for call in run.calls)


def spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=15, help="rounds; each gives one ratio of each variant")
    parser.add_argument("--json", help="write every figure to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    house = Household()
    model, names = small(house.vocabulary()), [*VARIANTS]
    gc.freeze()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(options.pairs + 1):
        tokens = set()
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            took, sampled = played(VARIANTS[name](model), house, options.runs, number)
            tokens.add(sampled)
            if number:  # the first round warms up
                seconds[name].append(took)
        assert len(tokens) == 1, f"the variants sampled {tokens} tokens"
    ratios = {name: [a / b for a, b in zip(seconds[name], seconds["bare"], strict=True)] for name in names}
    print(f"{options.runs} runs, {options.pairs} rounds\n{'':12}{'process seconds':>26}{'x bare':>26}")
    for name in names:
        print(f"{name:12}{spread(seconds[name]):>26}{spread(ratios[name]):>26}")
    model.close()
    if options.json:
        Path(options.json).write_text(json.dumps({"seconds": seconds, "ratios": ratios}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

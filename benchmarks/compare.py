"""Issue 21, bar 5: how often `clew compare` decides rightly, and after how many branches.

    python benchmarks/compare.py [--comparisons 200] [--simulated 2000] [-n 128] [--json]

Part 1, numbers alone: verdicts of two arms are drawn and looked at after every 4 pairs, by three rules: the limits of
``clew.methods.compare.sequential``, Student's t interval at every look (what one does by hand), and that interval
once, at the end. Part 2, whole comparisons: planted models answer in an exact world, ``clew.methods.compare.versus``
forks one recorded run, judges and stops. "Apart": each model draws its own luck; "by seed": models of one seed share
their luck, as one model under two prompts nearly does. A rule errs where it prefers an arm though both are equal, or
the worse one. Shares have Wilson intervals, means of branches bootstrap ones; requests below the place are counted,
and must be 0.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from clew.core.errors import need
from clew.core.records import Report, Request
from clew.core.values import Completion, Message
from clew.harness import Runner
from clew.harness.agents import player
from clew.methods.compare.design import bootstrap, rate
from clew.methods.compare.sequential import Outcome, limits_of_difference
from clew.methods.compare.versus import Arm, Versus
from clew.store import Run
from clew.worlds.toys import Counter

BATCH, GOAL = 4, 3
ARMS = {"equal, .5": (0.5, 0.5), "equal, .9": (0.9, 0.9), "better by .3": (0.35, 0.65), "better by .1": (0.45, 0.55)}


# ---- planted models in an exact world --------------------------------------------------------------------------------


class Planted:
    """Counts up to the goal, and stops there with the chance ``p``, drawn by the request's seed; keeps its requests.

    Args:
        name: by which luck is drawn apart from other models; empty: models of one seed share it.
    """

    version, renderer = 0, None

    def __init__(self, name: str = "", p: float = 1.0) -> None:
        self.ref, self.name, self.p = f"planted(name={name!r}, p={p!r})", name, p
        self.asked: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        count = int(request.path[-1].message.text.split()[-1])
        lucky = count == GOAL and random.Random(f"{self.name} {request.seed}").random() < self.p
        return Completion(Message("assistant", "stop" if lucky or count > GOAL else "up"))


def recorded(seed: int = 0) -> tuple[Runner, Run]:
    """A run that reaches the goal, in a store of its own."""
    world = Counter(low=GOAL, high=GOAL)
    runner = Runner(player, world, Planted())
    return runner, runner.collect(world.sample(1), n=1, seed=seed).runs[0]


def below(run: Run, seq: int, model: Planted) -> int:
    """How many requests to a model hold less than what is recorded below the place."""
    held = sum(call.kind == "ask" for call in run.calls[:seq])
    return sum(sum(node.message.role == "assistant" for node in it.path) < held for it in model.asked)


def compared(seed: int, p: float, q: float, apart: bool, n: int) -> tuple[Outcome, int, int, float]:
    """One comparison by the verb's engine: outcome, branches an arm, requests below the place, mean difference."""
    runner, run = recorded(seed)
    a, b = Planted("a" if apart else "", p), Planted("b" if apart else "", q)
    if a.ref == b.ref:
        b.ref += " again"
    place = next(call.seq for call in reversed(run.calls) if call.kind == "ask")
    versus = Versus(runner, run, place, [Arm("a", {"model": a}), Arm("b", {"model": b})], n=n, batch=BATCH, seed=seed)
    (found,) = versus.compare()
    again = below(run, place, a) + below(run, place, b)
    return found.outcome, len(versus.found[0].runs), again, found.limits.mean


# ---- rules -----------------------------------------------------------------------------------------------------------


@cache
def betting(up: int, down: int, n: int) -> Outcome:
    """The rule of `clew compare`, of counts: pairs for, against, all."""
    return limits_of_difference([1.0] * up + [-1.0] * down + [0.0] * (n - up - down)).outcome()


@cache
def student(up: int, down: int, n: int) -> Outcome:
    """Whether the t interval of the mean difference leaves out 0; one without width is the mean itself."""
    mean = (up - down) / n
    error = math.sqrt(((up + down) / n - mean**2) / (n - 1))
    half = float(need("scipy.stats", "stats").t.isf(0.025, n - 1)) * error
    return "better" if mean - half > 0 else "worse" if mean + half < 0 else "open"


def stopped(rule: Callable[[int, int, int], Outcome], pairs: np.ndarray, looks: range) -> tuple[Outcome, int]:
    """What a rule decides at the first look at which it decides, and the pairs it took."""
    for n in looks:
        up, down = int((pairs[:n] > 0).sum()), int((pairs[:n] < 0).sum())
        if (outcome := rule(up, down, n)) != "open":
            return outcome, n
    return "open", looks[-1]


def simulated(p: float, q: float, n: int, comparisons: int) -> dict[str, list[tuple[Outcome, int]]]:
    """Each rule on the same drawn verdicts."""
    rng = np.random.default_rng(20)
    pairs = [(rng.random(n) < q).astype(int) - (rng.random(n) < p).astype(int) for _ in range(comparisons)]
    every, end = range(BATCH, n + 1, BATCH), range(n, n + 1)
    return {
        "compare": [stopped(betting, it, every) for it in pairs],
        "t at each look": [stopped(student, it, every) for it in pairs],
        "t once at n": [stopped(student, it, end) for it in pairs],
    }


def told(outcomes: list[Outcome], taken: list[int], truth: float) -> dict[str, Report]:
    """Shares that are right and wrong, and the mean of branches an arm. With equal arms any preference is wrong."""
    n = len(outcomes)
    wrong = [o == "worse" or (not truth and o == "better") for o in outcomes]
    mean = bootstrap("branches", lambda x: x.mean(-1), np.asarray(taken, float), unit="comparisons")
    right = rate("right", sum(o == "better" for o in outcomes) if truth else 0, n)
    return {"wrong": rate("wrong", sum(wrong), n), "right": right, "branches": mean}


def line(name: str, rule: str, found: dict[str, Report]) -> str:
    wrong, right, mean = (found[key] for key in ("wrong", "right", "branches"))
    shares = "  ".join(f"{it.estimate:.3f} [{it.low:.3f}, {it.high:.3f}]" for it in (wrong, right))
    return f"{name:22} {rule:15} {wrong.n:5}  {shares}  {mean.estimate:6.1f} [{mean.low:.1f}, {mean.high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--simulated", type=int, default=2000)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kept: list[dict[str, Any]] = []

    def say(name: str, rule: str, found: dict[str, Report], **more: Any) -> None:
        numbers = {key: [it.estimate, it.low, it.high, it.n] for key, it in found.items()}
        kept.append({"case": name, "rule": rule, **numbers, **more})
        if not options.json:
            print(line(name, rule, found), *(f"{key} {value}" for key, value in more.items()), flush=True)

    if not options.json:
        print(f"{'':22} {'':15} {'n':>5}  {'wrong':20}  {'right':20}  branches of at most {options.n} an arm")
    for name, (p, q) in ARMS.items():
        for rule, each in simulated(p, q, options.n, options.simulated).items():
            say(name, rule, told([o for o, _ in each], [n for _, n in each], q - p))
    for name in ("equal, .5", "better by .3"):
        p, q = ARMS[name]
        for apart in (True, False):
            if not apart and p == q:
                continue  # models that share their luck are one model then: no pair ever differs
            done = [compared(seed, p, q, apart, options.n) for seed in range(options.comparisons)]
            found = told([o for o, *_ in done], [n for _, n, *_ in done], q - p)
            asked = sum(again for _, _, again, _ in done)
            say(f"{name}, {'apart' if apart else 'by seed'}", "the verb's own", found, below=asked)
    if options.json:
        print(json.dumps(kept))


if __name__ == "__main__":
    main()

"""The claim in a small transformer on `sums`: flat rollouts against trees at equal tokens, leaves or time.

Every collection of an arm is made ROUNDS times, in turn with the eight flat rollouts of the same model, so that both
meet the same machine; what is sampled is the same each time, what it takes is not.
"""

import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from clew.core.keys import derive
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.trees import grow
from clew.models.local import Local
from clew.store import Groups, Run
from clew.store.run import sampled
from clew.train.warmstart import Recipe, pretrain
from clew.worlds.sums import Sums
from papers.experiment import Line, by_kind, grid

ARMS: dict[str, tuple[str, tuple[tuple[str, Any], ...]]] = {
    "flat": ("flat", ()),
    "random": ("random", ()),
    "random, forks": ("random", (("floor", 0.1),)),
    "entropy": ("entropy", ()),
    "uct": ("uct", ()),
    "uct, forks": ("uct", (("floor", 0.1),)),
    "uucb": ("uucb", ()),
    "uucb, as specified": ("uucb", (("explored", "visits"), ("floor", 0.0))),
}
WORLD, NOISE, STEPS = "sums(high=8,low=4)", 0.45, 300
TASKS, LEAVES, REPLY, ROUNDS, SPARE = 48, 8, 64, 3, 0.375
SEEDS = range(5, 10)  # 0 to 4 were looked at while the tier was made


def cells(quick: bool) -> Iterator[Line]:
    """One line per (budget, arm, seed); a seed is a model with its tasks and its sampling."""
    for seed in (0,) if quick else SEEDS:
        arms = ("flat", "uucb") if quick else ARMS
        yield from grid(arm=arms, kind=("leaves", "tokens"), seed=seed)
        yield {"kind": "time", "arm": "flat", "seed": seed}
        yield from grid(kind="moved", arm=("even",) if quick else ("even", "learned"), seed=seed)


def cost(cell: Line) -> float:
    """CPU-seconds of one cell, as measured, a share of the model's training included."""
    return 14.0 if cell["kind"] == "tokens" else 6.0


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
    """Tokens that eight flat rollouts of a task decode on average: the budget of every arm at equal tokens."""
    return round(sum(map(own, collected(seed, EIGHT)[0].runs)) / TASKS)


def own(run: Run) -> int:
    """Tokens decoded for the run itself."""
    return sum(sampled(call) for call in run.calls[run.shared :])


def flat(leaves: int) -> grow.Growth:
    """Independent rollouts, all at once."""
    return grow.Growth(selector="flat", leaves=leaves, together=leaves, places=0)


EIGHT = flat(LEAVES)


def opened(seed: int) -> tuple[Runner, list[Task]]:
    """A runner with a store of its own, and the tasks."""
    runner = Runner(
        "clew.harness.agents:player", Sums(4, 8), model(seed), sampling={"max_tokens": REPLY, "temperature": 1.0}
    )
    return runner, Sums(4, 8).sample(TASKS, derive(seed, "tasks"), "eval")


def collected(seed: int, growth: grow.Growth) -> tuple[Groups, float]:
    """The groups, and the CPU-seconds of their collection."""
    runner, tasks = opened(seed)
    began = time.process_time()
    groups = grow.collect(runner, tasks, growth, derive(seed, "sampling"))
    return groups, time.process_time() - began


def _one(setting: Line, seed: int) -> Line:
    selector, settings = ARMS[setting["arm"]]
    bound: Line = {"tokens": usual(seed)} if setting["kind"] == "tokens" else {"leaves": LEAVES}
    if selector == "flat":
        bound |= {"places": 0} | ({"together": LEAVES} if "leaves" in bound else {})
    return _in_turn(seed, grow.Growth(selector=selector, settings=settings, **bound))


def _in_turn(seed: int, growth: grow.Growth) -> Line:
    spent, beside = list[float](), list[float]()
    for _ in range(ROUNDS):
        beside.append(_released(seed, EIGHT))
        groups, seconds = collected(seed, growth)
        spent.append(round(seconds, 4))
        out = facts(groups)
        groups[0].store.close()
    return out | {"collect_cpu": spent, "flat_cpu": beside, "budget": growth.tokens or 0}


def _released(seed: int, growth: grow.Growth) -> float:
    groups, seconds = collected(seed, growth)
    groups[0].store.close()
    return round(seconds, 4)


def _timed(setting: Line, seed: int) -> Line:
    """Flat rollouts, as many as take the CPU time of UUCB at equal tokens, by what both took in turn just before."""
    growth = grow.Growth(selector="uucb", tokens=usual(seed))
    pairs = [(_released(seed, EIGHT), _released(seed, growth)) for _ in range(ROUNDS)]
    eight, uucb = np.median(np.array(pairs), axis=0)
    leaves = max(2, round(LEAVES * uucb / eight))
    found = _in_turn(seed, flat(leaves))
    return found | {"uucb_cpu": [pair[1] for pair in pairs]}


def _moved(setting: Line, seed: int) -> Line:
    """UUCB with SPARE of all tokens moved by an allocator, after an iteration of as many training tasks."""
    growth = grow.Growth(tokens=usual(seed), spare=SPARE, allocator=setting["arm"])
    runner, tasks = opened(seed)
    before = Sums(4, 8).sample(TASKS, derive(seed, "before"), "train")
    grow.collect(runner, before, growth, derive(seed, "sampling"), name="t")
    groups = grow.collect(runner, tasks, growth, derive(seed, "sampling"), name="t", iteration=1)
    out = facts(groups)
    runner.store.close()
    return out


def facts(groups: Groups) -> Line:
    """What a collection came to: per group whether it is dead and how many leaves won, means of the rest over groups.

    ``place`` is the share of its reply's tokens at which a fork lies, over all forks.
    """
    rewards = [group.rewards for group in groups]
    places = [_place(run_) for run_ in groups.runs if run_.parent is not None]
    return {
        "dead": [int(not group.signal) for group in groups],
        "won": [int((r > grow.WON).sum()) for r in rewards],
        "std": float(np.mean([r.std() for r in rewards])),
        "success": float(np.mean([r.mean() for r in rewards])),
        "tokens": sum(map(own, groups.runs)) / len(groups),
        "leaves": len(groups.runs) / len(groups),
        "place": float(np.mean(places)) if places else 0.0,
    }


def _place(run_: Run) -> float:
    call = next(c for c in run_.calls if c.kind == "ask")
    whole = call.forced + sampled(call)
    return float(call.forced / whole) if whole else 0.0


run = by_kind({"time": _timed, "moved": _moved, "tokens": _one, "leaves": _one})

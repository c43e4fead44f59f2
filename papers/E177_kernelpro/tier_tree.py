"""The cells of tier tree: K6, log against linear reward beside a lucky outlier; K7, tree search against greedy."""

import asyncio
import dataclasses
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clew.methods.kernels.cpu import BLOCKS, Cpu, Speed
from clew.methods.kernels.kernel import Candidate, Option, Space
from clew.methods.kernels.rules import advice, diagnose
from clew.methods.kernels.runs import Direct
from clew.methods.kernels.search import SEARCHES, Outcome, Tries, mcts
from papers.E177_kernelpro.packed import PACKED
from papers.experiment import Line, grid

FLAGS = ("opt", "isa", "math")
SEEDS, BUDGET = 60, 60
ARMS = ("random", "greedy", "guided", "mcts")


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(kind="K6", name=("log", "linear"), seed=range(5 if quick else SEEDS))
    yield {"kind": "K7", "name": "quick" if quick else "table", "seed": 0}


def cost(cell: Line) -> float:
    return 0.05 if cell["kind"] == "K6" else (40.0 if cell["name"] == "quick" else 260.0)


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    if setting["kind"] == "K6":
        return [outlier(setting["name"] == "linear", seed) for seed in seeds]
    return [measured(setting["name"] == "quick")]


def outlier(linear: bool, seed: int) -> Line:
    """Share of the visits that go to a branch which once, by noise, looked thirty times as fast; and the best that was
    found of what is really there: a branch three times as fast, in which each of four further changes gives 5 %."""
    options = (Option("lucky", (0, 1), "tile"), Option("steady", (0, 1), "isa"),
               *(Option(f"x{i}", (0, 1, 2), "math") for i in range(4)))  # fmt: skip
    space = Space(dataclasses.replace(PACKED, options=options), flags=())
    once = [30.0]

    def true(choice: dict[str, int]) -> float:
        return 3.0 * 1.05 ** sum(choice[f"x{i}"] == 1 for i in range(4)) if choice["steady"] else 1.0

    async def evaluate(candidate: Candidate) -> Outcome:
        choice = dict(candidate.choice)
        noise = once.pop() if once and choice["lucky"] and not choice["steady"] and sum(choice.values()) > 1 else 0.0
        return Outcome(noise or true(choice))

    tries = Tries(evaluate, BUDGET)
    root = asyncio.run(mcts(tries, space, random.Random(seed), Outcome(1.0), stale=None, linear=linear))
    lucky = [c for c in root.children if dict(c.candidate.choice)["lucky"]]
    return {
        "share": sum(c.visits for c in lucky) / root.visits,
        "best": max(true(dict(c.choice)) for c, _ in tries.done),
    }


def measured(quick: bool) -> Line:
    """The table of all builds of the packed product, and of each search and seed the best speed after 60 tries."""
    flags = () if quick else FLAGS
    with tempfile.TemporaryDirectory() as folder:
        cpu = Cpu(PACKED, Direct(Path(folder)), Space(PACKED, flags))
        table: dict[Candidate, Outcome] = {}
        for candidate in cpu.space.all():
            built = cpu.build(candidate)
            right = built.path is not None and cpu.check(built) is None
            found = cpu.time(cpu.plain, built, blocks=3 if quick else BLOCKS) if right else None
            outcome = Outcome(0.0)
            if isinstance(found, Speed):
                metrics = cpu.metrics(built, found.b, profile=False)
                outcome = Outcome(found.ratio, advice(diagnose(metrics, "cpu", cpu.bound(metrics)[0])))
            table[candidate] = outcome
        space = cpu.space

    async def evaluate(candidate: Candidate) -> Outcome:
        return table[candidate]

    bests: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for arm in ARMS:
        for seed in range(SEEDS):
            tries = Tries(evaluate, BUDGET)
            how: dict[str, Any] = {"stale": None} if arm == "mcts" else {}
            work = SEARCHES[arm](tries, space, random.Random(seed), table[space.start()], **how)  # type: ignore[operator]
            asyncio.run(work)
            bests[arm].append(round(tries.best[1].speed, 4))
    alone = {  # each change by itself, from the start
        f"{name}={space.values[name][i]}": round(table[space.start().changed(name, i)].speed, 4)
        for name, at in space.start().choice
        for i in range(len(space.values[name]))
        if i != at
    }
    return {"size": space.size, "top": round(max(o.speed for o in table.values()), 4), "bests": bests, "alone": alone}

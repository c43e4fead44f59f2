"""The cells of tier reward (E4): single-turn RL from a fitted model of the shell, by one turn of a run or by all.

``one``: Clew's reward on one turn of each run. ``every``: on turns of all, drawn from anywhere; ``every, by run``: all
turns of a run in one update. ``noise``: rewards by lot, in which the gain must vanish. ``learnt``: as many steps of the
plain loss on the same turns. ``start``: the model that all begin with.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from clew.core.keys import derive
from papers.E167_agentworld.single import (
    ByRun,
    Size,
    asked,
    dataset,
    learnt_more,
    reinforced,
    started,
    turns_of,
)
from papers.experiment import Line, apart, each, grid

ARMS = ("start", "one", "every", "every, by run", "noise", "learnt")
SEEDS = range(3)
SIZES = {"full": Size(800, 800, 80, 56, 16), "quick": Size(160, 40, 8, 2, 8)}
SECONDS = {"start": 20.0, "learnt": 12.0}  # of a cell as measured; the first of a seed trains the start
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """Seed by seed, so that results cut short are balanced over arms."""
    yield from grid(seed=[0] if quick else SEEDS, kind="reward", size="quick" if quick else "full", arm=ARMS)


def cost(cell: Line) -> float:
    """CPU-seconds of a cell, as measured."""
    return 5.0 if cell["size"] == "quick" else SECONDS.get(cell["arm"], 31.0)


def by_lot(reply: str, run: Any) -> float:
    """A reward that has nothing to do with the reply."""
    return random.Random(derive(run.row.seed, "by lot", *run.row.order)).random()


def _one(setting: Line, seed: int) -> Line:
    arm, size = setting["arm"], SIZES[setting["size"]]
    model = started(size, seed)
    out: Line = {}
    if arm == "learnt":
        out = learnt_more(model, size, seed)
    elif arm != "start":
        rows = turns_of(size, seed, arm.startswith("every"))
        reward = by_lot if arm == "noise" else "observation"
        tasks = dataset(rows, reward, ByRun) if arm == "every, by run" else dataset(rows, reward)
        out = reinforced(model, tasks, size, seed)
    out |= asked(model, size, seed)
    model.close()
    return out


run = each(_one)

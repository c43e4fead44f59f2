"""The cells of tier bare: the player of ``apps`` without a memory, and with all that one could say (specs/E168, 7).

Conditions: ``none``, no advice; ``endpoints``, the facts about endpoints,
logins and columns; ``facts``, all of them. A cell is a world with a stream of 200 tasks at one seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from clew.core.keys import derive
from clew.harness import Runner
from clew.harness.run.live import LiveRun
from clew.worlds.apps import Apps
from papers.E168_metis.player import explore
from papers.E168_metis.stream import STREAMS, TASKS
from papers.experiment import Line, each, grid

SEEDS = range(20)
CONDITIONS = ("none", "endpoints", "facts")
HIDDEN = ("amounts are", "pending rows")  # facts that no answer of an app tells
PILOT = {(40, "none"): "success .686, 8.27 turns, 1679 tokens", (150, "none"): "success .743"}


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 2 if quick else None]
    yield from grid(families=list(STREAMS), condition=CONDITIONS, seed=seeds)


cost = 2.0  # CPU-seconds of a cell


async def informed(run: LiveRun, families: int, zipf: float, world: int, condition: str) -> None:
    """The player, told before each task what is true of its app, as far as the condition allows."""
    facts = Apps(families, zipf, world).facts(run.task) if condition != "none" else []
    if condition == "endpoints":
        facts = [fact for fact in facts if not any(hidden in fact for hidden in HIDDEN)]
    await explore(run, facts)


def _stream(setting: Line, seed: int, tasks: int = TASKS) -> Line:
    settings = {"families": setting["families"], "zipf": STREAMS[setting["families"]], "world": seed}
    taskset = Apps(**settings)
    runner = Runner(informed, taskset, None, config={**settings, "condition": setting["condition"]})
    drawn = taskset.sample(tasks, derive(seed, "stream"))
    runs = list(runner.collect(drawn, 1, seed).runs)
    told = [json.loads(next(c.text for c in run.calls if c.action == "explored")) for run in runs]
    found: dict[str, Any] = {field: np.mean([one[field] for one in told]) for field in ("turns", "tokens")}
    found |= {
        "success": np.mean([run.reward for run in runs]),
        "unsubmitted": np.mean([not o["submitted"] for o in told]),
    }
    return {name: round(float(value), 5) for name, value in found.items()}


run = each(_stream)

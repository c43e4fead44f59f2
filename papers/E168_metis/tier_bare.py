"""The cells of tier bare: the player of ``apps`` without a memory, and with all that one could say (specs/E168, 7).

    python -m papers.E168_metis.tier_bare [--quick]

prints the table beside the pilot's figures. Conditions: ``none``, no advice; ``endpoints``, the facts about endpoints,
logins and columns; ``facts``, all of them. A cell is a world with a stream of 200 tasks at one seed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from clew.core.keys import derive
from clew.harness import Runner
from clew.harness.run.live import LiveRun
from clew.worlds.apps import Apps
from papers.E168_metis.player import explore
from papers.experiment import Line, each, grid
from papers.stats import by_seed, markdown

SEEDS, TASKS = range(20), 200
STREAMS = {40: 1.1, 150: 1.0}  # families -> exponent: head-heavy, long tail
CONDITIONS = ("none", "endpoints", "facts")
HIDDEN = ("amounts are", "pending rows")  # facts that no answer of an app tells
PILOT = {(40, "none"): "success .686, 8.27 turns, 1679 tokens", (150, "none"): "success .743"}


def cells(quick: bool) -> Iterator[Line]:
    seeds = list(SEEDS)[: 3 if quick else None]
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


def main(argv: list[str]) -> None:
    lines = [{**cell, **_stream(cell, cell["seed"])} for cell in cells("--quick" in argv)]
    rows = []
    for families in STREAMS:
        for condition in CONDITIONS:
            of = [line for line in lines if (line["families"], line["condition"]) == (families, condition)]
            means = [by_seed([line[field] for line in of]) for field in ("success", "turns", "tokens", "unsubmitted")]
            rows.append([str(families), condition, *means, PILOT.get((families, condition), "")])
    print(f"{len(lines) // len(rows)} seeds of {TASKS} tasks; intervals are Student's over seeds")
    print(markdown("families | condition | success | turns | tokens | no answer | pilot", rows))


if __name__ == "__main__":
    main(sys.argv[1:])

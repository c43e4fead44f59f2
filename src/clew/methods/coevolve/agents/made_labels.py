"""Labelled work where the user has none: runs on tasks apart from training and test, labelled by the world.

``clew evolve agents`` calls it where no anchor is named. An anchor needs good and bad work: the first agent makes some,
random policies or the world's demonstrations make the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from clew.core.keys import derive
from clew.core.protocols import Taskset
from clew.core.values import Task
from clew.harness import Runner
from clew.methods.coevolve.agents.agents_work import GOOD
from clew.methods.coevolve.agents.recorded_runs import Piece, RecordedRuns, shown_work

Labels = list[tuple[dict[str, str], bool]]
DEMONSTRATOR = "clew.harness.agents:demonstrator"
MOST = 8  # lines of a random policy


async def made_labels(runs: RecordedRuns, tasks: Sequence[Task], start: str, bank: Sequence[str], seed: int) -> Labels:
    """Work on each task with its label.

    Args:
        start: the first agent's text. bank: lines of which random policies are made instead; may be empty. Where it is,
            and the world demonstrates, every other task is demonstrated.
    """
    pieces = [Piece(_random(bank, derive(seed, "policy", task.id)) or start, task, 0, 0) for task in tasks]
    taskset = cast("Taskset", runs.runner.taskset)
    shown = [] if bank or not hasattr(taskset, "demonstrate") else pieces[1::2]
    found = await runs.perform("labelled", [piece for piece in pieces if piece not in shown])
    out = [(run, piece.task) for run, piece in zip(found, [p for p in pieces if p not in shown], strict=True)]
    if shown:
        runner = Runner(DEMONSTRATOR, taskset, None, runs.runner.store)
        demonstrating = RecordedRuns(runner, "world", runs.name.removeprefix("evolve/"), runs.on_run)
        made = await demonstrating.perform("shown-how", [piece._replace(genome=taskset.ref) for piece in shown])
        out += [(run, piece.task) for run, piece in zip(made, shown, strict=True)]
    return [
        (shown_work(run, task), run.reward > GOOD) for run, task in out if run is not None and run.reward is not None
    ]


def _random(bank: Sequence[str], luck: int) -> str:
    if not bank:
        return ""
    rng = np.random.default_rng(luck)
    size = int(rng.integers(1, min(MOST, len(bank)) + 1))
    return "\n".join(rng.choice(np.array(bank), size, replace=False).tolist())

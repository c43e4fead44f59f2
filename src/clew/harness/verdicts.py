"""What the judge says of a run that has ended, within its time.

``drive`` files the verdict of each run; ``Runner.judge`` asks for one later. A judge sees the record and the world,
never the agent.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping

from clew.core.aio import in_thread
from clew.core.errors import BadInput, ReplayError, StoreError, Undecided
from clew.core.protocols import Judge, World
from clew.core.records import Annotation, RunRow
from clew.core.values import StopReason, Task
from clew.harness.run.lifecycle import FAILED
from clew.harness.run.run_state import RunState
from clew.harness.run.spec import RunSpec
from clew.store.labels import METHOD as LABELS
from clew.store.run import Run

UNJUDGED = (*FAILED, StopReason.NO_WORLD, StopReason.CANCELLED)


async def judged(spec: RunSpec, row: RunRow, task: Task, state: RunState | None) -> None:
    """File the judge's verdict and the world's own claim, once."""
    store, run = spec.store, Run(spec.store, row)
    if state is None and any(a.method != LABELS for a in store.annotations([row.id], target="run")):
        return
    rows = []
    if state is not None and state.claimed is not None:
        rows.append(Annotation("run", "env", state.claimed, run=row.id, scope=row.id))
    if (state.ended if state is not None else run.stop) not in UNJUDGED:
        world = state.world if state is not None else None
        rows += await verdict(spec, run, task, world, thread=spec.judge_thread)
    if rows:
        store.annotate(rows)


async def verdict(
    spec: RunSpec, run: Run, task: Task, world: World | None, judge: Judge | None = None, *, thread: bool = False
) -> list[Annotation]:
    """What the judge says of a run. A judge that raises, gives None or no finite number for ``reward``, or takes longer
    than ``spec.judge_seconds`` leaves it ``undecided``: no reward, which is not a reward of zero.

    Args:
        judge: instead of the taskset's own.
        thread: let it compute in a thread of its own, so that one that never ends is undecided too.

    Raises:
        StoreError, ReplayError, BadInput: what the judge needs is not to be had; no verdict would differ.
    """
    asked = judge or (spec.taskset.judge if spec.taskset is not None else None)
    if asked is None:
        return []

    async def answer() -> Mapping[str, float | None]:
        return await asked(task, run, world)

    limit = asyncio.timeout(spec.judge_seconds)
    try:
        async with limit:
            told = await (in_thread(answer()) if thread else answer())
        scores = {name: float(value) for name, value in told.items() if value is not None}
        if strange := [name for name, value in scores.items() if not math.isfinite(value)]:
            raise ValueError(f"{strange[0]} is {scores[strange[0]]}")
    except (StoreError, ReplayError, BadInput):
        raise
    except Undecided as error:
        return [*_annotations(run, error.parts), _undecided(run, error.message, error.data)]
    except Exception as error:
        late = f"no verdict within {spec.judge_seconds:g} s" if limit.expired() else str(error)
        return [_undecided(run, f"{type(error).__name__}: {late}")]
    rows = _annotations(run, {name: value for name, value in told.items() if value is not None})
    return rows if told.get("reward", 0.0) is not None else [*rows, _undecided(run, "the judge gave None for reward")]


def _annotations(run: Run, scores: Mapping[str, float]) -> list[Annotation]:
    """One for each number of a verdict, with what a ``Scored`` one rests on."""
    return [
        Annotation("run", name, float(value), run=run.id, scope=run.id, data=getattr(value, "data", ""))
        for name, value in scores.items()
    ]


def _undecided(run: Run, why: str, data: str = "") -> Annotation:
    said = {"error": why, **({"judge": json.loads(data)} if data else {})}
    return Annotation("run", "undecided", run=run.id, scope=run.id, data=json.dumps(said))

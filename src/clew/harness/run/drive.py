"""Driving one run: from its record, live to its end, and judged."""

from __future__ import annotations

import asyncio
import json
import math
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clew.core.errors import (
    BadInput,
    ContextOverflow,
    ModelError,
    ReplayDiverged,
    ReplayError,
    StoreError,
    UnknownName,
    WorldError,
)
from clew.core.protocols import Judge, World
from clew.core.records import Annotation, Call, Cursor, Intervention, RunRow
from clew.core.values import Limits, Sampling, StopReason, Task
from clew.harness.fork.edits import kept_replies
from clew.harness.run import lifecycle
from clew.harness.run.dispatch import LEASE_SECONDS, Clerk
from clew.harness.run.pending import Stop, batches
from clew.harness.run.run_state import Effects
from clew.harness.run.tape import Tape
from clew.store.run import Run

if TYPE_CHECKING:
    from clew.harness.runner import Runner

PATIENCE = 2.0  # seconds an agent may be idle while recorded results wait, before the replay is called diverged
UNJUDGED = (
    StopReason.MODEL_ERROR, StopReason.WORLD_ERROR, StopReason.AGENT_ERROR,
    StopReason.NO_WORLD, StopReason.CANCELLED,
)  # fmt: skip


async def drive(
    runner: Runner,
    clerk: Clerk,
    row: RunRow,
    task: Task,
    on_run: Callable[[Run], None] | None = None,
    *,
    redo: str = "stop",
    nested: bool = False,
    calls: list[Call] | None = None,
) -> Run:
    """Take a run to its end: follow what is recorded, perform the rest, judge. An ended run is only judged, once.

    ``calls`` spares a new run the reading of the Calls it shares with others.

    Raises:
        LeaseHeld, InDoubt, ReplayDiverged, CannotRestore, StoreError: the run is left as it is and can be resumed.
    """
    store = runner.store
    async with nullcontext() if nested else clerk.room:
        store.lease(row.id, clerk.owner, LEASE_SECONDS)
        clerk.active.add(row.id)
        effects: Effects | None = None
        seats = runner.model if batches(runner.model) else None
        if seats is not None:
            seats.seat(1)
        try:
            calls = store.calls(row.id) if calls is None else calls
            if not (calls and calls[-1].kind == "end"):
                effects = begin(runner, clerk, row, task, calls)
                if calls:
                    changes = Intervention.from_json(json.loads(row.changes) if row.changes else None)
                    resuming = any(c.run == row.id for c in calls)
                    effects.world = await runner.world_at(task, calls, changes, resuming=resuming, redo=redo == "redo")
                await finish(runner, effects, task)
                clerk.stops[row.id] = effects.ended
            await judged(runner, row, task, effects)
            clerk.active.discard(row.id)
            store.release(row.id, clerk.owner)  # goes with the commit below
            await clerk.settle()
        finally:
            if row.id in clerk.active:
                clerk.active.discard(row.id)
                store.release(row.id, clerk.owner)
            if seats is not None:
                seats.seat(-1)
            if effects is not None:
                close(runner, effects)
    run = Run(store, row)
    if on_run is not None:
        on_run(run)
    return run


def begin(
    runner: Runner,
    clerk: Clerk,
    row: RunRow,
    task: Task,
    calls: list[Call],
    *,
    replay: bool = False,
) -> Effects:
    """The effects of a run, with what is recorded as its tape."""
    changes = Intervention.from_json(json.loads(row.changes) if row.changes else None)
    known = json.loads(row.meta or "{}")
    tape = None
    kept = None
    if calls or row.lineage:
        hold = None
        if row.parent and not replay:
            place = Cursor.parse(row.parent)
            if not any(c.seq == place.seq for c in calls):
                hold = next(iter(runner.store.calls(place.run, place.seq, place.seq + 1)), None)
            if changes.keep:
                kept = kept_replies(Run(runner.store, place.run), place.seq)
        tape = Tape(row.id, calls, hold, same=not touches_request(changes, hold))
        tape.load(runner.store)
    limits = merged(task.limits, Limits(**known.get("limits", {})))
    if "fork_limits" in known:
        limits = Limits(**known["fork_limits"])
    sampling: dict[str, Any] = {k: tuple(v) if k == "stop" else v for k, v in known.get("sampling", {}).items()}
    return Effects(
        runner, clerk, row, replace(task, secret=None), tape=tape, edits=changes, replay=replay, kept=kept,
        sampling=Sampling()._replace(**sampling), limits=limits,
    )  # fmt: skip


def touches_request(changes: Intervention, hold: Call | None) -> bool:
    """Whether an edit alters what is asked at the fork point, so that it cannot be compared with the record."""
    return hold is None or any(
        e.kind in ("say", "insert", "delete") or (e.kind in ("model", "sampling") and e.seq <= hold.seq)
        for e in changes.edits
    )


def merged(task: Limits, run: Limits) -> Limits:
    """A task's own limits go before the runner's."""
    names = ("steps", "tokens", "seconds", "cost")
    return Limits(**{k: getattr(task, k) if getattr(task, k) is not None else getattr(run, k) for k in names})


async def finish(runner: Runner, effects: Effects, task: Task) -> None:
    """Run the agent to its end and record why it ended."""
    work = asyncio.ensure_future(conduct(runner, effects, task))
    try:
        if effects.tape is not None:
            await watch(work, effects)
        reason, error = await work
    except BaseException:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        raise
    lifecycle.end(effects, reason, error)


async def conduct(runner: Runner, effects: Effects, task: Task) -> tuple[StopReason, str]:
    """Call the agent and turn the way it ends into a StopReason: the one place where exceptions become reasons."""
    config = json.loads(effects.row.config or "{}")
    try:
        await lifecycle.open(
            effects, lambda: runner.taskset.open(replace(task, secret=None)) if runner.taskset is not None else None
        )
        await runner.agent(effects.live, **config)
    except BaseException as raised:
        error = innermost(raised)
        if isinstance(error, Stop):
            return error.reason, ""
        if isinstance(error, ContextOverflow):
            return StopReason.CONTEXT_FULL, str(error)
        if isinstance(error, ModelError):
            return StopReason.MODEL_ERROR, str(error)
        if isinstance(error, WorldError):
            return StopReason.WORLD_ERROR, str(error)
        if isinstance(error, (ReplayError, StoreError, UnknownName)) or not isinstance(error, Exception):
            raise error from None
        return StopReason.AGENT_ERROR, "".join(traceback.format_exception(error)[-4:]).strip()
    return (StopReason.DONE if effects.live.done else StopReason.RETURNED), ""


def innermost(error: BaseException) -> BaseException:
    """The first error of a group (an agent's TaskGroup), else the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = next((e for e in error.exceptions if isinstance(innermost(e), Stop)), error.exceptions[0])
    return error


async def watch(work: asyncio.Future[Any], effects: Effects) -> None:
    """While the record is followed, see that it goes on: an idle agent with results waiting has diverged.

    Raises:
        ReplayDiverged: nothing can be handed over and the agent asks for nothing.
    """
    tape = effects.tape
    assert tape is not None
    idle, since, last = 0, time.monotonic(), (-1, -1)
    while not work.done() and (tape.pending or effects.replay):
        now = (effects.seq, tape.position)
        if now != last:
            idle, since, last = 0, time.monotonic(), now
        idle += 1
        await asyncio.sleep(0 if idle < 200 else 0.005)
        if idle > 200 and time.monotonic() - since > PATIENCE:
            waiting = tape.order[tape.position] if tape.pending else None
            what = (
                f"Call {waiting.seq} ({waiting.kind}) was recorded to answer next"
                if waiting
                else "the record is at its end"
            )
            raise ReplayDiverged(
                f"run {effects.row.id}: {what}, but the agent issues nothing",
                remedy="The agent waits for something that is not an effect of its run, or its code has changed.",
                at=str(Cursor(effects.row.id, waiting.seq if waiting else effects.seq)),
            )


async def judged(runner: Runner, row: RunRow, task: Task, effects: Effects | None) -> None:
    """File the judge's verdict and the world's own claim, once."""
    store, run = runner.store, Run(runner.store, row)
    if effects is None and store.annotations([row.id], target="run"):
        return
    rows = []
    if effects is not None and effects.claimed is not None:
        rows.append(Annotation("run", "env", effects.claimed, run=row.id, scope=row.id))
    if (effects.ended if effects is not None else run.stop) not in UNJUDGED:
        rows += await verdict(runner, run, task, effects.world if effects is not None else None)
    if rows:
        store.annotate(rows)


async def verdict(
    runner: Runner, run: Run, task: Task, world: World | None, judge: Judge | None = None
) -> list[Annotation]:
    """What the judge says of a run. A judge that raises, gives no finite number or takes longer than
    ``runner.judge_seconds`` leaves it ``undecided``: no reward, which is not a reward of zero.

    Raises:
        StoreError, ReplayError, BadInput: what the judge needs is not to be had; no verdict would differ.
    """
    if judge is None:
        if runner.taskset is None:
            return []
        judge = runner.taskset.judge
    limit = asyncio.timeout(runner.judge_seconds)
    try:
        async with limit:
            scores = {name: float(value) for name, value in (await judge(task, run, world)).items()}
        if strange := [name for name, value in scores.items() if not math.isfinite(value)]:
            raise ValueError(f"{strange[0]} is {scores[strange[0]]}")
    except (StoreError, ReplayError, BadInput):
        raise
    except Exception as error:
        late = f"no verdict within {runner.judge_seconds:g} s" if limit.expired() else str(error)
        told = json.dumps({"error": f"{type(error).__name__}: {late}"})
        return [Annotation("run", "undecided", run=run.id, scope=run.id, data=told)]
    return [Annotation("run", name, value, run=run.id, scope=run.id) for name, value in scores.items()]


def close(runner: Runner, effects: Effects) -> None:
    """Give back what a run held: its world, its rows of the engine's cache."""
    if effects.world is not None:
        effects.world.close()
    for model in {id(m): m for m in (runner.model, *runner._models.values())}.values():
        if batches(model):
            model.release(effects.row.id)


async def follow(runner: Runner, clerk: Clerk, row: RunRow, task: Task) -> int:
    """Replay: give the number of Calls followed; the store is not written.

    Raises:
        ReplayDiverged: see ``Runner.replay``.
    """
    calls = runner.store.calls(row.id)
    if not calls:
        raise BadInput(f"run {row.id} has no Calls yet", remedy="`clew resume` it first.")
    effects = begin(runner, clerk, row, task, calls, replay=True)
    await finish(runner, effects, task)
    assert effects.tape is not None
    if effects.tape.pending:
        missed = effects.tape.order[effects.tape.position]
        raise ReplayDiverged(
            f"run {row.id} ended before Call {missed.seq} ({missed.kind}) answered", at=str(Cursor(row.id, missed.seq))
        )
    return len(calls)


async def gathered(work: Sequence[Awaitable[Any]]) -> None:
    """Wait for all runs; a run that cannot be followed lets the others end first, any other error cancels them.

    Raises:
        The first error.
    """
    tasks = {asyncio.ensure_future(w) for w in work}
    first: BaseException | None = None
    waiting = tasks
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
            for error in [t.exception() for t in done if not t.cancelled() and t.exception() is not None]:
                first = first or error
                if not isinstance(error, ReplayError):
                    raise error  # type: ignore[misc]
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    if first is not None:
        raise first

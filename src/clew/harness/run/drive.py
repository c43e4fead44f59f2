"""Driving one run: from its record, live to its end, and judged; a child run likewise, when its parent spawns it."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from clew.core.aio import shut
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
from clew.core.keys import REQUEST, canonical, derive, digest
from clew.core.protocols import Taskset, World
from clew.core.records import Call, Cursor, Edit, Intervention, RunRow
from clew.core.values import Limits, Sampling, StopReason, Task
from clew.harness.fork.edits import fork_row, kept_replies
from clew.harness.loading import Agent, agent_ref, load_agent, play, source_digest
from clew.harness.run import acts, lifecycle
from clew.harness.run.dispatch import LEASE_SECONDS, Dispatcher
from clew.harness.run.live import LiveRun
from clew.harness.run.pending import GIVEN_UP, Pending, Stop, away, batches, revive
from clew.harness.run.restore import world_at
from clew.harness.run.run_state import RunState
from clew.harness.run.spec import OnRun, RunSpec, sampling_of
from clew.harness.run.tape import Tape, check_whole, unanswered
from clew.harness.verdicts import judged
from clew.models.shaping import changed
from clew.store.base import Keeper
from clew.store.run import Run
from clew.worlds.world_asks import open_world

T = TypeVar("T")


async def drive(
    spec: RunSpec,
    dispatch: Dispatcher,
    row: RunRow,
    task: Task,
    on_run: OnRun | None = None,
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
    store = spec.store
    async with nullcontext() if nested else dispatch.room:
        store.lease(row.id, dispatch.owner, LEASE_SECONDS)
        dispatch.active.add(row.id)
        state: RunState | None = None
        seats = spec.model if batches(spec.model) else None
        if seats is not None:
            seats.seat(1)
        try:
            calls = store.calls(row.id) if calls is None else calls
            if not (calls and calls[-1].kind == "end"):
                state = begin(spec, dispatch, row, task, calls)
                if state.tape is not None:
                    resuming = any(c.run == row.id for c in calls)
                    known, asking = state.tape.known(row.id), acts.of_world(state)
                    state.world = await world_at(
                        spec, task, known, state.edits, resuming=resuming, redo=redo == "redo", asks=asking
                    )
                await finish(spec, state, task)
            await judged(spec, row, task, state)
            dispatch.active.discard(row.id)
            store.release(row.id, dispatch.owner)  # goes with the commit below
            await dispatch.settle()
        finally:
            if row.id in dispatch.active:
                dispatch.active.discard(row.id)
                store.release(row.id, dispatch.owner)
            dispatch.agents.pop(row.id, None)
            if seats is not None:
                seats.seat(-1)
            if state is not None:
                close(spec, state)
    run = Run(store, row)
    if on_run is not None:
        on_run(run)
    return run


def begin(
    spec: RunSpec,
    dispatch: Dispatcher,
    row: RunRow,
    task: Task,
    calls: list[Call],
    *,
    replay: bool = False,
) -> RunState:
    """The state of a run, with what is recorded as its tape."""
    changes = Intervention.from_json(json.loads(row.changes) if row.changes else None)
    known = json.loads(row.settings)
    tape = None
    kept = None
    if calls or row.lineage:
        check_whole(spec.store, row, calls)
        tape = tape_of(spec.store, row, calls, changes, replay)
        tape.load(spec.store)
        if changes.keep and not replay:
            place = Cursor.parse(row.parent)
            kept = kept_replies(Run(spec.store, place.run), place.seq)
    limits = merged(task.limits, Limits(**known.get("limits", {})))
    if "fork_limits" in known:
        limits = Limits(**known["fork_limits"])
    how = changed(Sampling(), sampling_of(known))
    made = partial(RunState, spec, dispatch, row, replace(task, secret=None), tape=tape, edits=changes)
    return made(replay=replay, kept=kept, sampling=how, limits=limits)


def tape_of(store: Keeper, row: RunRow, calls: list[Call], changes: Intervention, replay: bool) -> Tape:
    """What a run follows: its record, and for a fork what the forked run did below its place that it does not share."""
    place = Cursor.parse(row.parent) if row.parent else None
    if place is None or replay:
        return Tape(row.id, calls)
    shared = row.lineage[-1].stop if row.lineage else 0
    at = next(iter(store.calls(place.run, place.seq, place.seq + 1)), None)
    mine = {c.seq: c for c in calls if c.run == row.id or c.seq < shared}
    theirs = store.calls(place.run, shared, place.seq)
    anew = {c.seq for c in unanswered(theirs, at)}
    below = {c.seq: c._replace(done=-1, child="") if c.seq in anew else c for c in theirs}
    whole = sorted((below | mine).values(), key=lambda c: c.seq)
    hold = at if place.seq not in mine else None
    return Tape(row.id, whole, hold, not touches_request(changes, hold), place.seq)


def touches_request(changes: Intervention, hold: Call | None) -> bool:
    """Whether an edit alters what is asked at the fork point, so that it cannot be compared with the record."""
    return hold is None or any(
        e.kind in ("say", "insert", "delete") or (e.kind in ("model", "sampling", "tap") and e.seq <= hold.seq)
        for e in changes.edits
    )


def merged(task: Limits, run: Limits) -> Limits:
    """A task's own limits go before the runner's."""
    names = ("steps", "tokens", "seconds", "cost")
    return Limits(**{k: getattr(task, k) if getattr(task, k) is not None else getattr(run, k) for k in names})


async def finish(spec: RunSpec, state: RunState, task: Task) -> None:
    """Run the agent to its end and record why it ended."""
    work = asyncio.ensure_future(conduct(spec, state, task))
    try:
        stopped = await lifecycle.watch(work, state) if state.tape is not None else None
        stopped = stopped or await lifecycle.in_time(work, state)
        if state.lost is not None:
            raise state.lost
        reason, error = (stopped, "") if stopped is not None else work.result()
    except BaseException:
        lifecycle.leave(state)
        for child in state.children:
            child.cancel()
        await shut({work})
        await asyncio.gather(*state.children, return_exceptions=True)
        raise
    lifecycle.end(state, reason, error)
    if state.children:
        await asyncio.wait(state.children)


async def conduct(spec: RunSpec, state: RunState, task: Task) -> tuple[StopReason, str]:
    """Call the agent and turn the way it ends into a StopReason: the one place where exceptions become reasons."""
    config = json.loads(state.row.config or "{}")
    state.timers.hold()
    try:
        await lifecycle.open(state, partial(_opened, state, spec.taskset))
        if state.row.id in state.dispatch.unwanted:
            raise asyncio.CancelledError
        agent = asyncio.current_task()
        assert agent is not None
        state.dispatch.agents[state.row.id] = partial(state.events.bring, agent.cancel)
        await play(spec.agent, spec.agent_ref, LiveRun(state, partial(spawn, state)), config)
    except BaseException as raised:
        return _reason(state, innermost(raised))
    finally:
        state.over = True
    return state.stopped or (StopReason.DONE if state.done else StopReason.RETURNED), ""


def _reason(state: RunState, error: BaseException) -> tuple[StopReason, str]:
    if isinstance(error, Stop):
        return error.reason, error.why
    if isinstance(error, ContextOverflow):
        return StopReason.CONTEXT_FULL, str(error)
    if isinstance(error, ModelError):
        return StopReason.MODEL_ERROR, str(error)
    if isinstance(error, WorldError):
        return StopReason.WORLD_ERROR, str(error)
    if isinstance(error, asyncio.CancelledError) and state.row.id in state.dispatch.unwanted:
        return StopReason.CANCELLED, ""
    if isinstance(error, asyncio.CancelledError | GeneratorExit) and state.stopped is not None:
        return state.stopped, ""
    if isinstance(error, SystemExit | GeneratorExit):  # it would end the process, and every other run with it
        return StopReason.AGENT_ERROR, f"{type(error).__name__}: the agent called for the end of the process ({error})"
    if isinstance(error, (ReplayError, StoreError, UnknownName)) or not isinstance(error, Exception):
        raise error from None
    return StopReason.AGENT_ERROR, "".join(traceback.format_exception(error)[-4:]).strip()


def _opened(state: RunState, taskset: Taskset | None) -> World | None:
    return open_world(taskset, state.task, acts.of_world(state)) if taskset is not None else None


def innermost(error: BaseException) -> BaseException:
    """The first error of a group (an agent's TaskGroup), else the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = next((e for e in error.exceptions if isinstance(innermost(e), Stop)), error.exceptions[0])
    return error


def close(spec: RunSpec, state: RunState) -> None:
    """Give back what a run held: its world, its rows of the engine's cache."""
    if state.world is not None:
        state.world.close()
    for model in {id(m): m for m in (spec.model, *spec.models.built())}.values():
        if batches(model):
            model.release(state.row.id)


# ---- child runs ------------------------------------------------------------------------------------------------------


async def spawn(run: RunState, agent: Agent | str, task: Task | str, config: Mapping[str, Any]) -> Run:
    """Issue a spawn; give the recorded child run, or drive a new one to its end."""
    found, mine = load_agent(agent) if isinstance(agent, str) else agent, isinstance(task, Task)
    spec = replace(
        run.spec,
        agent=found,
        agent_ref=agent_ref(agent),
        agent_digest=source_digest(found),
        config=config,
        taskset=run.spec.taskset if mine else None,
    )
    task = task if isinstance(task, Task) else Task(f"{run.task.id}/{run.seq}", task)
    row = spec.row(
        task,
        seed=derive(run.row.seed, run.seq, "child"),
        order=(*run.row.order, run.seq),
        spawned_by=str(Cursor(run.row.id, run.seq)),
        origin="spawn",
    )
    request = digest(REQUEST, b"spawn", canonical([row.agent, task.id, task.prompt, json.loads(row.config)]))
    what, apply = f"child {row.agent}", partial(_returned, run.spec.store)
    pending, recorded = run.begin("spawn", request, what, apply, action=row.agent)
    if recorded is not None:
        return await run.follow(pending, recorded)
    with run.issuing(pending, WorldError):
        row = row._replace(id=pending.call.child or row.id)
        pending.call = pending.call._replace(child=row.id)
        pending.record = partial(_ended, run, pending)
        pending.lasting = True
        run.open_calls[pending.call.seq] = pending
        run.intend(pending)
        row = _child_row(spec.store, row, run.at.get(("child", pending.call.seq)))
        child = run.dispatch.start(pending, drive(spec, run.dispatch, row, task, nested=True))
        run.children.add(child)
        child.add_done_callback(run.children.discard)
        pending.stop = partial(run.dispatch.end, row.id)
    with away(run.spec.model):
        return await pending.taken()


def _ended(run: RunState, pending: Pending[Run], ended: Run | BaseException) -> Run:
    """Record the end of a child run. One that cannot be followed or kept leaves its parent as it is too."""
    if isinstance(ended, BaseException):
        raise ended
    seconds = time.time() - pending.call.started
    return run.complete(pending, child=ended.id, text=str(ended.stop or ""), reward=ended.reward, seconds=seconds)


def _child_row(store: Keeper, row: RunRow, fork: Edit | None) -> RunRow:
    """The row of a child: as the store has it, else a new one, of a fork where an edit of the parent asks for that."""
    try:
        return store.row(row.id)
    except UnknownName:
        if fork is not None:
            origin, changes = Run(store, fork.value["run"]), Intervention.from_json(fork.value["changes"])
            made = fork_row(origin, fork.value["seq"], changes, fork.value["mode"], 0, spawned_by=row.spawned_by)
            row = made._replace(id=row.id)
        store.put_run(row)
        return row


def _returned(store: Keeper, call: Call) -> Run:
    if call.error:
        raise revive(call.error)
    return Run(store, call.child)


# ---- many runs -------------------------------------------------------------------------------------------------------


async def follow(spec: RunSpec, dispatch: Dispatcher, row: RunRow, task: Task) -> int:
    """Replay: give the number of Calls followed; the store is not written. An unfinished run is followed to the first
    Call that nothing answered.

    Raises:
        ReplayDiverged: see ``Runner.replay``.
    """
    calls = spec.store.calls(row.id)
    if not calls:
        raise BadInput(f"run {row.id} has no Calls yet", remedy="`clew resume` it first.")
    state = begin(spec, dispatch, row, task, calls, replay=True)
    await finish(spec, state, task)
    assert state.tape is not None
    told = state.tape.order[state.tape.position :]
    left = [c for c in told if c.error != GIVEN_UP and c.kind != "note"]  # nobody waits for those
    if left and calls[-1].kind == "end":
        missed = left[0]
        raise ReplayDiverged(
            f"run {row.id} ended before Call {missed.seq} ({missed.kind}) answered", at=str(Cursor(row.id, missed.seq))
        )
    return len(calls)


async def as_ended(work: Iterable[Awaitable[T]]) -> AsyncGenerator[T, None]:
    """Run all at once and give each result as it comes; a run that cannot be followed lets the others end first.

    Raises:
        The first ReplayError, once all others have ended; any other error at once, and the others are cancelled.
    """
    stuck: ReplayError | None = None
    ended: asyncio.Queue[asyncio.Future[T]] = asyncio.Queue()
    tasks = [asyncio.ensure_future(one) for one in work]
    for task in tasks:
        task.add_done_callback(ended.put_nowait)
    try:
        for _ in tasks:
            try:
                result = (await ended.get()).result()
            except ReplayError as error:
                stuck = stuck or error
                continue
            yield result
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if stuck is not None:
        raise stuck


async def gathered(work: Iterable[Awaitable[T]]) -> list[T]:
    """Results of all in the order in which they end; raises as ``as_ended``."""
    async with aclosing(as_ended(work)) as results:
        return [result async for result in results]

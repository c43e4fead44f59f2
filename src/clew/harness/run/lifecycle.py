"""The first Call of a run and its last, and the watch over it while it follows its record.

``drive`` calls all of it. Nothing here performs an effect of the agent's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from clew.core.aio import shut
from clew.core.errors import ReplayDiverged, WorldError
from clew.core.keys import REQUEST, digest, encode
from clew.core.legality import issue_key
from clew.core.protocols import World
from clew.core.records import Call, Cursor, Setup
from clew.core.values import Observation, StopReason
from clew.harness.run import acts
from clew.harness.run.pending import CUT_OFF, GIVEN_UP, Pending, revive
from clew.harness.run.run_state import RunState
from clew.harness.run.tape import Tape
from clew.harness.tools import HasFiles
from clew.store.run import observed

FAILED = (StopReason.MODEL_ERROR, StopReason.WORLD_ERROR, StopReason.AGENT_ERROR)
INSIDE = (StopReason.DONE, StopReason.RETURNED, StopReason.CONTEXT_FULL, StopReason.PROGRAM_FAILED, *FAILED)

PATIENCE = 2.0  # seconds an agent may be idle while recorded results wait, before the replay is called diverged
PASSES = 200  # of the loop in which nothing happens, after which an agent counts as idle
LATE = 1.0  # seconds past its time limit after which an agent that issues nothing is cancelled
PAUSE = 0.02  # seconds that an agent is idle before a timer of its own is fired, where the record gives something up


async def open(run: RunState, prepare: Callable[[], World | None]) -> None:
    """Call 0: the first observation, the state key, a snapshot, the tools."""
    request = digest(REQUEST, b"open", encode(run.task.id))
    pending, recorded = run.begin("open", request, "the run's opening", partial(_opened, run))
    if recorded is not None:
        await run.follow(pending, recorded)
        return
    with run.issuing(pending, WorldError):
        run.world = prepare()
        world = run.world
        looking = [name for name, tool in run.spec.tools.items() if tool.files]
        if looking and world is not None and not isinstance(world, HasFiles):
            raise WorldError(acts.no_files(looking[0]), remedy=acts.IN_FILES)
        view = world.observe() if world is not None else Observation("")
        tools = (*(world.tools if world is not None else ()), *(t.spec for t in run.spec.tools.values()))
        run.complete(
            pending,
            text=view.text,
            reward=view.reward,
            terminal=view.done,
            legal=view.legal,
            extra=view.extra,
            state=world.state_key if world is not None else b"",
            snapshot=acts.snapshot(run, world),
            setup=Setup(tools=tools) if tools else None,
        )


def _opened(run: RunState, call: Call) -> None:
    if call.error:
        raise revive(call.error)
    run.view, run.done = observed(call), call.terminal
    run.tools = call.setup.tools if call.setup else ()


def end(run: RunState, reason: StopReason, error: str = "") -> None:
    """The last Call. While replaying, check that the run ended so.

    Raises:
        ReplayDiverged: it was recorded to go on, or to end otherwise.
    """
    run.ended = None
    left, run.open_calls = list(run.open_calls.values()), {}
    for pending in (*left, *run.waiting.values()):
        pending.future.drop()
    for pending in left:
        run.record(pending, {"error": CUT_OFF})
        if pending.stop is not None:
            pending.stop()
    recorded = run.tape.calls.get(run.seq) if run.tape is not None else None
    if run.tape is not None and recorded is not None and not (run.replay and recorded.done < 0):
        returning = reason in (StopReason.DONE, StopReason.RETURNED) and run.tape.cancelled  # when it was cancelled
        if recorded.kind != "end" or not (recorded.action == reason or returning):
            raise ReplayDiverged(
                f"the record goes on with {recorded.kind} {recorded.action[:40]!r}, the run now ends ({reason})",
                remedy="The agent's code or arguments differ from those recorded."
                + (f" It raised {_last(error)}" if error else ""),
                at=str(Cursor(run.row.id, run.seq)),
            )
        run.tape.prove(recorded)
    elif not run.replay:
        call = Call(run.row.id, run.seq, "end", digest(REQUEST, b"end"), run.clock, action=reason, started=time.time())
        run.issue = issue_key(run.issue, call)
        run.put_fresh()
        # `text` marks an end that came from outside the agent: replay raises it instead of awaiting a return
        outside = "" if reason in INSIDE else "stopped"
        run.record(Pending(call, run.issue, run.handed, lambda _: None), {"text": outside, "error": error})
    run.ended = reason


def leave(run: RunState) -> None:
    """Leave a run as it is: nothing more is recorded, and nobody waits any longer."""
    run.closing = True
    for pending in (*run.open_calls.values(), *run.waiting.values()):
        pending.future.drop()


def _last(error: str) -> str:
    """What was raised, of a traceback that says where too."""
    lines = [line for line in error.splitlines() if line.strip() and not line[0].isspace()]
    return (lines or [error])[-1][:300]


async def watch(work: asyncio.Future[tuple[StopReason, str]], state: RunState) -> StopReason | None:
    """While the record is followed, see that it goes on. An idle agent waits for a timer of its own, or to be
    cancelled as it was; one that waits for neither has diverged. An agent that computes in a thread is not idle: that
    takes as long as it takes, and meanwhile its timers run by the wall clock, as when the run was made.

    Gives what ``in_time`` gives, of a run whose time was over while its agent waited for something else than effects.

    Raises:
        ReplayDiverged: nothing can be handed over and the agent asks for nothing, or it cancels what had answered.
    """
    tape, timers = state.tape, state.timers
    assert tape is not None
    idle, since, last = 0, time.monotonic(), (-1, -1, -1, -1)
    while not work.done() and (state.behind or state.replay):
        idle += 1
        await asyncio.sleep(0 if idle < PASSES else 0.005)
        if state.lost is not None:
            raise state.lost
        now = (state.seq, tape.position, timers.fired, timers.jobs)
        if now != last:
            idle, since, last = 0, time.monotonic(), now
        quiet = time.monotonic() - since if idle > PASSES else 0.0
        if quiet > PAUSE and tape.outlasted(state.seq):
            return await stop(work, state)
        given_up = tape.pending and tape.order[tape.position].error == GIVEN_UP
        busy = timers.jobs > 0
        if quiet > (timers.wait if busy else min(PAUSE if given_up else 10 * PAUSE, timers.wait)) and timers.fire():
            continue
        if quiet > PAUSE and state.cut and not busy:  # of versions that did not tell where an effect was given up
            state.cut.pop().drop()
            continue
        cancelled = tape.cancelled and not (busy and timers.wait)
        if given_up and state.row.id not in state.dispatch.unwanted and quiet > (PAUSE if cancelled else PATIENCE):
            if cancelled or not busy:
                state.dispatch.end(state.row.id)
        elif quiet > PATIENCE and not busy:
            raise _stuck(state, tape)
    return None


async def in_time(work: asyncio.Future[tuple[StopReason, str]], state: RunState) -> StopReason | None:
    """Wait for the agent; one that is busy with something else than effects when its time is over is cancelled.

    Gives TIME_LIMIT where the agent did not even end when cancelled, None where ``work`` has its result.
    """
    while not work.done():
        left = state.budget.deadline()
        # Cancelled here, nothing of the agent is cancelled before ``closing`` is set.
        await asyncio.wait({work}, timeout=None if left is None else left + LATE)
        if not work.done() and state.budget.deadline() == 0:
            return await stop(work, state)
    return None


async def stop(work: asyncio.Future[tuple[StopReason, str]], state: RunState) -> StopReason | None:
    """Cancel an agent whose time is over; give TIME_LIMIT where it did not end by itself then."""
    state.stopped = state.stopped or StopReason.TIME_LIMIT
    return None if await shut({work}) else state.stopped


def _stuck(state: RunState, tape: Tape) -> ReplayDiverged:
    waiting = tape.order[tape.position] if tape.pending else None
    what = f"Call {waiting.seq} ({waiting.kind}) was recorded to answer next" if waiting else "the record is at its end"
    return ReplayDiverged(
        f"run {state.row.id}: {what}, but the agent issues nothing",
        remedy="The agent waits for something that is not an effect of its run, or its code has changed.",
        at=str(Cursor(state.row.id, waiting.seq if waiting else state.seq)),
    )

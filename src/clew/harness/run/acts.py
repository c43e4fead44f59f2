"""Acting: in the world, one act at a time, or by a tool; and what of an act may be done twice."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Awaitable
from functools import partial

from clew.core.errors import BadInput, ClewError, WorldError
from clew.core.keys import REQUEST, digest, encode
from clew.core.protocols import World
from clew.core.records import Call, Edit, action_text, changed
from clew.core.values import Observation, StopReason, ToolCall, Usage
from clew.harness.run.pending import Pending, Stop, revive, snapshots
from clew.harness.run.run_state import RunState

SMALL = 1000  # bytes; a snapshot below this is kept with every act


async def act(run: RunState, action: str | ToolCall) -> Observation:
    """Issue an act; give the recorded observation, or perform it.

    Acts of worlds in this process answer at once and become durable with the next ask. What cannot be undone (a world
    of kind ``none``, a tool that is not idempotent) is committed as an intent before it happens.
    """
    if not isinstance(action, (str, ToolCall)):
        raise BadInput(f"run.act() was given a {type(action).__name__}", remedy="Pass a Reply, a string or a ToolCall.")
    text, finish = action_text(action), "tool" if isinstance(action, ToolCall) else ""
    tool = run.spec.tools.get(action.name) if isinstance(action, ToolCall) else None
    given = run.at.get(("result", run.seq))
    absent = tool is None and run.world is None
    if absent and given is None and not run.on_tape():
        raise Stop(run.ended or StopReason.NO_WORLD)
    request, what = digest(REQUEST, b"act", finish.encode(), encode(text)), f"act {text[:60]!r}"
    pending, recorded = run.begin("act", request, what, partial(_applied, run), action=text, finish=finish)
    if recorded is not None:
        return await run.follow(pending, recorded)
    if absent:
        return _done(run, pending, given, Observation(""))
    lasting = not tool.idempotent if tool is not None else run.world is not None and run.world.restores == "none"
    if lasting:
        run.intend(pending)
        run.dispatch.store.commit()
    outcome: Observation | Awaitable[Observation] | Exception
    try:
        if tool is not None:
            assert isinstance(action, ToolCall)
            outcome = tool.call(action)
        elif run.acting:
            outcome = _in_turn(run, action)
        else:
            assert run.world is not None
            run.within, run.luck = pending.call.seq, 0
            outcome = run.world.step(action)
            if run.luck:
                pending.call = changed(pending.call, seed=run.luck)
    except Exception as error:
        outcome = error
    if isinstance(outcome, (Observation, Exception)):
        try:
            return _recorded(run, pending, outcome)
        finally:
            if lasting:
                run.dispatch.store.commit()
    run.open_calls[pending.call.seq] = pending
    pending.record = partial(_recorded, run, pending)
    on_world = tool is None
    run.acting += on_world
    with run.away():
        run.dispatch.start(pending, _hold_turn(run, pending, outcome) if on_world else outcome)
        try:
            return await pending.taken()
        finally:
            run.acting -= on_world


async def _in_turn(run: RunState, action: str | ToolCall) -> Observation:
    assert run.world is not None
    outcome = run.world.step(action)
    return await outcome if inspect.isawaitable(outcome) else outcome


async def _hold_turn(run: RunState, pending: Pending[Observation], outcome: Awaitable[Observation]) -> Observation:
    """Acts on one world run one at a time, in the order they were issued; what the world asked goes with its act."""
    async with run.turn:
        run.inner, run.within, run.luck = [], pending.call.seq, pending.call.seed
        try:
            return await outcome
        finally:
            if run.luck:
                pending.call = changed(pending.call, seed=run.luck)
            if run.inner:
                usage = Usage(*(sum(one.usage[i] for one in run.inner) for i in range(3)))
                cost = sum(one.cost for one in run.inner)
                pending.call = changed(pending.call, inner=tuple(run.inner), usage=usage, cost=cost)


def _recorded(run: RunState, pending: Pending[Observation], outcome: Observation | BaseException) -> Observation:
    """Record an observation and give it, or record a failure and raise it."""
    if isinstance(outcome, BaseException):
        error = outcome if isinstance(outcome, ClewError) else WorldError(f"{type(outcome).__name__}: {outcome}")
        run.fail(pending, error, seconds=time.time() - pending.call.started)
    return _done(run, pending, run.at.get(("result", pending.call.seq)), outcome)


def _done(run: RunState, pending: Pending[Observation], given: Edit | None, outcome: Observation) -> Observation:
    if given is not None:
        outcome = outcome._replace(**({"text": given.value} if isinstance(given.value, str) else given.value))
    world = None if by_tool(run, pending.call) else run.world
    return run.complete(
        pending,
        text=outcome.text,
        reward=outcome.reward,
        terminal=outcome.done,
        legal=outcome.legal,
        state=world.state_key if world is not None else b"",
        snapshot=snapshot(run, world),
        forced=int(given is not None),
        seconds=time.time() - pending.call.started,
    )


def _applied(run: RunState, call: Call) -> Observation:
    """Take the result of an act: the agent's observation, and the run's view where the act was on the world."""
    run.step += 1
    if call.error:
        raise revive(call.error)
    view = Observation(call.text, call.reward, call.terminal, call.legal)
    if call.reward is not None:
        run.claimed = (run.claimed or 0.0) + call.reward
    if call.finish == "tool":
        view = view._replace(call_id=json.loads(call.action)[0])
    if call.state or call.forced:
        run.view, run.done = view, call.terminal
    return view


def by_tool(run: RunState, call: Call) -> bool:
    """Whether an act was performed by a tool beside the world."""
    return call.finish == "tool" and json.loads(call.action)[1] in run.spec.tools


def snapshot(run: RunState, world: World | None) -> bytes:
    """Keep the world's state: with every act while small, else every k acts. Gives the blob's key, or nothing."""
    if world is None or world.restores != "exact" or not snapshots(world):
        return b""
    if run.snapshot_size >= SMALL and run.step % run.spec.snapshot_every:
        return b""
    data = world.snapshot()
    run.snapshot_size = len(data)
    return run.dispatch.store.put_blob(data)

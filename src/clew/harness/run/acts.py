"""Acting: in the world, one act at a time, or by a tool; what may be done twice of it; what a world asks meanwhile."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from clew.core.errors import BadInput, ClewError, WorldError
from clew.core.keys import REQUEST, derive, digest, encode
from clew.core.protocols import Model, World, weights_of
from clew.core.records import Call, action_id, action_text, changed
from clew.core.values import Completion, Inner, Message, Observation, StopReason, ToolCall, Usage
from clew.harness.run.asks import Asked, as_model_error
from clew.harness.run.path import Path
from clew.harness.run.pending import Handed, Pending, Stop, away, revive, snapshots
from clew.harness.run.run_state import RunState
from clew.harness.tools import HasFiles, Tool
from clew.store.run import observed
from clew.worlds.world_asks import Asks

SMALL = 1000  # bytes; a snapshot below this is kept with every act
IN_FILES = "Use it in a workspace (--world workspace), or leave it out."
TOLD = 20  # names of tools that a model is told which called one that there is not


async def act(run: RunState, action: str | ToolCall) -> Observation:
    """Issue an act; give the recorded observation, or perform it.

    Acts of worlds in this process answer at once and become durable with the next ask. What cannot be undone (a world
    of kind ``none``, a tool that is not idempotent) is committed as an intent before it happens.
    """
    if not isinstance(action, (str, ToolCall)):
        raise BadInput(f"run.act() was given a {type(action).__name__}", remedy="Pass a Reply, a string or a ToolCall.")
    text, finish = action_text(action), "tool" if isinstance(action, ToolCall) else ""
    tool = run.spec.tools.get(action.name) if isinstance(action, ToolCall) else None
    request, what = digest(REQUEST, b"act", finish.encode(), encode(text)), f"act {text[:60]!r}"
    seq = run.turn_of("act", lambda _: request)
    given = run.at.get(("result", seq))
    unknown = _unknown(run, action)
    world = run.world if tool is None and unknown is None else None
    absent = tool is None and unknown is None and run.world is None
    if absent and given is None and not run.on_tape(seq):
        run.stopped = run.stopped or StopReason.NO_WORLD
        raise Stop(run.ended or run.stopped)
    pending, recorded = run.begin("act", request, what, partial(_applied, run), at=seq, action=text, finish=finish)
    if recorded is not None:
        return await run.follow(pending, recorded)
    pending.record = run.issuing(pending, WorldError)(partial(_recorded, run, pending, world))
    outcome: Observation | Awaitable[Observation] | Exception | None = None
    with run.issuing(pending, WorldError):
        if tool is None and world is None:
            return await run.result(pending, unknown or Observation(""))
        lasting = not tool.idempotent if tool is not None else world is not None and world.restores == "none"
        if lasting:
            run.intend(pending)
            run.dispatch.store.commit()
        outcome = _perform(run, pending, tool, world, action)
        if isinstance(outcome, (Observation, Exception)):
            try:
                return await run.result(pending, outcome)
            finally:
                if lasting:
                    run.dispatch.store.commit()
    if outcome is None or isinstance(outcome, (Observation, Exception)):
        return await pending.taken()  # it failed before it was performed
    return await _awaited(run, pending, world, outcome)


async def several(run: RunState, calls: Sequence[ToolCall]) -> list[Observation]:
    """Issue the acts of one reply in order; those of parallel tools that follow each other are issued together.

    Where one fails, the failure is raised when all that were issued with it have ended.
    """
    found: list[Observation] = []
    for apart, one_kind in groupby(calls, lambda call: not _parallel(run, call)):
        if apart:
            found += [await act(run, call) for call in one_kind]
            continue
        ended = await asyncio.gather(*(act(run, call) for call in one_kind), return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome
            found.append(outcome)
    return found


def _parallel(run: RunState, call: ToolCall) -> bool:
    tool = run.spec.tools.get(call.name)
    return tool is not None and tool.parallel


def _unknown(run: RunState, action: str | ToolCall) -> Observation | None:
    """What a model is told that calls a tool which it was not offered; None where somebody may know it.

    A tool that was offered and that nobody performs here is one of an imported record: its run ends at the call.
    """
    if not isinstance(action, ToolCall) or action.name in run.spec.tools:
        return None
    if run.world is not None and (run.world.tools or not run.spec.tools):
        return None  # the world answers, by its own rules
    names = [spec.name for spec in run.tools]
    if action.name in names or not names:
        return None
    told = ", ".join(names[:TOLD]) + (", …" if len(names) > TOLD else "")
    return Observation(f"error: there is no tool {action.name[:80]!r}; the tools are {told}", call_id=action.id)


def _perform(
    run: RunState, pending: Pending[Observation], tool: Tool | None, world: World | None, action: str | ToolCall
) -> Observation | Awaitable[Observation] | Exception:
    try:
        if tool is not None:
            assert isinstance(action, ToolCall)
            return tool.call(action) if not tool.files else _looking(run, tool, action)
        assert world is not None
        if run.acting:
            return _in_turn(world, action)
        run.within, run.luck = pending.call.seq, 0
        outcome = world.step(action)
        if run.luck:
            pending.call = changed(pending.call, seed=run.luck)
        return outcome
    except Exception as error:
        return error


async def _awaited(
    run: RunState, pending: Pending[Observation], world: World | None, outcome: Awaitable[Observation]
) -> Observation:
    """Wait for what takes time. An act that the agent gives up is over before that is recorded, and with it the state
    in which it left the world."""
    run.open_calls[pending.call.seq] = pending
    pending.lasting = True
    run.acting += world is not None
    with away(run.spec.model):
        run.dispatch.start(pending, _hold_turn(run, pending, world, outcome) if world is not None else outcome)
        try:
            return await pending.taken()
        finally:
            run.acting -= world is not None


async def _looking(run: RunState, tool: Tool, action: ToolCall) -> Observation:
    """Call a tool that looks at the files of the run, in a thread, and while no act on the world is under way."""
    if not isinstance(run.world, HasFiles):
        raise WorldError(no_files(tool.spec.name), remedy=IN_FILES)
    async with run.turn:
        with run.world.files() as folder:
            seen = await asyncio.to_thread(tool.call, action, folder)
            return await seen if inspect.isawaitable(seen) else seen


def no_files(name: str) -> str:
    """What is said of a tool that looks at the files of a run which has none."""
    return f"the tool {name} looks at the files of its run, and the world of this one has none"


async def _in_turn(world: World, action: str | ToolCall) -> Observation:
    outcome = world.step(action)
    return await outcome if inspect.isawaitable(outcome) else outcome


async def _hold_turn(
    run: RunState, pending: Pending[Observation], world: World, outcome: Awaitable[Observation]
) -> Observation:
    """Acts on one world run one at a time, in the order they were issued; what the world asked goes with its act, and
    so does the state in which it left the world: the next act may begin before this one is recorded."""
    try:
        async with run.turn:
            run.inner, run.within, run.luck = [], pending.call.seq, pending.call.seed
            try:
                seen = await outcome
                kept = {"state": world.state_key, "snapshot": snapshot(run, world)}
                pending.left = lambda: kept
                return seen
            except BaseException:
                state = world.state_key
                pending.left = lambda: {"state": state}
                raise
            finally:
                if run.luck:
                    pending.call = changed(pending.call, seed=run.luck)
                if run.inner:
                    usage = Usage(*(sum(one.usage[i] for one in run.inner) for i in range(3)))
                    cost = sum(one.cost for one in run.inner)
                    pending.call = changed(pending.call, inner=tuple(run.inner), usage=usage, cost=cost)
    finally:
        if inspect.iscoroutine(outcome):
            outcome.close()  # one that was given up before its turn was never begun


def _recorded(
    run: RunState, pending: Pending[Observation], world: World | None, outcome: Observation | BaseException
) -> Observation:
    """Record an observation and give it, or record a failure and raise it. ``world``: what the act was on, if any."""
    kept = pending.left() or {"state": world.state_key if world is not None else b""}
    if isinstance(outcome, BaseException):
        error = outcome if isinstance(outcome, ClewError) else WorldError(f"{type(outcome).__name__}: {outcome}")
        run.fail(pending, error, state=kept["state"], seconds=time.time() - pending.call.started)
    given = run.at.get(("result", pending.call.seq))
    if given is not None:
        outcome = outcome._replace(**({"text": given.value} if isinstance(given.value, str) else given.value))
    return run.complete(
        pending,
        text=outcome.text,
        reward=outcome.reward,
        terminal=outcome.done,
        legal=outcome.legal,
        extra=outcome.extra,
        **({"snapshot": snapshot(run, world)} | kept),
        forced=int(given is not None),
        seconds=time.time() - pending.call.started,
    )


def _applied(run: RunState, call: Call) -> Observation:
    """Take the result of an act: the agent's observation, and the run's view where the act was on the world."""
    run.step += 1
    if call.error:
        raise revive(call.error)
    view = observed(call)
    if call.reward is not None:
        run.claimed = (run.claimed or 0.0) + call.reward
    if call.finish == "tool":
        view = view._replace(call_id=action_id(call))
    if call.state or call.forced:
        run.view, run.done = view, call.terminal
    return view


def snapshot(run: RunState, world: World | None) -> bytes:
    """Keep the world's state: with every act while small, else every k acts. Gives the blob's key, or nothing."""
    if world is None or world.restores != "exact" or not snapshots(world):
        return b""
    if run.snapshot_size >= SMALL and run.step % run.spec.snapshot_every:
        return b""
    data = world.snapshot()
    run.snapshot_size = len(data)
    return run.dispatch.store.put_blob(data)


# ---- what a world asks -----------------------------------------------------------------------------------------------


def of_world(run: RunState) -> Asks:
    """The models, and the luck, as the world of a run reaches them."""
    return Asks(partial(_told, run), partial(_luck, run), partial(_kept, run))


def _kept(run: RunState, text: str, model: str) -> None:
    """An answer that the world had without asking goes with the act under way, at no cost."""
    run.inner.append(Inner(model, text=text))


def _luck(run: RunState) -> int:
    """A seed that the run's own and the act under way fix; it is recorded with the act. 0 in no act."""
    run.luck = derive(run.row.seed, run.within, "luck") if run.within >= 0 else 0
    return run.luck


async def _told(run: RunState, messages: Sequence[Message], named: str, sampling: Mapping[str, Any]) -> str:
    """Ask a model for the world. What it answers goes with the act under way; its own prompt is on no path."""
    path, count = Path(run, -1, named or None, (), dict(sampling)), len(run.inner)
    for message in messages:
        path.say(message.role, message)
    asked = Asked(run, path, {})
    model = asked.live(run)
    run.put_fresh()
    pending = Pending(Call(run.row.id, -1, "ask", b"", -1), b"", Handed(), partial(_completed, model))
    request = asked.request(run, path, run.within, derive(run.row.seed, run.within, "world", count), count)
    run.dispatch.ask(pending, model, request)
    done = await pending.taken()
    facts = (model.ref, done.model, done.version, done.usage, done.cost, done.seconds)
    run.inner.append(Inner(*facts, done.message.text, done.tokens, weights_of(model)))
    return done.message.text


def _completed(model: Model, result: object) -> Completion:
    if isinstance(result, BaseException):
        raise as_model_error(model, result)
    assert isinstance(result, Completion)
    return result

"""The first Call of a run and its last."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from clew.core.errors import ReplayDiverged, WorldError
from clew.core.keys import REQUEST, digest, encode
from clew.core.legality import issue_key
from clew.core.protocols import World
from clew.core.records import Call, Cursor, Setup
from clew.core.values import Observation, StopReason
from clew.harness.run import acts
from clew.harness.run.pending import CUT_OFF, Pending, revive
from clew.harness.run.run_state import RunState

FAILED = (StopReason.MODEL_ERROR, StopReason.WORLD_ERROR, StopReason.AGENT_ERROR)
INSIDE = (StopReason.DONE, StopReason.RETURNED, StopReason.CONTEXT_FULL, *FAILED)


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
        view = world.observe() if world is not None else Observation("")
        tools = (*(world.tools if world is not None else ()), *(t.spec for t in run.spec.tools.values()))
        run.complete(
            pending,
            text=view.text,
            reward=view.reward,
            terminal=view.done,
            legal=view.legal,
            state=world.state_key if world is not None else b"",
            snapshot=acts.snapshot(run, world),
            setup=Setup(tools=tools) if tools else None,
        )


def _opened(run: RunState, call: Call) -> None:
    if call.error:
        raise revive(call.error)
    run.view, run.done = Observation(call.text, call.reward, call.terminal, call.legal), call.terminal
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
        if recorded.kind != "end" or recorded.action != reason:
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


def _last(error: str) -> str:
    """What was raised, of a traceback that says where too."""
    lines = [line for line in error.splitlines() if line.strip() and not line[0].isspace()]
    return (lines or [error])[-1][:300]

"""The first Call of a run and its last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from clew.core.errors import ReplayDiverged
from clew.core.keys import REQUEST, digest, encode
from clew.core.legality import issue_key
from clew.core.protocols import World
from clew.core.records import Call, Cursor, Setup
from clew.core.values import Observation, StopReason
from clew.harness.run import acts
from clew.harness.run.pending import CUT_OFF, Pending

if TYPE_CHECKING:
    from clew.harness.run.run_state import Effects

INSIDE = (
    StopReason.DONE, StopReason.RETURNED, StopReason.AGENT_ERROR, StopReason.MODEL_ERROR, StopReason.WORLD_ERROR,
    StopReason.CONTEXT_FULL,
)  # fmt: skip


async def open(run: Effects, prepare: Callable[[], World | None]) -> None:
    """Call 0: the first observation, the state key, a snapshot, the tools."""
    pending, recorded = run.begin("open", digest(REQUEST, b"open", encode(run.task.id)), "the run's opening")
    if recorded is not None:
        await run.follow(pending, recorded)
        run.live.tools = recorded.setup.tools if recorded.setup else ()
        return
    run.world = prepare()
    world = run.world
    view = world.observe() if world is not None else Observation("")
    tools = (*(world.tools if world is not None else ()), *(t.spec for t in run.spec.tools.values()))
    call = run.record(
        pending,
        text=view.text,
        reward=view.reward,
        terminal=view.done,
        legal=view.legal,
        state=world.state_key if world is not None else b"",
        snapshot=acts.snapshot(run, world),
        setup=Setup(tools=tools) if tools else None,
    )
    run.applied(call, None)
    run.live.tools = tools


def end(run: Effects, reason: StopReason, error: str = "") -> None:
    """The last Call. While replaying, check that the run ended so.

    Raises:
        ReplayDiverged: it was recorded to go on, or to end otherwise.
    """
    run.ended = None
    for pending in run.open_calls.values():
        pending.future.cancel()
    for pending in list(run.open_calls.values()):
        run.record(pending, error=CUT_OFF)
    request = digest(REQUEST, b"end")
    recorded = run.tape.calls.get(run.seq) if run.tape is not None else None
    if recorded is not None:
        if recorded.kind != "end" or recorded.action != reason:
            raise ReplayDiverged(
                f"the record goes on with {recorded.kind} {recorded.action[:40]!r}, the run now ends ({reason})",
                remedy="The agent's code or arguments differ from those recorded."
                + (f" It raised: {error[-300:]}" if error else ""),
                at=str(Cursor(run.row.id, run.seq)),
            )
        run.tape.prove(recorded, issue_key(run.issue, recorded))  # type: ignore[union-attr]
        run.ended = reason
        return
    if not run.replay:
        call = Call(run.row.id, run.seq, "end", request, run.clock, action=reason, started=time.time())
        run.issue = issue_key(run.issue, call)
        run.put_fresh()
        # `text` marks an end that came from outside the agent: replay raises it instead of awaiting a return
        outside = "" if reason in INSIDE else "stopped"
        run.record(Pending(call, run.issue), text=outside, error=error)
    run.ended = reason

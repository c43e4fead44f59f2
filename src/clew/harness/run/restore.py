"""Bringing a world back to the state it had at a Call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from clew.core.errors import CannotRestore, InDoubt
from clew.core.protocols import World
from clew.core.records import Call, Intervention
from clew.core.values import Task
from clew.harness.run.pending import snapshots
from clew.harness.run.spec import RunSpec
from clew.harness.tools import Tool
from clew.worlds.judging import retrace
from clew.worlds.world_asks import Asks, open_world


async def world_at(
    spec: RunSpec,
    task: Task,
    calls: Sequence[Call],
    changes: Intervention,
    *,
    resuming: bool = False,
    redo: bool = False,
    asks: Asks | None = None,
) -> World | None:
    """A world in the state it had after ``calls``: restored from the last snapshot, then stepped forward.

    Each re-enacted act is checked by its state key. Edits of kind world are applied where they stood. A world of
    kind ``none`` is only reopened to resume its own run, and only if it is found in the recorded state.

    Raises:
        CannotRestore: its kind forbids it.
        ReplayDiverged: a re-enacted act led to another state than recorded.
        InDoubt: an act that lasts was begun and never answered, and ``redo`` does not say to do it (again).
    """
    taskset, tools, edits = spec.taskset, spec.tools, changes.edits
    begun = [c for c in calls if c.kind == "act" and c.done < 0]
    doubtful = [c for c in begun if is_tool(c, tools) and not tools[json.loads(c.action)[1]].idempotent]
    if taskset is None:
        doubt(doubtful, redo)
        return None
    asks = asks or Asks()
    world = open_world(taskset, task, asks)
    if world is None:  # the agent works by tools, or only talks
        doubt(doubtful, redo)
        return None
    acts = [c for c in calls if c.kind in ("open", "act") and c.done >= 0 and c.state]
    done = [c for c in acts if c.kind == "act"]
    where = f"{calls[-1].run}@{calls[-1].seq}" if calls else ""
    if world.restores == "none":
        doubtful += [c for c in begun if not is_tool(c, tools)]
    doubt(doubtful, redo)
    if world.restores == "none" and acts:
        kind, here = type(world).__name__, world.state_key == acts[-1].state
        if resuming and (begun or acts[-1].terminal or here):
            return world
        if resuming or (not done and not here):
            raise CannotRestore(
                f"{kind} is no longer in the state it was recorded in", at=where, remedy="Collect a new run."
            )
        if done:
            raise CannotRestore(
                f"{kind} can be neither restored nor re-enacted (kind none)",
                remedy="Fork before its first act, or collect a new run.",
                at=where,
            )
    if world.restores == "exact" and snapshots(world) and (kept := [i for i, c in enumerate(acts) if c.snapshot]):
        last = acts[kept[-1]]
        world.restore(spec.store.blob(last.snapshot))
        acts, edits = acts[kept[-1] + 1 :], tuple(e for e in edits if e.seq > last.seq)
    await retrace(world, acts, edits, asks)
    return world


def doubt(begun: Sequence[Call], redo: bool) -> None:
    if begun and not redo:
        raise InDoubt(
            f"{begun[0].action[:60]!r} was begun and its result never arrived; it may or may not have happened",
            remedy="Find out, then `clew resume --redo` to do it (again), or fork there with a --result.",
            at=f"{begun[0].run}@{begun[0].seq}",
        )


def is_tool(call: Call, tools: Mapping[str, Tool]) -> bool:
    """Whether an act was performed by a tool beside the world."""
    return call.finish == "tool" and bool(call.action) and json.loads(call.action)[1] in tools

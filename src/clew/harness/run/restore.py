"""Bringing a world back to the state it had at a Call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from clew.core.errors import CannotRestore, InDoubt, ReplayDiverged
from clew.core.protocols import Store, Taskset, World
from clew.core.records import Call, Edit, action_of
from clew.core.values import Task
from clew.harness.run.pending import snapshots
from clew.harness.tools import Tool
from clew.worlds.judging import change, perform


async def world_at(
    taskset: Taskset | None,
    task: Task,
    store: Store,
    calls: Sequence[Call],
    edits: Sequence[Edit],
    *,
    tools: Mapping[str, Tool],
    resuming: bool = False,
    redo: bool = False,
) -> World | None:
    """A world in the state it had after ``calls``: restored from the last snapshot, then stepped forward.

    Each re-enacted act is checked by its state key. ``edits`` of kind world are applied where they stood. A world of
    kind ``none`` is only reopened to resume its own run, and only if it is found in the recorded state.

    Raises:
        CannotRestore: its kind forbids it.
        ReplayDiverged: a re-enacted act led to another state than recorded.
        InDoubt: an act that lasts was begun and never answered, and ``redo`` does not say to do it (again).
    """
    begun = [c for c in calls if c.kind == "act" and c.done < 0]
    doubtful = [c for c in begun if is_tool(c, tools) and not tools[json.loads(c.action)[1]].idempotent]
    if taskset is None:
        doubt(doubtful, redo)
        return None
    world = taskset.open(task)
    acts = [c for c in calls if c.kind in ("open", "act") and c.done >= 0 and not is_tool(c, tools)]
    changes = sorted((e for e in edits if e.kind == "world"), key=lambda e: e.seq)
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
    await bring(world, store, acts, changes)
    return world


async def bring(world: World, store: Store, acts: Sequence[Call], changes: list[Edit]) -> None:
    """Restore the last snapshot among ``acts`` and step the rest again, each checked by its state key."""
    start = 0
    if world.restores == "exact" and snapshots(world):
        kept = [i for i, c in enumerate(acts) if c.snapshot]
        if kept:
            world.restore(store.blob(acts[kept[-1]].snapshot))
            start = kept[-1] + 1
            changes = [e for e in changes if e.seq > acts[kept[-1]].seq]
    for call in acts[start:]:
        while changes and changes[0].seq <= call.seq:
            await change(world, changes.pop(0))
        if call.kind == "act":
            await perform(world, action_of(call))
        if world.state_key != call.state:
            raise ReplayDiverged(
                f"re-enacting Call {call.seq} ({call.action[:40]!r}) led to another state than recorded",
                remedy="The world is not deterministic given its task and actions, or its code has changed.",
                at=f"{call.run}@{call.seq}",
            )
    for edit in changes:
        await change(world, edit)


def doubt(begun: Sequence[Call], redo: bool) -> None:
    if begun and not redo:
        raise InDoubt(
            f"{begun[0].action[:60]!r} was begun and its result never arrived; it may or may not have happened",
            remedy="Find out, then `clew resume --redo` to do it (again), or fork there with a --result.",
            at=f"{begun[0].run}@{begun[0].seq}",
        )


def is_tool(call: Call, tools: Mapping[str, Tool]) -> bool:
    """Whether an act was performed by a tool beside the world."""
    return call.finish == "tool" and json.loads(call.action)[1] in tools

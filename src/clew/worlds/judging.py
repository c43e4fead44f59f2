"""What a judge needs of a record: the acts on the world, and the world they led to."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Iterable

from clew.core.errors import CannotRestore, ClewError, ReplayDiverged
from clew.core.protocols import Snapshots, Taskset, World
from clew.core.reading import Record
from clew.core.records import Call, Edit, action_of
from clew.core.values import Task, ToolCall
from clew.worlds.world_asks import Asks, open_world


def world_acts(run: Record) -> list[Call]:
    """The completed acts of a run on its world, in order; acts of tools beside the world carry no state key."""
    return [c for c in run.calls if c.kind == "act" and c.done >= 0 and c.state and not c.error]


async def reenact(taskset: Taskset, task: Task, run: Record) -> World:
    """A fresh world taken through the recorded acts, each checked by state key, and the run's edits of the world.

    Raises:
        CannotRestore: the world does not follow the record: that was altered, or the world is not deterministic.
    """
    asks = Asks()
    world = open_world(taskset, task, asks)
    try:
        acts = [c for c in run.calls if c.kind == "act" and c.done >= 0 and c.state]
        await retrace(world, acts, run.changes.edits, asks)
    except ClewError as error:
        world.close()
        raise CannotRestore(error.message, remedy=error.remedy, at=error.at) from error
    return world


async def retrace(world: World, acts: Iterable[Call], edits: Iterable[Edit], asks: Asks) -> None:
    """Take a world through recorded acts, each checked by its state key, and the edits of kind world between them.

    What the world asks meanwhile is answered from the record. An act that failed or was given up, and left the world in
    the state it had before, is passed over.

    Raises:
        ReplayDiverged: an act fails that did not, or leads to another state than recorded.
    """
    changes = sorted((e for e in edits if e.kind == "world"), key=lambda e: e.seq)
    for call in acts:
        what, at = f"re-enacting Call {call.seq} ({call.action[:40]!r})", f"{call.run}@{call.seq}"
        while changes and changes[0].seq <= call.seq:
            asks.no_luck()
            await change(world, changes.pop(0))
        if call.error and world.state_key == call.state:
            continue
        try:
            if call.kind == "act":
                asks.tell(call)
                await perform(world, action_of(call))
        except ClewError as error:
            if not call.error:
                raise ReplayDiverged(f"{what} failed: {error}", at=at) from error
        if world.state_key != call.state:
            raise ReplayDiverged(
                f"{what} led to another state than recorded",
                remedy="The record was altered, its code has changed, or the world is not determined by task and acts.",
                at=at,
            )
    asks.tell(None)
    for edit in changes:
        await change(world, edit)


async def perform(world: World, action: str | ToolCall) -> None:
    """Step a world, waiting where its step is asynchronous."""
    answer = world.step(action)
    if inspect.isawaitable(answer):
        await answer


async def change(world: World, edit: Edit) -> None:
    """Do what an edit of kind world says: restore a snapshot (base 85), or perform actions that no Call records.

    Raises:
        CannotRestore: the world takes no snapshot.
    """
    if isinstance(edit.value, str):
        if not isinstance(world, Snapshots):
            raise CannotRestore(f"{type(world).__name__} takes no snapshot", remedy="Edit it by actions.")
        world.restore(base64.b85decode(edit.value))
        return
    for action in edit.value:
        await perform(world, ToolCall(*action) if isinstance(action, (list, tuple)) else action)

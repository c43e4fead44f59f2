"""Forks: the rows of new runs that share a recorded run's Calls, and running them on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.records import Cursor, GroupKind, GroupRow, Intervention, RunRow, Segment
from clew.core.values import Limits
from clew.harness.run.dispatch import Clerk
from clew.harness.run.drive import drive, gathered
from clew.store import Group, Run, new_id

if TYPE_CHECKING:
    from clew.harness.runner import Runner


def fork_row(view: Run, seq: int, changes: Intervention, mode: str | int, member: int, **fields: Any) -> RunRow:
    """The row of a fork: flat lineage, seed by mode, everything else as its parent."""
    row = view.row
    lineage = tuple(s._replace(stop=min(s.stop, seq)) for s in row.lineage if s.start < seq)
    shared = row.lineage[-1].stop if row.lineage else 0
    if seq > shared:
        lineage += (Segment(row.id, shared, seq),)
    identity = new_id()
    if isinstance(mode, int):
        seed = mode if member == 0 else derive(mode, "sibling", member)
    elif mode == "same":
        seed = row.seed if member == 0 else derive(row.seed, "sibling", member)
    elif mode == "fresh":
        seed = derive(row.seed, "fork", identity)
    else:
        raise BadInput(f"seed {mode!r} is not a number", remedy='Give a number, "same" or "fresh".')
    token = next((len(e.value) for e in changes.edits if (e.kind, e.seq) == ("prefix", seq)), 0)
    fork = row._replace(
        id=identity,
        seed=seed,
        parent=str(Cursor(row.id, seq, token)),
        changes=json.dumps(changes.to_json(), ensure_ascii=False) if changes.edits or changes.keep else "",
        lineage=lineage,
        origin="fork",
        order=(*row.order, member),
        created=time.time(),
    )
    return fork._replace(**fields)


async def fork(
    runner: Runner,
    view: Run,
    seq: int,
    n: int,
    changes: Intervention,
    mode: str | int,
    on_run: Callable[[Run], None] | None,
    limits: Limits | None = None,
) -> Group:
    """Make ``n`` forks of a run at Call ``seq`` and run them to their ends.

    Raises:
        CannotRestore, ReplayDiverged: the world cannot be brought back there; nothing is stored then.
    """
    store, identity, task = runner.store, new_id(), runner.task_of(view.row)
    shared = store.calls(view.id, 0, seq)
    if runner.taskset is not None and seq > 1:
        probe = await runner.world_at(task, shared, changes, resuming=False)
        if probe is not None:
            probe.close()
    fields: dict[str, Any] = {"group": identity}
    if limits is not None:
        fields["settings"] = json.dumps(
            {**json.loads(view.row.settings), "fork_limits": asdict(limits)}, sort_keys=True
        )
    rows = [fork_row(view, seq, changes, mode, member, **fields) for member in range(n)]
    kind: GroupKind = "matched" if n > 1 and mode == "same" else "tree"
    group = GroupRow(identity, kind, view.task_id, tuple(r.id for r in rows), f"fork of {view.id}@{seq}")
    store.put_group(group)
    for row in rows:
        store.put_run(row)
    store.commit()
    async with Clerk(store, runner.owner, runner.concurrency) as clerk:
        await gathered([drive(runner, clerk, row, task, on_run, calls=shared) for row in rows])
    return Group(store, group)

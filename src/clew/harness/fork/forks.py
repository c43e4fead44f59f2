"""Making forks of a recorded run and running them to their ends."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from clew.core.records import GroupKind, GroupRow, Intervention
from clew.core.values import Limits
from clew.harness.executors import IN_LOOP, Executor, Prepared, driven
from clew.harness.fork.edits import fork_row
from clew.harness.run.restore import world_at
from clew.harness.run.spec import OnRun, RunSpec
from clew.harness.run.tape import check_whole
from clew.store import Group, Run, new_id


async def fork(
    spec: RunSpec,
    view: Run,
    seq: int,
    n: int,
    changes: Intervention,
    mode: str | int,
    on_run: OnRun | None = None,
    limits: Limits | None = None,
    executor: Executor = IN_LOOP,
) -> Group:
    """Make ``n`` forks of a run at Call ``seq`` and run them to their ends.

    Raises:
        CannotRestore, ReplayDiverged: the world cannot be brought back there; nothing is stored then.
    """
    store, identity, task = spec.store, new_id(), spec.task_of(view.row)
    shared = store.calls(view.id, 0, seq)
    check_whole(store, view.row, shared)
    if spec.taskset is not None and seq > 0:
        probe = await world_at(spec, task, shared, changes)
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
    work = [Prepared(row, task, shared) for row in rows]
    async with aclosing(driven(executor, spec, work, on_run)) as runs:
        async for _ in runs:
            continue
    return Group(store, group)

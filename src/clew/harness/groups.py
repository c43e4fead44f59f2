"""Groups: opening the runs that are compared with each other, or finding those a stopped collection left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.protocols import Model
from clew.core.records import Call, GroupRow, RunRow
from clew.core.values import Task
from clew.store import Run, new_id

if TYPE_CHECKING:
    from clew.harness.runner import Runner


class Collecting(TypedDict, total=False):
    """What every collection takes beside its tasks.

    model: instead of the runner's. name, iteration: name the groups ``name/iteration/task index``; what a stopped
    collection of that name already has is reused, its unfinished runs are resumed. on_run: called with each run when
    it has been judged.
    """

    model: Model | None
    name: str
    iteration: int
    on_run: Callable[[Run], None] | None


def open_groups(
    runner: Runner, tasks: Sequence[Task], n: int, seed: int, name: str, iteration: int
) -> list[tuple[GroupRow, list[RunRow], list[Call] | None]]:
    """Each task's group with its runs; new ones have no Calls ([]), those of found ones are in the store (None)."""
    known = {}
    if name:
        known = {
            row.name: row for row in map(runner.store.group, runner.store.groups()) if row.name.startswith(f"{name}/")
        }
    out: list[tuple[GroupRow, list[RunRow], list[Call] | None]] = []
    for index, task in enumerate(tasks):
        label = f"{name}/{iteration}/{index}" if name else ""
        if label in known:
            group = known[label]
            if group.task_id != task.id or len(group.runs) != n:
                raise BadInput(
                    f"{label} was begun with {len(group.runs)} runs of {group.task_id}, not {n} of {task.id}",
                    remedy="Give the collection another name, or the same tasks, n and seed.",
                )
            out.append((group, [runner.store.row(run) for run in group.runs], None))
            continue
        identity = new_id()
        rows = [
            runner.row(
                task,
                seed=derive(seed, iteration, task.id, member),
                group=identity,
                order=(iteration, index, member),
                meta=name,
            )
            for member in range(n)
        ]
        group = GroupRow(identity, "iid", task.id, tuple(r.id for r in rows), label)
        runner.store.put_group(group)
        for row in rows:
            runner.store.put_run(row)
        out.append((group, rows, []))
    return out

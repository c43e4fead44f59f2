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
from clew.store.base import Keeper

if TYPE_CHECKING:
    from clew.harness.runner import Runner


class Collecting(TypedDict, total=False):
    """What every way of collecting takes beside its tasks, as ``Runner.collect`` explains it."""

    model: Model | None
    name: str
    iteration: int
    on_run: Callable[[Run], None] | None


def named(store: Keeper, name: str) -> dict[str, GroupRow]:
    """The groups of a named collection by name, ``name/iteration/task index``; none without a name."""
    if not name:
        return {}
    return {row.name: row for row in map(store.group, store.groups()) if row.name.startswith(f"{name}/")}


def open_groups(
    runner: Runner, tasks: Sequence[Task], n: int, seed: int, name: str, iteration: int
) -> list[tuple[GroupRow, list[RunRow], list[Call] | None]]:
    """Each task's group with its runs; new ones have no Calls ([]), those of found ones are in the store (None)."""
    known = named(runner.store, name)
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

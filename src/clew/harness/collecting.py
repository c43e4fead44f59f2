"""Groups: opening the runs that are compared with each other, or finding those a stopped collection left."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypedDict

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.protocols import Model
from clew.core.records import GroupRow
from clew.core.values import Task
from clew.harness.executors import Executor, Prepared, driven
from clew.harness.run.spec import OnRun, RunSpec
from clew.store import Group, new_id
from clew.store.base import Keeper


class Collecting(TypedDict, total=False):
    """What every way of collecting takes beside its tasks, as ``Runner.collect`` explains it."""

    model: Model | None
    name: str
    iteration: int
    on_run: OnRun | None


class Opened(NamedTuple):
    """A group and its runs, which are to be driven."""

    group: GroupRow
    runs: list[Prepared]


def named(store: Keeper, name: str) -> dict[str, GroupRow]:
    """The groups of a named collection by name, ``name/iteration/task index``; none without a name."""
    if not name:
        return {}
    known = {group: label for group, label in store.group_names().items() if label.startswith(f"{name}/")}
    return {label: store.group(group) for group, label in known.items()}


def open_groups(
    spec: RunSpec,
    tasks: Sequence[Task],
    n: int,
    seed: int,
    name: str,
    iteration: int,
    known: Mapping[str, GroupRow] | None = None,
) -> list[Opened]:
    """Each task's group with its runs: those of a named collection that the store has, new ones of the others.

    Args:
        known: what ``named`` gives, where the caller has it already: reading it takes as long as the store has groups.

    Raises:
        BadInput: a group of that name holds another task or another number of runs.
    """
    known, out = named(spec.store, name) if known is None else known, list[Opened]()
    for index, task in enumerate(tasks):
        label = f"{name}/{iteration}/{index}" if name else ""
        if label in known:
            group = known[label]
            if group.task_id != task.id or len(group.runs) != n:
                raise BadInput(
                    f"{label} was begun with {len(group.runs)} runs of {group.task_id}, not {n} of {task.id}",
                    remedy="Give the collection another name, or the same tasks, n and seed.",
                )
            out.append(Opened(group, [Prepared(spec.store.row(run), task) for run in group.runs]))
            continue
        identity = new_id()
        rows = [
            spec.row(
                task,
                name=name,
                seed=derive(seed, iteration, task.id, member),
                group=identity,
                order=(iteration, index, member),
            )
            for member in range(n)
        ]
        group = GroupRow(identity, "iid", task.id, tuple(r.id for r in rows), label)
        spec.store.put_group(group)
        for row in rows:
            spec.store.put_run(row)
        out.append(Opened(group, [Prepared(row, task, []) for row in rows]))
    return out


async def ended(
    spec: RunSpec, executor: Executor, opened: Sequence[Opened], on_run: OnRun | None
) -> AsyncGenerator[Group, None]:
    """Drive the runs of all groups at once; give each group when its last run has ended.

    Raises:
        See ``executors.driven``.
    """
    groups, left = {it.group.id: it.group for it in opened}, {it.group.id: len(it.runs) for it in opened}
    for it in opened:
        if not it.runs:
            yield Group(spec.store, it.group)
    async with aclosing(driven(executor, spec, [run for it in opened for run in it.runs], on_run)) as runs:
        async for run in runs:
            left[run.group] -= 1
            if not left[run.group]:
                yield Group(spec.store, groups[run.group])

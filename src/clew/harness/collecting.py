"""Groups: opening the runs that are compared with each other, or finding those a stopped collection left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, TypedDict

from clew.core.errors import BadInput, ReplayError
from clew.core.keys import derive
from clew.core.protocols import Model
from clew.core.records import Call, GroupRow, RunRow
from clew.core.values import Task
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.drive import drive, gathered
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
    """A group whose runs are to be driven; ``calls`` is empty for new runs, and None where the store has to be read."""

    group: GroupRow
    task: Task
    runs: list[RunRow]
    calls: list[Call] | None


def named(store: Keeper, name: str) -> dict[str, GroupRow]:
    """The groups of a named collection by name, ``name/iteration/task index``; none without a name."""
    if not name:
        return {}
    return {row.name: row for row in map(store.group, store.groups()) if row.name.startswith(f"{name}/")}


def open_groups(spec: RunSpec, tasks: Sequence[Task], n: int, seed: int, name: str, iteration: int) -> list[Opened]:
    """Each task's group with its runs: those of a named collection that the store has, new ones of the others.

    Raises:
        BadInput: a group of that name holds another task or another number of runs.
    """
    known, out = named(spec.store, name), list[Opened]()
    for index, task in enumerate(tasks):
        label = f"{name}/{iteration}/{index}" if name else ""
        if label in known:
            group = known[label]
            if group.task_id != task.id or len(group.runs) != n:
                raise BadInput(
                    f"{label} was begun with {len(group.runs)} runs of {group.task_id}, not {n} of {task.id}",
                    remedy="Give the collection another name, or the same tasks, n and seed.",
                )
            out.append(Opened(group, task, [spec.store.row(run) for run in group.runs], None))
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
        out.append(Opened(group, task, rows, []))
    return out


async def ended(spec: RunSpec, opened: Sequence[Opened], on_run: OnRun | None) -> AsyncGenerator[Group, None]:
    """Drive the runs of all groups at once; give each group when its last run has ended.

    Raises:
        The first error of a run that cannot be followed, once all others have ended; any other error at once.
    """
    async with Dispatcher(spec.store, spec.owner, spec.concurrency) as dispatch:
        waiting = {}
        for it in opened:
            work = [drive(spec, dispatch, row, it.task, on_run, calls=it.calls) for row in it.runs]
            waiting[asyncio.ensure_future(gathered(work))] = it.group
        stuck: list[BaseException] = []
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for finished in done:
                    group, error = waiting.pop(finished), finished.exception()
                    if error is None:
                        yield Group(spec.store, group)
                    elif isinstance(error, ReplayError):
                        stuck.append(error)
                    else:
                        raise error
        finally:
            for unfinished in waiting:
                unfinished.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if stuck:
            raise stuck[0]

"""Where runs are driven: in this event loop, or by workers in other processes, as ``Runner(executor=)`` says.

Collections, forks, trees and continuations prepare runs (their rows are stored) and open a session of the executor,
which takes each run to its end. An executor never changes which runs there are.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import NamedTuple, Protocol

from clew.core.records import Call, RunRow
from clew.core.values import Task
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.drive import as_ended, drive
from clew.harness.run.spec import OnRun, RunSpec, Specified
from clew.store.run import Run


class Prepared(NamedTuple):
    """A run that is to be taken to its end; ``calls``: those it has or shares, None where the store is to be read."""

    row: RunRow
    task: Task
    calls: list[Call] | None = None


class Drive(Protocol):
    """Takes one run to its end and judges it, then calls ``on_run`` with the run; many may be under way at once.

    Raises:
        LeaseHeld, InDoubt, ReplayDiverged, CannotRestore, StoreError: the run is left as it is and can be resumed.
    """

    def __call__(self, run: Prepared, on_run: OnRun | None = None) -> Awaitable[Run]: ...


class Executor(Protocol):
    """Takes runs to their ends: in this process as ``IN_LOOP`` does, or elsewhere."""

    def session(self, spec: RunSpec) -> AbstractAsyncContextManager[Drive]:
        """What drives the runs of one collection; all they came to is committed when the session is left."""
        ...


class Driving(Specified, Protocol):
    """A Runner as code below it sees it, which drives runs where the Runner says."""

    @property
    def executor(self) -> Executor: ...


class InLoop:
    """Drives all runs in the running event loop; their asks and commits are batched by one Dispatcher."""

    @asynccontextmanager
    async def session(self, spec: RunSpec) -> AsyncIterator[Drive]:
        """As ``Executor.session``."""
        async with Dispatcher(spec.store, spec.owner, spec.concurrency) as dispatch:

            async def one(run: Prepared, on_run: OnRun | None = None) -> Run:
                return await drive(spec, dispatch, run.row, run.task, on_run, calls=run.calls)

            yield one


IN_LOOP = InLoop()


async def driven(
    executor: Executor, spec: RunSpec, runs: Sequence[Prepared], on_run: OnRun | None = None
) -> AsyncGenerator[Run, None]:
    """Drive and judge all runs at once, giving each as it ends; they may end in any order.

    Raises:
        As ``as_ended`` of ``harness/run/drive.py``.
    """
    async with executor.session(spec) as one, aclosing(as_ended([one(run, on_run) for run in runs])) as ended:
        async for run in ended:
            yield run

"""Where the runs of a collection are driven: in this event loop, unless ``Runner(executor=)`` says otherwise.

``Runner`` prepares runs (their rows are stored) and hands them over with their RunSpec. An executor takes them to their
ends and never changes which runs there are.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from clew.core.records import Call, RunRow
from clew.core.values import Task
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.drive import as_ended, drive
from clew.harness.run.spec import OnRun, RunSpec
from clew.store.run import Run


class Prepared(NamedTuple):
    """A run that is to be taken to its end; ``calls``: those it has or shares, None where the store is to be read."""

    row: RunRow
    task: Task
    calls: list[Call] | None = None


class Executor(Protocol):
    """Takes runs to their ends: in this process as here, or by workers that write stores of their own."""

    def drive(self, spec: RunSpec, runs: Sequence[Prepared], on_run: OnRun | None = None) -> AsyncGenerator[Run, None]:
        """Drive and judge every run, call ``on_run`` with it, and give it; the runs may end in any order.

        Raises:
            As ``as_ended`` of ``harness/run/drive.py``.
        """
        ...


class InLoop:
    """Drives all runs at once in the running event loop; their asks and commits are batched by one Dispatcher."""

    async def drive(
        self, spec: RunSpec, runs: Sequence[Prepared], on_run: OnRun | None = None
    ) -> AsyncGenerator[Run, None]:
        """As ``Executor.drive``."""
        async with Dispatcher(spec.store, spec.owner, spec.concurrency) as dispatch:
            work = [drive(spec, dispatch, it.row, it.task, on_run, calls=it.calls) for it in runs]
            async with aclosing(as_ended(work)) as ended:
                async for run in ended:
                    yield run


IN_LOOP = InLoop()

"""Where the runs of a collection are driven: in this event loop, unless ``Runner(executor=)`` says otherwise.

``Runner`` prepares runs (their rows are stored) and hands them over with their RunSpec. An executor takes them to their
ends and never changes which runs there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

from clew.core.errors import ReplayError
from clew.core.records import Call, RunRow
from clew.core.values import Task
from clew.harness.run.dispatch import Dispatcher
from clew.harness.run.drive import drive
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
            A ReplayError of a run once all others have ended; any other error at once, and the others are stopped.
        """
        ...


class InLoop:
    """Drives all runs at once in the running event loop; their asks and commits are batched by one Dispatcher."""

    async def drive(
        self, spec: RunSpec, runs: Sequence[Prepared], on_run: OnRun | None = None
    ) -> AsyncGenerator[Run, None]:
        """As ``Executor.drive``."""
        stuck: ReplayError | None = None
        ended: asyncio.Queue[asyncio.Task[Run]] = asyncio.Queue()
        async with Dispatcher(spec.store, spec.owner, spec.concurrency) as dispatch:
            work = [
                asyncio.ensure_future(drive(spec, dispatch, it.row, it.task, on_run, calls=it.calls)) for it in runs
            ]
            for task in work:
                task.add_done_callback(ended.put_nowait)
            try:
                for _ in work:
                    try:
                        run = (await ended.get()).result()
                    except ReplayError as error:
                        stuck = stuck or error
                        continue
                    yield run
            finally:
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)
        if stuck is not None:
            raise stuck


IN_LOOP = InLoop()

"""Where the effects of all runs of one event loop meet: they leave and come back together, one commit each way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clew.core.protocols import Model, Store
from clew.core.records import Request
from clew.core.values import Completion, StopReason
from clew.harness.run.pending import batches

if TYPE_CHECKING:
    from clew.harness.run.pending import Pending
    from clew.harness.run.run_state import Effects

LEASE_SECONDS = 60.0
Entry = tuple["Effects", "Pending", Model, Request]


class Clerk:
    """Sends asks to models and hands results back, in groups, so that concurrent runs share their commits.

    Asks issued in one pass of the loop leave together; those that leave the process after one commit, so that what
    they depend on is durable first. Results that arrive together are recorded, committed once, and only then handed
    to their agents: with a batched engine of this process that is one commit each tick.
    """

    def __init__(self, store: Store, owner: str, concurrency: int) -> None:
        self.store, self.owner = store, owner
        self.room = asyncio.Semaphore(concurrency)
        self.active: set[str] = set()
        self.stops: dict[str, StopReason | None] = {}  # how the runs driven here ended
        self._out: list[Entry] = []
        self._in: list[tuple[Effects, Pending, Any]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._renewed = time.monotonic()

    async def __aenter__(self) -> Clerk:
        self.loop = asyncio.get_running_loop()
        self._settling: asyncio.Future[None] | None = None
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.store.commit()

    async def settle(self) -> None:
        """Wait until what is put so far is committed; calls of one pass of the loop share the commit."""
        if self._settling is None:
            settling = self._settling = self.loop.create_future()
            self.loop.call_soon(self._settle, settling)
        await asyncio.shield(self._settling)

    def _settle(self, settling: asyncio.Future[None]) -> None:
        self._settling = None
        try:
            self.store.commit()
            settling.set_result(None)
        except Exception as error:
            settling.set_exception(error)

    def ask(self, effects: Effects, pending: Pending, model: Model, request: Request) -> None:
        if not self._out:
            self.loop.call_soon(self._send)
        self._out.append((effects, pending, model, request))

    def arrive(self, effects: Effects, pending: Pending, result: Any) -> None:
        """Take a result that came by itself; those of one pass of the loop share a commit."""
        if not self._in:
            self.loop.call_soon(self._drain)
        self._in.append((effects, pending, result))

    def start(self, effects: Effects, pending: Pending, work: Any) -> None:
        """Perform an awaitable beside the loop's other work; its result arrives like any other."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def finished(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                self.arrive(effects, pending, task.exception() or task.result())

        task.add_done_callback(finished)

    def _send(self) -> None:
        out, self._out = self._out, []
        leaves = not all(batches(model) for _, _, model, _ in out)
        if leaves and not self._commit([pending for _, pending, _, _ in out]):
            return
        together: dict[int, list[Entry]] = {}
        for entry in out:
            effects, pending, model, request = entry
            if batches(model):
                together.setdefault(id(model), []).append(entry)
            else:
                self.start(effects, pending, model.complete(request))
        for batch in together.values():
            engine: Any = batch[0][2]
            try:
                engine.submit([entry[3] for entry in batch], self._from_thread(batch))
            except Exception as error:
                self._hand_over([(effects, pending, error) for effects, pending, _, _ in batch])

    def _from_thread(self, batch: list[Entry]) -> Callable[[list[tuple[int, Completion | BaseException]]], None]:
        def done(results: list[tuple[int, Completion | BaseException]]) -> None:
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self._hand_over, [(*batch[i][:2], result) for i, result in results])

        return done

    def _drain(self) -> None:
        arrived, self._in = self._in, []
        self._hand_over(arrived)

    def _hand_over(self, arrived: list[tuple[Effects, Pending, Any]]) -> None:
        ready = []
        for effects, pending, result in arrived:
            if pending.future.done():
                continue
            try:
                ready.append((effects, pending, effects.answered(pending, result)))
            except Exception as error:
                pending.future.set_exception(error)
        if self._commit([pending for _, pending, _ in ready]):
            for effects, pending, value in ready:
                effects.hand(pending, value)

    def _commit(self, waiting: list[Pending]) -> bool:
        """Commit; on failure every waiting agent gets the error, so that the runs stop and nothing is lost."""
        try:
            self.store.commit()
            if time.monotonic() - self._renewed > LEASE_SECONDS / 3:
                self._renewed = time.monotonic()
                for run in self.active:
                    self.store.lease(run, self.owner, LEASE_SECONDS)
        except Exception as error:
            for pending in waiting:
                if not pending.future.done():
                    pending.future.set_exception(error)
            return False
        return True

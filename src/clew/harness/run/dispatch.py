"""Batches the model calls of all runs on an event loop: one commit before sending, one before handing results back.

``Runner`` opens a Dispatcher for each collection, fork or replay; asks and acts go through it. It never looks into a
run: it knows effects as ``Pending`` alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from clew.core.protocols import Batches, Model, Store
from clew.core.records import Request
from clew.core.values import UNSET, Completion
from clew.harness.run.events import outside
from clew.harness.run.pending import Pending, batches

LEASE_SECONDS = 60.0
Entry = tuple[Pending[Any], Model, Request]
Arrival = tuple[Pending[Any], object]  # with a Completion, an Observation, or an exception


class Dispatcher:
    """Sends asks to models and hands results back, in groups, so that concurrent runs share their commits.

    Asks issued in one pass of the loop leave together; those that leave the process after one commit, so that what
    they depend on is durable first. Results that arrive together are recorded, committed once, and only then handed
    to their agents: with a batched engine of this process that is one commit each tick.
    """

    def __init__(self, store: Store, owner: str, concurrency: int) -> None:
        self.store, self.owner = store, owner
        self.room = asyncio.Semaphore(concurrency)
        self.active: set[str] = set()
        self.agents: dict[str, Callable[[], object]] = {}  # what cancels the agent of each run
        self.unwanted: set[str] = set()  # runs that end cancelled, as their parents gave them up
        self._out: list[Entry] = []
        self._in: list[Arrival] = []
        self._tasks: set[asyncio.Future[object]] = set()
        self._renewed = time.monotonic()

    async def __aenter__(self) -> Dispatcher:
        self.loop = asyncio.get_running_loop()
        self._settling: asyncio.Future[None] | None = None
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.store.commit()

    def end(self, run: str) -> None:
        """End a run whose parent gives it up: its agent is cancelled, as far as it has begun."""
        self.unwanted.add(run)
        agent = self.agents.get(run)
        if agent is not None:
            agent()

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

    def ask(self, pending: Pending[Any], model: Model, request: Request) -> None:
        """Send a request with all others of this pass of the loop."""
        if not self._out:
            self.loop.call_soon(self._send)
        self._out.append((pending, model, request))

    def start(self, pending: Pending[Any], work: Awaitable[object]) -> asyncio.Future[object]:
        """Perform an awaitable beside the loop's other work; results of one pass of the loop share a commit."""
        task = outside(self.loop, work)
        self._tasks.add(task)
        pending.stop = task.cancel

        def finished(task: asyncio.Future[object]) -> None:
            self._tasks.discard(task)
            lasting, pending.lasting = pending.lasting, False
            if lasting and pending.given_up:
                pending.ended()
            elif not task.cancelled():
                self.arrive([(pending, task.exception() or task.result())])

        task.add_done_callback(finished)
        return task

    def arrive(self, arrived: Sequence[Arrival]) -> None:
        """Record results and hand them over with all others of this pass of the loop."""
        if arrived and not self._in:
            self.loop.call_soon(self._drain)
        self._in += arrived

    def _send(self) -> None:
        out, self._out = [entry for entry in self._out if not entry[0].over], []
        leaves = not all(batches(model) for _, model, _ in out)
        if leaves and not self._commit([pending for pending, _, _ in out]):
            return
        together: dict[int, tuple[Batches, list[Entry]]] = {}
        for entry in out:
            pending, model, request = entry
            if batches(model):
                together.setdefault(id(model), (model, []))[1].append(entry)
            else:
                self.start(pending, model.complete(request))
        for engine, batch in together.values():
            try:
                engine.submit([request for _, _, request in batch], self._from_thread(batch))
            except Exception as error:
                self._hand_over([(pending, error) for pending, _, _ in batch])

    def _from_thread(self, batch: list[Entry]) -> Callable[[list[tuple[int, Completion | BaseException]]], None]:
        def done(results: list[tuple[int, Completion | BaseException]]) -> None:
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self._hand_over, [(batch[i][0], result) for i, result in results])

        return done

    def _drain(self) -> None:
        arrived, self._in = self._in, []
        self._hand_over(arrived)

    def _hand_over(self, arrived: Sequence[Arrival]) -> None:
        ready = list[tuple[Pending[Any], object]]()
        for pending, result in arrived:
            if pending.over or pending.early(result):
                continue
            try:
                value: object = pending.record(result)
            except Exception as error:
                value = error
            if value is not UNSET:
                ready.append((pending, value))
        if self._commit([pending for pending, _ in ready]):
            for pending, value in ready:
                pending.hand(value)

    def _commit(self, waiting: list[Pending[Any]]) -> bool:
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

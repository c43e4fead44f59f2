"""``Worker``: drives runs in an event loop of its own and hands over what they record, in bundles.

A transport (``processes.py``, ``cluster.py``) makes one in each process and calls its methods from threads of its own;
every argument and result pickles. A worker never opens the store: the process that holds it files the bundles.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from clew.core.errors import WorkerLost
from clew.harness.executors import IN_LOOP, Drive, Prepared
from clew.harness.run.spec import Models, RunSpec
from clew.harness.workers.recipe import Deal, Portable, Recipe, Where, spec_of, unpacked_model, versions
from clew.store.bundles.travelling import Bundle, Outbox


class Told(NamedTuple):
    """What a worker hands over: records, and the runs that ended, each with the error that left it as it is."""

    bundle: Bundle
    ended: list[tuple[str, BaseException | None]]


class Worker:
    """Takes runs to their ends, one session after another.

    No method is a coroutine: Ray would then call all of them in one thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="clew-worker", daemon=True).start()
        self._models, self._threads = Models(), 0
        self._out: queue.SimpleQueue[tuple[Told, threading.Event] | None] = queue.SimpleQueue()
        self._given: threading.Event | None = None  # set when what was handed over last has been filed
        self._session: _Session | None = None

    def hello(self, where: Where | None = None) -> dict[str, str]:
        """The versions of this process, which begins to work where and how the other one does."""
        if where is not None:
            if os.path.isdir(where.folder):  # of another machine it need not be one
                os.chdir(where.folder)
            sys.path += [place for place in where.path if place not in sys.path]
            self._threads = where.threads
        return versions()

    def take_model(self, packed: bytes) -> None:
        """Hold a model that runs may ask."""
        self._models.add(unpacked_model(packed))
        torch: Any = sys.modules.get("torch")
        if torch is not None and self._threads:
            torch.set_num_threads(self._threads)

    def take_weights(self, ref: str, weights: bytes, version: int) -> None:
        """Let the model of that ref serve other weights, as this version."""
        model = self._models.of(ref, build=False)
        if not isinstance(model, Portable):
            raise WorkerLost(f"the worker holds no trained model {ref}", remedy="Run the same line again.")
        model.take_weights(pickle.loads(weights), version)

    def open(self, recipe: Recipe) -> None:
        """Begin a session; one that was not closed is given up."""
        self._end()
        outbox = Outbox(self._through)
        session = _Session(outbox, self._hand_over)
        self._do(session.start(spec_of(recipe, outbox, self._models)))
        self._session = session

    def begin(self, deals: list[Deal]) -> None:
        """Begin to drive runs; ``next`` tells what they came to."""
        session = self._session
        assert session is not None
        self._loop.call_soon_threadsafe(session.begin, deals)

    def next(self) -> Told | None:
        """Wait for something to hand over; None after ``close``. Asked again, what was given before has been filed."""
        if self._given is not None:
            self._given.set()
            self._given = None
            if (session := self._session) is not None:
                self._loop.call_soon_threadsafe(session.filed)
        found = self._out.get()
        if found is None:
            return None
        told, self._given = found
        return told

    def close(self) -> None:
        """End the session: runs that are under way are left as they are, and ``next`` gives None."""
        self._end()
        self._out.put(None)

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._do(session.stop())
            self._hand_over(session.left(), [])

    def _hand_over(self, bundle: Bundle, ended: list[tuple[str, BaseException | None]]) -> None:
        self._out.put((Told(bundle, ended), threading.Event()))

    def _through(self, bundle: Bundle) -> None:
        """Hand over and wait until that has been filed. All runs here wait: none may begin what is not known there."""
        filed = threading.Event()
        self._out.put((Told(bundle, []), filed))
        filed.wait()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Session:
    """The runs of one collection, in the worker's loop."""

    def __init__(
        self, outbox: Outbox, hand_over: Callable[[Bundle, list[tuple[str, BaseException | None]]], None]
    ) -> None:
        self._outbox, self._hand_over = outbox, hand_over
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: list[tuple[str, BaseException | None]] = []
        self._telling = False
        self._drive: Drive

    async def start(self, spec: RunSpec) -> None:
        self._drive = await self._stack.enter_async_context(IN_LOOP.session(spec))

    def begin(self, deals: list[Deal]) -> None:
        for deal in deals:
            self._outbox.load(deal.known)
            task = asyncio.ensure_future(self._one(deal))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _one(self, deal: Deal) -> None:
        error: BaseException | None = None
        try:
            await self._drive(Prepared(deal.row, deal.task, deal.calls))
        except asyncio.CancelledError:
            raise
        except BaseException as raised:
            error = sendable(raised)
        self._ended.append((deal.row.id, error))
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        ended, self._ended = self._ended, []
        self._hand_over(self._outbox.take(), ended)

    def filed(self) -> None:
        """What was told last is kept: runs that ended since are told together, to share a commit."""
        self._telling = bool(self._ended)
        if self._telling:
            self._tell()

    def left(self) -> Bundle:
        """What no run that ended has taken along."""
        return self._outbox.take()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()


def sendable(error: BaseException) -> BaseException:
    """The error, or one that says the same where it does not pickle."""
    try:
        return error if type(pickle.loads(pickle.dumps(error))) is type(error) else _plain(error)
    except Exception:
        return _plain(error)


def _plain(error: BaseException) -> BaseException:
    return WorkerLost(f"{type(error).__name__}: {error}", remedy="The run can be resumed: mend what the error names.")

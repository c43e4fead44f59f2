"""``Workers``: an executor that deals runs to worker processes and files what they record in the Runner's store.

``local_workers`` and ``ray_workers`` make one. This process alone writes the store: it commits each bundle before the
worker goes on. A worker that dies is started again, and its runs are taken up from what had been filed.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

from clew.core.errors import BadInput, WorkerLost
from clew.core.protocols import Model
from clew.harness.executors import Drive, Prepared
from clew.harness.run.dispatch import LEASE_SECONDS
from clew.harness.run.spec import OnRun, RunSpec
from clew.harness.workers.recipe import Portable, Recipe, dealt, here, packed_model, recipe_of, same_versions
from clew.harness.workers.worker import Told
from clew.store.bundles.travelling import file_bundle
from clew.store.run import Run

DEATHS = 3  # workers that one run may outlive
GRACE = 60.0  # seconds in which all workers should be up
T = TypeVar("T")


class Link(Protocol):
    """One worker as this process reaches it, by any transport.

    Both methods block, and are called from threads: ``listen`` (the worker's ``next``) from one of its own.

    Raises:
        WorkerLost: the worker is gone. Whatever its method raised.
    """

    name: str

    def call(self, method: str, *arguments: object) -> Any: ...
    def listen(self) -> Told | None: ...
    def end(self) -> None: ...


class Workers:
    """Drives runs on ``n`` workers. Close it when no more runs are to be driven, or use it in a ``with``.

    Args:
        n: how many workers.
        start: starts the worker of that number, waits until it can be called or the event is set, and gives its link.
        share: makes of bytes what ``Link.call`` takes in their place, where all workers are sent the same.

    Raises:
        BadInput: ``n`` is below 1.
    """

    def __init__(
        self,
        n: int,
        start: Callable[[int, threading.Event], Link],
        share: Callable[[bytes], object] = lambda data: data,
    ) -> None:
        if n < 1:
            raise BadInput(f"{n} workers", remedy="Ask for at least one.")
        self.n, self._start = n, start
        self.links: dict[int, Link] = {}
        self._holds: dict[int, dict[str, object]] = {}  # by worker: ref of each model it holds -> mark of its weights
        self._threads = ThreadPoolExecutor(2 * n, thread_name_prefix="clew-workers")
        self._guard, self._closed = threading.Lock(), threading.Event()
        self._share, self._packing = share, threading.Lock()
        self._packed: dict[tuple[str, str], tuple[object, object]] = {}  # (what, ref) -> mark of the weights, shared
        self._starting = [threading.Lock() for _ in range(n)]
        self._busy = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all workers."""
        self._closed.set()
        for number in list(self.links):
            self.drop(number)
        self._threads.shutdown(wait=False)

    @asynccontextmanager
    async def session(self, spec: RunSpec) -> AsyncIterator[Drive]:
        """As ``Executor.session``. The present weights of all models are sent to the workers first.

        Raises:
            BadInput: something that the runs need cannot be taken to another process, a worker is of another version,
                or a session is open. WorkerLost: no worker can be started.
        """
        with self._guard:
            if self._busy:
                raise BadInput("these workers drive another collection", remedy="Wait for it, or make other workers.")
            self._busy = True
        try:
            session = _Session(self, spec, recipe_of(spec, self.n))
            try:
                await session.begin()
                yield session.drive
            finally:
                await session.end()
        finally:
            self._busy = False

    def ready(self, number: int, models: list[Model], marks: list[object]) -> Link:
        """The link of a worker that runs and holds the models' weights, which must be those that the marks tell.

        Raises:
            WorkerLost: the weights have changed since: a worker that starts now would hold others than the rest.
        """
        with self._starting[number]:  # a session that has ended may have begun to start it
            link = self._ready(number, models)
            if [mark_of(model) for model in models] != marks:
                self._holds[number].clear()
                told = f"{link.name} was started while the weights changed, and is not used for this collection"
                raise WorkerLost(told, remedy="Run the same line again: what the other workers handed over is kept.")
            return link

    def _ready(self, number: int, models: list[Model]) -> Link:
        link = self.links.get(number)
        if link is not None:
            try:
                link.call("hello")
            except WorkerLost:  # it died while nothing was to be driven
                self.drop(number)
                link = None
        if link is None:
            link = self._start(number, self._closed)
            self.links[number], self._holds[number] = link, {}
            same_versions(link.name, link.call("hello", here()))
        held = self._holds[number]
        for model in models:
            mark = mark_of(model)
            if model.ref not in held:
                link.call("take_model", self._shared("model", model, mark, packed_model))
            elif held[model.ref] != mark and isinstance(model, Portable):
                link.call("take_weights", model.ref, self._shared("weights", model, mark, _weights), model.version)
            held[model.ref] = mark
        return link

    def _shared(self, what: str, model: Model, mark: object, pack: Callable[[Any], bytes]) -> object:
        """What is sent to every worker: packed once for all of them, and again only when the weights have changed."""
        with self._packing:
            if (found := self._packed.get((what, model.ref))) is None or found[0] != mark:
                found = self._packed[what, model.ref] = (mark, self._share(pack(model)))
            return found[1]

    def drop(self, number: int) -> None:
        """Forget a worker that is lost; the next session, or a run that needs it, starts it again."""
        link = self.links.pop(number, None)
        self._holds.pop(number, None)
        if link is not None:
            with suppress(Exception):
                link.end()

    async def aside(self, work: Callable[..., T], *arguments: object) -> T:
        """Call what blocks, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


def mark_of(model: Model) -> object:
    """Tells the present weights of a model from those that it had before; None where they never change."""
    return (model.version, model.fingerprint) if isinstance(model, Portable) else None


def _weights(model: Portable) -> bytes:
    return pickle.dumps(model.weights())


class _Job:
    """A run under way: who waits for it, and where it is driven."""

    def __init__(self, run: Prepared) -> None:
        self.run = run
        self.done: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self.deaths = 0
        self.worker = -1


class _Session:
    """The runs of one collection, in the event loop of the process that writes."""

    def __init__(self, workers: Workers, spec: RunSpec, recipe: Recipe) -> None:
        self.workers, self.spec, self.recipe = workers, spec, recipe
        self.jobs: dict[str, _Job] = {}
        self.waiting: list[_Job] = []
        self.links: dict[int, Link] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.listeners: dict[int, asyncio.Task[None]] = {}
        self.failed: BaseException | None = None
        models = {id(m): m for m in (self.spec.model, *self.spec.models.built()) if m is not None}
        self.models = list(models.values())
        self.marks = [mark_of(model) for model in self.models]

    async def begin(self) -> None:
        """Have the workers up; those that take long are waited for no longer than ``GRACE`` where another is up."""
        coming = [self._beside(self._again(number)) for number in range(self.workers.n)]
        _, late = await asyncio.wait(coming, timeout=GRACE)
        while late and not self.links:
            _, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
        if self.failed is not None:
            raise self.failed
        self._beside(self._renewed())

    async def _raise(self, number: int) -> None:
        """Have a worker ready for this session's runs."""
        try:
            link = await self.workers.aside(self.workers.ready, number, self.models, self.marks)
            await self.workers.aside(link.call, "open", self.recipe)
        except WorkerLost:
            self.workers.drop(number)
            raise
        self.links[number] = link
        self.listeners[number] = asyncio.ensure_future(self._listen(number, link))

    async def drive(self, run: Prepared, on_run: OnRun | None = None) -> Run:
        """As ``Drive``: deal the run with all others of this pass of the loop, and wait for its end."""
        if self.failed is not None:
            raise self.failed
        self.spec.store.lease(run.row.id, self.spec.owner, LEASE_SECONDS)
        job = self.jobs[run.row.id] = _Job(run)
        self._wait(job)
        try:
            ended = await job.done
        finally:
            self.jobs.pop(run.row.id, None)
            self.spec.store.release(run.row.id, self.spec.owner)
        if on_run is not None:
            on_run(ended)
        return ended

    def _wait(self, job: _Job) -> None:
        if not self.waiting:
            asyncio.get_running_loop().call_soon(self._deal_soon)
        self.waiting.append(job)

    def _deal_soon(self) -> None:
        self._beside(self._deal())

    async def _deal(self) -> None:
        """Give each worker as many runs as the others; runs of a group go to one worker as far as that allows."""
        waiting, self.waiting = self.waiting, []
        waiting = [job for job in waiting if not job.done.done()]
        load = Counter(dict.fromkeys(self.links, 0))
        load.update(job.worker for job in self.jobs.values() if job.worker in self.links)
        most = -(-(load.total() + len(waiting)) // max(1, len(load)))
        waiting.sort(key=lambda job: (job.run.row.group, job.run.row.order))
        number = min(load, key=lambda it: load[it], default=-1)
        deals: dict[int, list[_Job]] = {}
        for job in waiting:
            if load[number] >= most:
                number = min(load, key=lambda it: load[it], default=-1)
            load[number] += 1
            job.worker = number
            deals.setdefault(number, []).append(job)
        for number, jobs in deals.items():
            if number not in self.links:
                self._give_up(jobs, WorkerLost("no worker is left", remedy="Run the same line again."))
                continue
            self.spec.store.commit()
            sent = [dealt(self.spec, job.run) for job in jobs]
            self._beside(self._send(number, self.links[number], jobs, sent))

    async def _send(self, number: int, link: Link, jobs: list[_Job], sent: list[Any]) -> None:
        try:
            await self.workers.aside(link.call, "begin", sent)
        except WorkerLost as error:
            await self._lost(number, link, error)
        except Exception as error:  # what a run needs does not pickle
            self._give_up(jobs, error)

    async def _listen(self, number: int, link: Link) -> None:
        """File what a worker hands over, until it closes."""
        while True:
            try:
                told = await self.workers.aside(link.listen)
            except WorkerLost as error:
                await self._lost(number, link, error)
                return
            if told is None:
                return
            try:
                self._file(told)
            except Exception as error:  # the worker must not go on with what is not kept
                self.failed = error
                self.links.pop(number, None)
                self.workers.drop(number)
                self._give_up(list(self.jobs.values()), error)
                return

    def _file(self, told: Told) -> None:
        file_bundle(self.spec.store, told.bundle)
        self.spec.store.commit()
        for run, error in told.ended:
            job = self.jobs.get(run)
            if job is None or job.done.done():
                continue
            if error is not None:
                job.done.set_exception(error)
                continue
            job.done.set_result(Run(self.spec.store, job.run.row))

    async def _lost(self, number: int, link: Link, error: WorkerLost) -> None:
        """A worker died: start it again and deal its runs once more, which go on from what was filed."""
        if self.links.get(number) is not link:
            return
        del self.links[number]
        self.workers.drop(number)
        mine = [job for job in self.jobs.values() if job.worker == number and not job.done.done()]
        for job in mine:
            job.deaths += 1
            job.worker = -1
        self._give_up([job for job in mine if job.deaths >= DEATHS], error)
        again = self._beside(self._again(number))
        if not self.links:  # where there are others, the runs need not wait until it is up
            await asyncio.wait([again])
        for job in mine:
            if not job.done.done():
                job.run = job.run._replace(calls=None)
                self._wait(job)

    async def _again(self, number: int) -> None:
        try:
            await self._raise(number)
        except Exception as error:
            if not self.links or not isinstance(error, WorkerLost):
                self.failed = error
                self._give_up(list(self.jobs.values()), error)

    def _give_up(self, jobs: list[_Job], error: BaseException) -> None:
        for job in jobs:
            if not job.done.done():
                job.done.set_exception(error)

    async def _renewed(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            for run in list(self.jobs):
                self.spec.store.lease(run, self.spec.owner, LEASE_SECONDS)
            self.spec.store.commit()

    def _beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def end(self) -> None:
        """Close the session at every worker, and file what is left."""
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for number in [number for number in self.links if self.listeners[number].done()]:
            del self.links[number]
            self.workers.drop(number)  # nobody hears it any more
        links = dict(self.links)
        closing = [self.workers.aside(link.call, "close") for link in links.values()]
        for number, told in zip(links, await asyncio.gather(*closing, return_exceptions=True), strict=True):
            if isinstance(told, BaseException):
                self.links.pop(number, None)
                self.workers.drop(number)
        await asyncio.gather(*self.listeners.values(), return_exceptions=True)
        self.spec.store.commit()

"""Forks that were asked for on the page: carried out one after the other, in a thread with a store of its own.

The thread writes to the store as `clew fork` in another process would; other writers go on beside it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

from clew.core.errors import ClewError, UnknownName
from clew.core.protocols import Model
from clew.harness.fork.fork_request import ForkRequest, other_weights, runner_for
from clew.store import Keeper, Run, new_id
from clew.view.pages.list_pages import share
from clew.view.stores import Stores

KEPT = 200  # jobs remembered; the runs of all of them are in the store
SUCCESS = 0.5  # a reward above it counts as success
LIVE = ("waiting", "loading", "running")  # states of a job that is not over; the model loads before anything runs


class Job:
    """One request and what became of it. Written by the worker's thread, read by any."""

    def __init__(self, request: ForkRequest, command: str) -> None:
        self.id, self.request, self.command = new_id(), request, command
        self.state, self.error, self.remedy, self.group, self.note = "waiting", "", "", "", ""
        self.runs: list[dict[str, Any]] = []
        self.told = 0  # how often it was told; of two tellings that cross on their way the page keeps the later
        self.cancel: Callable[[], None] | None = None

    def ended(self, run: Run) -> None:
        """Note a fork that ended."""
        summary = run.store.summary(run.id)
        self.group = run.group
        self.runs.append({"run": run.id, "reward": summary.reward, "stop": summary.stop, "tokens": summary.tokens})

    def json(self) -> dict[str, Any]:
        rewards = [run["reward"] for run in self.runs if run["reward"] is not None]
        own = ("id", "told", "state", "command", "group", "error", "remedy", "note")
        found: dict[str, Any] = {name: getattr(self, name) for name in own}
        found |= {"run": self.request.run, "at": str(self.request.at or self.request.run), "n": self.request.n}
        found |= {"done": len(self.runs), "runs": list(self.runs)}
        return found | {"rate": share(sum(reward > SUCCESS for reward in rewards), len(rewards))}


class Jobs:
    """The queue of jobs and the thread that works it off.

    Args:
        load: the model of a reference; holds the credentials, which never come over the network.
        tell: called with each job's JSON whenever it changes, from any thread.
    """

    def __init__(self, stores: Stores, load: Callable[[str], Model], tell: Callable[[dict[str, Any]], None]) -> None:
        self._stores, self._load, self._tell = stores, load, tell
        self._jobs: dict[str, Job] = {}
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, request: ForkRequest, command: str) -> dict[str, Any]:
        """Put a request into the queue; returns the job as JSON."""
        job = Job(request, command)
        with self._lock:
            self._jobs[job.id] = job
            for old in [j.id for j in self._jobs.values() if j.state not in LIVE][:-KEPT]:
                del self._jobs[old]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="clew-forks", daemon=True)
                self._thread.start()
        self._queue.put(job)
        return self._told(job)

    def list(self) -> list[dict[str, Any]]:
        """Jobs, newest first."""
        with self._lock:
            return [job.json() for job in reversed(self._jobs.values())]

    def stop(self, id: str) -> dict[str, Any]:
        """Stop a job; what its forks did so far is kept, and `clew resume` goes on with them.

        Raises:
            UnknownName: no such job.
        """
        with self._lock:
            job = self._jobs.get(id)
            if job is None:
                raise UnknownName(f"no job {id!r}", remedy="It may have been asked of a viewer that was closed.")
            cancel = job.cancel
            if job.state in LIVE:
                job.state = "stopped"
        if cancel is not None:
            cancel()
        return self._told(job)

    def close(self) -> None:
        """Stop every job and wait a little for the thread."""
        for job in self.list():
            self.stop(job["id"])
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(5.0)

    def _told(self, job: Job) -> dict[str, Any]:
        with self._lock:
            job.told += 1
            told = job.json()
        self._tell(told)
        return told

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            with self._lock:
                if job.state != "waiting":
                    continue
                job.state = "loading"
            self._told(job)
            state = "failed"
            try:
                self._fork(job)
                state = "done"
            except asyncio.CancelledError:
                state = "stopped"
                job.remedy = "What its forks did so far is kept; `clew resume` goes on with them."
            except ClewError as error:
                job.error, job.remedy = error.message, error.remedy
            except Exception as error:  # whatever an agent or world may raise must not end the worker
                job.error = f"{type(error).__name__}: {error}"
            job.state, job.cancel = state, None
            self._told(job)

    def _fork(self, job: Job) -> None:
        from clew.core.aio import stoppable

        def started(cancel: Callable[[], None]) -> None:
            job.cancel = cancel
            if job.state == "stopped":  # asked for while the model was loading
                cancel()

        def ended(run: Run) -> None:
            job.ended(run)
            self._told(job)

        store: Keeper = self._stores.fresh()
        try:
            runner = runner_for(store, job.request, self._load)
            with self._lock:
                job.state = "running" if job.state == "loading" else job.state
                if not job.request.model:
                    job.note = other_weights(store.run(job.request.run), job.request.at, runner)
            self._told(job)
            with stoppable(started):
                job.group = runner.fork(job.request.run, **job.request.arguments(), on_run=ended).id
        finally:
            if store.path != ":memory:":
                store.close()

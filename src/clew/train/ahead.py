"""``Ahead``: the next iteration's runs are collected while the trainer steps (off-by-one training).

``Training`` uses it where ``Plan.lag`` is 1. The runs are driven by workers, which hold weights of their own: those
that they were sent when the collection began. Nothing here may read the weights that a step is changing.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from clew.core.aio import stoppable
from clew.core.errors import BadInput
from clew.harness import Runner
from clew.harness.executors import IN_LOOP, Drive, Executor
from clew.harness.run.spec import RunSpec
from clew.store import Groups


class Ahead:
    """One collection in a thread. While it is under way, the store is its alone.

    Raises:
        BadInput: the runner drives runs in this process, whose weights a step changes.
    """

    def __init__(self, runner: Runner) -> None:
        if runner.executor is IN_LOOP:
            told = "a training with lag=1 drives its runs while the weights of this process change"
            raise BadInput(told, remedy="Add --workers N or --ray ADDRESS (executor=), or leave out the lag.")
        self._runner = runner
        self._thread: threading.Thread | None = None
        self._groups: Groups | None = None
        self._failed: BaseException | None = None
        self._stop: Callable[[], None] = lambda: None

    def begin(self, collect: Callable[[], Groups]) -> None:
        """Begin to collect; return when the workers hold the weights, so that these may change."""
        opened, self._groups, self._failed = threading.Event(), None, None
        inner = self._runner.executor

        def work() -> None:
            try:
                with stoppable(self._hand):
                    self._groups = collect()
            except BaseException as error:
                self._failed = error
            finally:
                opened.set()

        self._runner.executor = _Telling(inner, opened)
        try:
            self._thread = threading.Thread(target=work, name="clew-ahead")
            self._thread.start()
            opened.wait()
        finally:
            self._runner.executor = inner

    def _hand(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def wait(self) -> None:
        """Wait until the collection has ended; what it raised is raised by ``take``."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def take(self) -> Groups | None:
        """What was collected; None where nothing was begun.

        Raises:
            Whatever the collection raised.
        """
        self.wait()
        groups, failed, self._groups, self._failed = self._groups, self._failed, None, None
        if failed is not None:
            raise failed
        return groups

    def close(self) -> None:
        """Stop what is under way; its runs are left as they are, to be resumed."""
        if self._thread is not None:
            self._stop()
            self.wait()


class _Telling:
    """An executor that sets an event when a session of another one is open."""

    def __init__(self, inner: Executor, opened: threading.Event) -> None:
        self._inner, self._opened = inner, opened

    @asynccontextmanager
    async def session(self, spec: RunSpec) -> AsyncIterator[Drive]:
        async with self._inner.session(spec) as drive:
            self._opened.set()
            yield drive

"""The batched engine: requests wait, a tick admits them, prefills what is new, decodes, and hands results back.

One thread, which lives while there is work. A tick starts when as many requests wait as there are live runs that could
still send one, or when the time a tick takes has passed since the first of them arrived.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from clew.core.errors import ClewError, ModelError, Refused
from clew.core.records import Request
from clew.core.values import Completion
from clew.models.engine.batch import Batch
from clew.models.engine.fast import Fast
from clew.models.engine.generic import Generic
from clew.models.engine.proposal import Drafter, Lengths
from clew.models.engine.speculate import Counts, Fixed
from clew.models.engine.state import Result, Waiting

LINGER = 1.0  # seconds an idle thread waits before it ends
HOLD = 0.05  # seconds the first result waits for others, as each hand-back costs the caller a commit
FIRST_TICK = 0.02  # seconds, the assumed length of a tick before one was measured
Done = Callable[[list[tuple[int, Completion | BaseException]]], None]
_log = logging.getLogger(__name__)


class Engine:
    """Answers token requests in batches; implements ``Batches`` and ``complete``.

    Args:
        forward: computes; a ``Fast``, or a ``Generic`` for modules that have no fast forward.
        renderer: parses replies and names the stop tokens; needs ``decode`` where stop strings are used.
        steady: results depend on nothing but the request: every token passes a decode step of at least 8 rows, and
            rows are ordered by ``Request.order``.
        max_rows: most requests in a batch, and most prefixes kept.
        cache_bytes: most memory for cached keys and values, exceeded only by a batch that needs more.
        hand_back: share of the batch that must be done before results are handed back while the rest decodes on;
            waiting for the longest reply would leave rows empty.
        draft: proposes tokens, which the model verifies; the law of the replies stays the model's.
        lengths: how many proposed tokens are verified; all of them where not given.

    Raises:
        BadInput: the drafter is of another model, or this engine cannot verify drafts.
    """

    def __init__(
        self,
        forward: Fast | Generic,
        renderer: Any,
        *,
        version: int = 0,
        model: str = "",
        steady: bool = False,
        max_rows: int = 256,
        cache_bytes: int = 2 << 30,
        hand_back: float = 0.5,
        draft: Drafter | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        self._batch = Batch(forward, renderer, model, steady, max_rows, cache_bytes)
        self._batch.use(version, forward.read())
        if draft is not None:
            self._batch.attach(draft, lengths or Fixed(draft.block))
        self._hand_back = hand_back
        self._change = threading.Condition()
        self._waiting: list[Waiting] = []
        self._released: list[str] = []
        self._seats = 0
        self._next: tuple[int, Any] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._tick = FIRST_TICK
        self._asked: dict[asyncio.AbstractEventLoop, list[tuple[Request, asyncio.Future[Completion]]]] = {}

    @property
    def drafted(self) -> Counts | None:
        """What came of drafts so far; None where none are made."""
        return None if self._batch.drafts is None else self._batch.drafts.counts

    def submit(self, requests: Sequence[Request], done: Done) -> None:
        """Queue requests. ``done`` gets (index, result) pairs from the engine's thread, all of a tick in one call.

        What is wrong with one request is its result: ContextOverflow, BadInput, Refused (engine closed), ModelError.
        """
        now = time.monotonic()
        entries = [Waiting(request, i, done, now) for i, request in enumerate(requests)]
        with self._change:
            if not self._closed:
                self._waiting += entries
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="clew-engine", daemon=True)
                    self._thread.start()
                self._change.notify()
                return
        done([(i, _refusal()) for i in range(len(entries))])

    def seat(self, change: int) -> None:
        """Change the number of live runs that may still send a request."""
        with self._change:
            self._seats += change
            if self._waiting:
                self._change.notify()

    def release(self, holder: str) -> None:
        """The holder sends no more: its row may be used for others first."""
        with self._change:
            self._released.append(holder)

    def load(self, version: int) -> None:
        """Serve the module's present weights, copied now, from the next tick that starts afresh; caches are void."""
        weights = self._batch.forward.read()
        with self._change:
            self._next = version, weights

    def close(self) -> None:
        """Refuse what waits and what comes; a tick under way ends."""
        with self._change:
            self._closed = True
            self._change.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    async def complete(self, request: Request) -> Completion:
        """Answer one request; those of one pass of the event loop are submitted together.

        Raises:
            ContextOverflow, BadInput, Refused, ModelError: see ``submit``.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        asked = self._asked.setdefault(loop, [])
        if not asked:
            loop.call_soon(self._send, loop)
        asked.append((request, future))
        return await future

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        asked = self._asked.pop(loop)

        def settle(results: list[tuple[int, Completion | BaseException]]) -> None:
            for i, result in results:
                future = asked[i][1]
                if future.done():
                    continue
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)

        def done(results: list[tuple[int, Completion | BaseException]]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, results)

        self.submit([request for request, _ in asked], done)

    def _work(self) -> None:
        while self._wait():
            started = time.monotonic()
            results: list[Result] = []
            taken = self._take()
            try:
                self._run(taken, results)
            except Exception as error:
                self._batch.abandon()
                answer = _as_model_error(error)
                results += [Result(entry, answer) for entry in taken if not entry.answered]
            self._tick = time.monotonic() - started
            _deliver(results)

    def _wait(self) -> bool:
        """Sleep until a tick should start; False when the thread should end."""
        with self._change:
            idle = time.monotonic() + LINGER
            while True:
                if self._closed:
                    refused, self._waiting = self._waiting, []
                    self._thread = None
                    break
                now = time.monotonic()
                if self._waiting and (left := self._due(0) - now) <= 0:
                    return True
                if not self._waiting and now >= idle:
                    self._thread = None
                    return False
                self._change.wait(left if self._waiting else idle - now)
        _deliver([Result(entry, _refusal()) for entry in refused])
        return False

    def _due(self, running: int) -> float:
        """When what waits should be admitted (lock held)."""
        if len(self._waiting) >= max(1, self._seats - running):
            return 0.0
        return self._waiting[0].arrived + self._tick

    def _take(self) -> list[Waiting]:
        """What waits, to be admitted now; new weights come into force where nothing runs."""
        with self._change:
            entries, self._waiting = self._waiting, []
            released, self._released = self._released, []
            weights, self._next = (None, self._next) if self._batch.active else (self._next, None)
        if weights is not None:
            self._batch.use(*weights)
        self._batch.release(released)
        return entries

    def _run(self, taken: list[Waiting], results: list[Result]) -> None:
        """Admit, then decode until the batch is empty, handing back and admitting more on the way."""
        batch, held = self._batch, time.monotonic()
        blocked = self._admit(taken, results)
        while batch.active:
            held = held if results else time.monotonic()
            batch.step(results)
            enough = results and len(results) >= self._hand_back * (len(results) + batch.active)
            if enough and batch.active and time.monotonic() - held > HOLD:
                _deliver(results)
            if self._waiting and batch.active < blocked and self._joins(len(results)):
                more = self._take()
                taken += more
                blocked = self._admit(more, results)

    def _admit(self, entries: list[Waiting], results: list[Result]) -> float:
        """Admit requests; those without a row wait on until fewer run than the number given back."""
        later = self._batch.admit(entries, results)
        if not later:
            return math.inf
        with self._change:
            self._waiting[:0] = later
        return self._batch.active

    def _joins(self, undelivered: int) -> bool:
        """Whether what waits should join the batch under way; not while newer weights wait for it to end."""
        with self._change:
            if not self._waiting or self._closed or self._next is not None:
                return False
            return self._due(self._batch.active + undelivered) <= time.monotonic()


def _deliver(results: list[Result]) -> None:
    """Hand results to whoever submitted them, one call each; empties the list."""
    by_caller: dict[Done, list[tuple[int, Completion | BaseException]]] = defaultdict(list)
    for entry, answer in results:
        by_caller[entry.done].append((entry.index, answer))
    results.clear()
    for done, answers in by_caller.items():
        try:
            done(answers)
        except Exception:
            _log.exception("a caller of the engine failed to take its results")


def _refusal() -> Refused:
    return Refused("the engine is closed", remedy="Open the model again.")


def _as_model_error(error: BaseException) -> BaseException:
    if isinstance(error, ClewError):
        return error
    wrapped = ModelError(f"the engine failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped

"""The batched engine: requests wait, a tick admits them, prefills what is new, decodes, and hands results back.

One thread, which lives while there is work. A tick starts when as many requests wait as there are live runs that could
still send one, or when the time a tick takes has passed since the first of them arrived.
"""

from __future__ import annotations

import asyncio
import copy
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from clew.core.errors import BadInput, ClewError
from clew.core.protocols import Done, Renderer
from clew.core.records import Request
from clew.core.values import Completion
from clew.models.engine.forwards.fast import Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.grammar import Grammars, Guide
from clew.models.engine.handover import as_model_error, busy, close_at_exit, deliver, send, settle, shut
from clew.models.engine.live_batch import Batch
from clew.models.engine.speculation.drafts import check
from clew.models.engine.speculation.lengths import Paying
from clew.models.engine.speculation.proposal import Drafter, Lengths
from clew.models.engine.speculation.verification import Drafted
from clew.models.engine.state import Answered, Inbox, Result, Stats, Waiting
from clew.models.engine.stream import Stream
from clew.models.engine.succession import Succession
from clew.models.engine.taps.deep import Deep

LINGER = 1.0  # seconds an idle thread waits before it ends
HOLD = 0.05  # seconds the first result waits for others, as each hand-back costs the caller a commit
FIRST_TICK = 0.02  # seconds, the assumed length of a tick before one was measured
PATIENCE = 10.0  # seconds, the longest wait for a step when Python ends


class Engine:
    """Answers token requests in batches; implements ``Batches`` and ``complete``.

    Args:
        forward: computes; see ``forward_of``.
        renderer: parses replies and names the stop tokens; needs ``decode`` where stop strings are used.
        steady: results depend on nothing but the request, whatever runs beside it; rows are ordered by
            ``Request.order``.
        max_rows: most requests in a batch, and most prefixes kept.
        cache_bytes: most memory for cached keys and values, exceeded only by a batch that needs more.
        hand_back: share of the batch that must be done before results are handed back while the rest decodes on;
            waiting for the longest reply would leave rows empty. Of requests that were submitted: what ``complete`` and
            ``stream`` answer goes back at once.
        max_waiting: requests that may wait beside ``max_rows`` that run; another is refused with Busy. None: no limit.
        grammars: makes the guides of constrained replies; without it they are refused.
        draft: proposes tokens, which the model verifies; the law of the replies stays the model's.
        lengths: how many proposed tokens are verified. Where not given the engine times its own rounds and does what is
            fastest: no drafts, likely tokens, or whole blocks (``Paying``).

    Raises:
        BadInput: the drafter is of another model, or this engine cannot verify drafts.
    """

    def __init__(
        self,
        forward: Fast | Generic,
        renderer: Renderer,
        *,
        version: int = 0,
        model: str = "",
        steady: bool = False,
        max_rows: int = 256,
        cache_bytes: int = 2 << 30,
        hand_back: float = 0.5,
        max_waiting: int | None = None,
        grammars: Grammars | None = None,
        draft: Drafter | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        self._all = Succession(forward, renderer, model, steady, max_rows, cache_bytes)
        self._batch.use(version, forward.read())
        if draft is not None:
            self._batch.attach(draft, lengths or Paying(draft.block))
        self._hand_back, self._renderer, self._grammars, self._steady = hand_back, renderer, grammars, steady
        self._most = math.inf if max_waiting is None else max_rows + max_waiting
        self._open = 0  # requests taken and not answered
        self._pace = 0.0  # seconds from one answer to the next, of late
        self._paced = time.monotonic()
        self._dropped: deque[Waiting] = deque()
        self._change = threading.Condition()
        self._waiting: list[Waiting] = []
        self._released: set[str] = set()
        self._seats = 0
        self._next: tuple[int, Any] | None = None
        self._drafting: tuple[Drafter | None, Lengths] | None = None
        self._thread: threading.Thread | None = None
        self._closed = self._left = False
        self._tick = FIRST_TICK
        self._asked: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
        close_at_exit(self)

    @property
    def _batch(self) -> Batch:
        return self._all.batch

    @property
    def cache_bytes(self) -> int:
        """Memory of a full cache of keys and values."""
        return self._batch.cache_bytes

    @property
    def drafted(self) -> Drafted | None:
        """What came of drafts since this drafter was given; None where none are made."""
        return None if self._batch.drafts is None else self._batch.drafts.counts

    def submit(self, requests: Sequence[Request], done: Done) -> None:
        """Queue requests. ``done`` gets (index, result) pairs from the engine's thread, all of a tick in one call.

        What is wrong with one request is its result: ContextOverflow, BadInput, Busy (too many wait), Refused (engine
        closed), ModelError.
        """
        now = time.monotonic()
        self._queue([Waiting(request, i, done, now) for i, request in enumerate(requests)])

    def _queue(self, entries: Sequence[Waiting]) -> None:
        """Let requests wait for the next tick; those that cannot be taken are answered at once."""
        refused: list[Result] = []
        fit: list[Waiting] = []
        for entry in entries:
            grammar = entry.request.sampling.grammar
            try:
                entry.guide = self.guide(grammar) if grammar else None
                if grammar and not entry.guide.take(entry.request.forced):
                    raise BadInput("the forced tokens break the grammar", remedy="Force others, or drop the grammar.")
                fit.append(entry)
            except ClewError as error:
                refused.append(Result(entry, error))
        with self._change:
            room = 0 if self._closed else int(min(len(fit), max(0, self._most - self._open)))
            if room:
                self._waiting += fit[:room]
                self._open += room
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="clew-engine", daemon=True)
                    self._thread.start()
                self._change.notify()
            if over := fit[room:]:
                told = busy(self._open, (self._open - self._all.active) * self._pace)
                refused += [Result(entry, shut() if self._closed else told) for entry in over]
                self._batch.counts.refused += len(over)
        deliver(refused)

    def guide(self, grammar: str) -> Guide:
        """What holds a reply to a grammar; made once for each grammar, which may take a while.

        Raises:
            BadInput: there is no such grammar, or this model's tokenizer cannot be held to one.
        """
        if self._grammars is None:
            raise BadInput(
                "replies of this model cannot be held to a grammar", remedy="Use a Hugging Face tokenizer that is fast."
            )
        return self._grammars.guide(grammar)

    def stats(self) -> Stats:
        """What the engine does now and has done so far; for any thread, at any time, at little cost."""
        batch, running = self._batch, self._all.active
        return Stats(running, max(0, self._open - running), *batch.room(), copy.deepcopy(batch.counts))

    def seat(self, change: int) -> None:
        """Change the number of live runs that may still send a request."""
        with self._change:
            self._seats += change
            if self._waiting:
                self._change.notify()

    def release(self, run: str) -> None:
        """The run sends no more: all its rows may be used for others first."""
        with self._change:
            self._released.add(run)

    def reader(self) -> Deep | Generic:
        """A forward of one's own over the weights that are served, or are to be next, which reads hidden states."""
        with self._change:
            coming = self._next
        forward = self._batch.forward
        found = Deep(forward) if isinstance(forward, Fast) else forward.twin()
        if coming is not None:
            found.use(coming[1])
        return found

    def load(self, version: int) -> None:
        """Serve the module's present weights, copied now, to what is admitted from now on; replies under way end under
        those that they began with. With a drafter, from the next tick that starts afresh. Caches are void."""
        weights = self._batch.forward.read()
        with self._change:
            self._next = version, weights

    def draft(self, drafter: Drafter | None, lengths: Lengths | None = None) -> None:
        """Draft with this, or with nothing, from the next tick that starts afresh; counts begin anew.

        Raises:
            BadInput: the drafter is of another model, or this engine cannot verify drafts.
        """
        if drafter is not None:
            check(drafter, self._batch.forward, self._steady)
        with self._change:
            self._drafting = drafter, lengths or Paying(0 if drafter is None else drafter.block)

    def close(self, at_once: bool = False) -> None:
        """Refuse what waits and what comes; a tick under way ends, ``at_once`` after a token and with no answers."""
        with self._change:
            self._closed, self._left = True, at_once
            self._change.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE if at_once else None)

    async def complete(self, request: Request) -> Completion:
        """Answer one request; those of one pass of the event loop are submitted together.

        A caller that is cancelled ends the work: its row is free at the next round.

        Raises:
            ContextOverflow, BadInput, Busy, Refused, ModelError: see ``submit``.
        """
        loop = asyncio.get_running_loop()
        if request.sampling.grammar:
            await asyncio.to_thread(self.guide, request.sampling.grammar)
        future: asyncio.Future[Completion] = loop.create_future()
        entry = self.ask(request, Answered(loop, partial(settle, future)))
        try:
            return await future
        except asyncio.CancelledError:
            self.drop(entry)
            raise

    def stream(self, request: Request) -> Stream:
        """Answer one request in pieces, ``Piece`` by ``Piece``, and at the end with the Completion ``complete`` gives.

        Closing the stream ends the work; then its ``completion`` holds what had arrived, finish ``cut``.

        Raises:
            ContextOverflow, BadInput, Busy, Refused, ModelError: from the first piece asked for; see ``submit``.
        """
        return Stream(self, request, self._renderer)

    def ask(self, request: Request, answered: Answered, inbox: Inbox | None = None) -> Waiting:
        """Queue a request of a running event loop, with the others of this pass of it, and of runs that are seated."""
        alone = inbox is not None or self._seats <= 0  # else each turn of drifting rows costs a prefill of its own
        entry = Waiting(request, 0, answered, time.monotonic(), live=alone)
        entry.inbox = inbox
        asked = self._asked.setdefault(answered.loop, [])
        if not asked:
            answered.loop.call_soon(self._send, answered.loop)
        asked.append(entry)
        return entry

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        self._queue(self._asked.pop(loop))

    def drop(self, entry: Waiting) -> None:
        """Nobody wants this answer: what waits is answered now, what runs at the next round, both with finish ``cut``.

        From any thread, a finaliser among them: nothing is locked.
        """
        if not entry.answered:
            entry.dropped = True
            self._dropped.append(entry)

    def _work(self) -> None:
        while self._wait():
            started = time.monotonic()
            results: list[Result] = []
            taken = self._take(results)
            try:
                self._run(taken, results)
            except Exception as error:
                self._all.abandon()
                answer = as_model_error(error)
                results += [Result(entry, answer) for entry in taken if not entry.answered]
                for entry in taken:
                    entry.answered = True  # also where it waits for a row
            self._tick = time.monotonic() - started
            self._answer(results)

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
        self._answer([Result(entry, shut()) for entry in refused])
        return False

    def _due(self, running: int) -> float:
        """When what waits should be admitted (lock held)."""
        if len(self._waiting) >= max(1, self._seats - running) or any(entry.live for entry in self._waiting):
            return 0.0
        return self._waiting[0].arrived + self._tick

    def _take(self, results: list[Result]) -> list[Waiting]:
        """What waits, to be admitted now; new weights come into force, and drafts where nothing runs."""
        with self._change:
            entries, self._waiting = self._waiting, []
            released, self._released = self._released, set()
            weights = drafting = None
            if self._all.open:
                weights, self._next = self._next, None
            if not self._all.active:
                drafting, self._drafting = self._drafting, None
        if weights is not None:
            self._all.use(*weights)
        if drafting is not None:
            self._batch.attach(*drafting)
        if released:
            self._batch.release(released)
        for entry in entries:
            if entry.dropped and not entry.answered:
                self._batch.refuse(entry, results)
        return [entry for entry in entries if not entry.answered]

    def _run(self, taken: list[Waiting], results: list[Result]) -> None:
        """Admit, then decode until the batch is empty, handing back and admitting more on the way."""
        running, held = self._all, time.monotonic()
        blocked = self._admit(taken, results)
        self._tell(results)
        while running.active and not self._left:
            held = held if results else time.monotonic()
            running.step(results)
            self._tell(results)
            enough = results and len(results) >= self._hand_back * (len(results) + running.active)
            if enough and running.active and time.monotonic() - held > HOLD:
                self._answer(results)
            room = self._batch.active < blocked or self._next is not None
            if self._waiting and room and self._joins(len(results)):
                more = self._take(results)
                taken += more
                blocked = self._admit(more, results)
                self._tell(results)

    def _tell(self, results: list[Result]) -> None:
        """Send what somebody waits for at once: pieces of streams, and the answers of those who asked alone."""
        if self._dropped:
            self._cut(results)
        send(self._all.fresh())
        if results and any(result.entry.live for result in results):
            now = [result for result in results if result.entry.live]
            results[:] = [result for result in results if not result.entry.live]
            self._answer(now)

    def _cut(self, results: list[Result]) -> None:
        """End what was dropped, whether it runs or waits for a row."""
        dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
        with self._change:
            waiting = [entry for entry in self._waiting if entry.dropped]
            self._waiting = [entry for entry in self._waiting if not entry.dropped]
        for entry in waiting:
            self._batch.refuse(entry, results)
        self._all.cut(dropped, results)

    def _admit(self, entries: list[Waiting], results: list[Result]) -> float:
        """Admit requests; those without a row wait on until fewer run than the number given back."""
        later = self._batch.admit(entries, results)
        if not later:
            return math.inf
        with self._change:
            self._waiting[:0] = later
        return self._batch.active

    def _joins(self, undelivered: int) -> bool:
        """Whether what waits should join what runs; not while weights or drafts that are newer wait for its end."""
        with self._change:
            late = self._drafting is not None or (self._next is not None and not self._all.open)
            if not self._waiting or self._closed or late:
                return False
            return self._due(self._all.active + undelivered) <= time.monotonic()

    def _answer(self, results: list[Result]) -> None:
        """Hand results back, and count them; empties the list."""
        if not results:
            return
        counts, now = self._batch.counts, time.monotonic()
        counts.requests += len(results)
        counts.failed += sum(isinstance(answer, BaseException) for _, answer in results)
        counts.cut += sum(entry.dropped for entry, _ in results)
        self._pace += 0.2 * ((now - self._paced) / len(results) - self._pace)
        self._paced = now
        with self._change:
            self._open -= len(results)
        deliver(results)

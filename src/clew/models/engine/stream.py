"""A streamed answer: tokens pass from the engine's thread into an event loop and become pieces of settled text."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import numpy as np

from clew.core.protocols import Renderer
from clew.core.records import Request
from clew.core.values import Completion, Piece
from clew.models.engine.handover import Queue
from clew.models.engine.pieces import Settled
from clew.models.engine.state import Answered, Fresh, Inbox, Waiting


class _Arrived:
    """What has come of a stream. The engine holds this, not the Stream, which may be forgotten by whoever had it."""

    def __init__(self) -> None:
        self.fresh: deque[Fresh] = deque()
        self.answer: Completion | BaseException | None = None
        self.some = asyncio.Event()

    def put(self, new: Fresh) -> None:
        self.fresh.append(new)
        self.some.set()

    def end(self, answer: Completion | BaseException) -> None:
        self.answer = answer
        self.some.set()


class Stream:
    """An asynchronous iterator of Pieces and, last, the Completion. Starts when the first piece is asked for.

    Closing it, cancelling whoever waits for a piece, or forgetting it ends the work at the next round. After
    ``aclose`` the attribute ``completion`` holds the answer: whole, or what had arrived, with finish ``cut``. It stays
    None where the stream never started or its request failed.

    A reader that is slower than the engine gets what has come meanwhile as one piece. ``reads`` makes of the engine's
    Completion the one that is given, where another renderer than the engine's reads the reply.
    """

    def __init__(
        self,
        engine: Queue,
        request: Request,
        renderer: Renderer,
        reads: Callable[[Completion], Completion] = lambda done: done,
    ) -> None:
        self.completion: Completion | None = None
        self._reads = reads
        self._engine, self._request = engine, request
        self._settled = Settled(renderer, request.sampling.stop, request.forced)
        self._arrived: _Arrived | None = None
        self._entry: Waiting | None = None
        self._given = 0  # tokens
        self._over = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Piece | Completion:
        if self._over:
            raise StopAsyncIteration
        if self._arrived is None:
            await self._start()
        arrived = self._arrived
        assert arrived is not None
        try:
            while not (arrived.fresh or arrived.answer):
                arrived.some.clear()
                await arrived.some.wait()
        except asyncio.CancelledError:
            self._drop()
            raise
        if arrived.fresh:
            return self._piece(arrived.fresh)
        return self._last(arrived.answer)

    async def aclose(self) -> None:
        """End the stream; waits the round it takes until the request is answered."""
        self._over = True
        arrived = self._arrived
        if arrived is None or self._entry is None:
            return
        self._drop()
        while arrived.answer is None:
            arrived.some.clear()
            await arrived.some.wait()
        if isinstance(arrived.answer, Completion):
            self.completion = self._reads(arrived.answer)

    def __del__(self) -> None:
        if self._entry is not None:
            self._drop()

    def _drop(self) -> None:
        self._over = True
        if self._entry is not None and (self._arrived is None or self._arrived.answer is None):
            self._engine.drop(self._entry)

    async def _start(self) -> None:
        if self._request.sampling.grammar:
            await asyncio.to_thread(self._engine.guide, self._request.sampling.grammar)
        loop = asyncio.get_running_loop()
        arrived = self._arrived = _Arrived()
        self._entry = self._engine.ask(self._request, Answered(loop, arrived.end), Inbox(loop, arrived.put))

    def _piece(self, fresh: deque[Fresh]) -> Piece:
        come = [fresh.popleft() for _ in range(len(fresh))]
        tokens = tuple(token for new in come for token in new.tokens)
        logprobs = np.concatenate([new.logprobs for new in come])
        text, reasoning = self._settled.add(tokens)
        self._given += len(tokens)
        if self._request.tops is None:
            return Piece(text, tokens, logprobs, reasoning=reasoning)
        plain = np.array([value for new in come for value in new.plain], np.float32)
        return Piece(text, tokens, logprobs, plain, tuple(top for new in come for top in new.tops), reasoning)

    def _last(self, answer: Completion | BaseException | None) -> Piece | Completion:
        """What of the answer no piece has brought; then the answer itself."""
        if not isinstance(answer, Completion):
            self._over = True
            raise answer if answer is not None else StopAsyncIteration
        answer = self.completion = self.completion or self._reads(answer)
        tokens, start = (answer.tokens or ())[self._given :], self._given
        text, reasoning = self._settled.rest(answer.message)
        if not (tokens or text or reasoning):
            self._over = True
            return answer
        self._given += len(tokens)
        logprobs, plain, tops = (
            None if values is None else values[start:] for values in (answer.logprobs, answer.plain, answer.tops)
        )
        return Piece(text, tokens, logprobs, plain, tops, reasoning)  # type: ignore[arg-type]

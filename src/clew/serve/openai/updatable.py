"""Local weights that are replaced while they are served: replies under way are ended, waited for, or gone on with.

``weight_routes`` pauses and resumes it. A reply that goes on under new weights keeps what the old ones sampled, and
says which tokens are whose. No token may ever be told as of weights that did not sample it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from clew.core.records import Request
from clew.core.values import Completion, Inner, Message, Piece, Usage
from clew.models.compose.forwarding import Forwarding
from clew.models.dialects.completions import MADE
from clew.models.fleet.spans import together

if TYPE_CHECKING:
    from clew.models.local import Local

Mode = Literal["keep", "wait", "abort"]
FIRST = "default"  # the label of weights that nobody pushed, as vLLM has it


class _Flight:
    """One reply under way. ``stopped``: a pause ended its stream. ``ended``: it is not to be gone on with."""

    def __init__(self, request: Request) -> None:
        self.request, self.stream = request, cast(Any, None)
        self.stopped = self.ended = self.frozen = False
        self.go, self.over = asyncio.Event(), asyncio.Event()

    async def stop(self) -> None:
        self.stopped = True
        if self.stream is not None:
            await self.stream.aclose()

    async def thawed(self) -> None:
        """Wait until the pause is over, or somebody ends this reply."""
        self.frozen = True
        await self.go.wait()
        self.frozen = False


class Updatable(Forwarding):
    """A Local whose weights are replaced by others of the same shape.

    Attributes:
        paused: how it was paused; empty while it answers.
    """

    def __init__(self, model: Local) -> None:
        super().__init__(model)
        self.local = model
        self.paused: Mode | Literal[""] = ""
        self._labels = {model.version: FIRST}
        self._flights: set[_Flight] = set()

    @property
    def label(self) -> str:
        """Of the weights that are served, or are to be from the next reply on."""
        return self._labels[self.local.version]

    @label.setter
    def label(self, label: str) -> None:
        self._labels[self.local.version] = label

    async def pause(self, mode: Mode) -> None:
        """Begin no reply. What becomes of those under way: ``keep`` freezes them, ``wait`` lets them end, ``abort``
        ends them with the tokens that they have."""
        self.paused, flights = mode, list(self._flights)
        for flight in flights:
            flight.go.clear()
        if mode == "wait":
            await asyncio.gather(*[flight.over.wait() for flight in flights if not flight.frozen])
            return
        if mode == "abort":
            self._end(flights)
        await asyncio.gather(*[flight.stop() for flight in flights])

    def resume(self) -> None:
        """Answer again, frozen replies first."""
        self.paused = ""
        for flight in self._flights:
            flight.go.set()

    async def idle(self) -> None:
        """Wait until no reply is under way."""
        await asyncio.gather(*[flight.over.wait() for flight in list(self._flights)])

    async def abort(self, names: Sequence[str]) -> int:
        """End the replies to requests of these ids, or all where none is named; gives how many those are."""
        meant = [flight for flight in self._flights if not names or flight.request.idempotency in names]
        self._end(meant)
        await asyncio.gather(*[flight.stop() for flight in meant])
        return len(meant)

    def _end(self, flights: Sequence[_Flight]) -> None:
        for flight in flights:
            flight.ended = True
            flight.go.set()

    async def take(self, folder: Path) -> None:
        """Load the weights of a folder; ``publish`` serves them.

        Raises:
            BadInput: the folder holds none that fit. Nothing is changed then.
        """
        await asyncio.to_thread(self.local.take, folder)

    def publish(self, label: str | None) -> None:
        """Serve what was loaded, under this label or under that of the weights before."""
        label = self.label if label is None else label
        self.local.publish()
        self.label = label

    async def complete(self, request: Request) -> Completion:
        return [item async for item in self.stream(request) if isinstance(item, Completion)][-1]

    async def stream(self, request: Request) -> AsyncIterator[str | Completion]:
        parts, asked, given = list[Completion](), request, ""
        flight = _Flight(request)
        self._flights.add(flight)
        try:
            while True:
                while self.paused and not flight.ended:
                    await flight.thawed()
                if flight.ended:
                    nothing = Completion(Message("assistant", ""), (), version=self.local.version)
                    yield together(parts or [nothing])._replace(finish="abort")
                    return
                flight.stopped, seen = False, ""
                stream = flight.stream = self.local.stream(asked)
                async for item in stream:
                    if isinstance(item, Piece):
                        seen += item
                        new = seen[len(given) :] if seen.startswith(given) else ""
                        given += new
                        yield _piece(item, new)
                if (part := stream.completion) is None:
                    continue  # it was stopped before it began
                parts.append(self._made(part))
                if not flight.stopped or part.finish != "cut":
                    yield together(parts)
                    return
                asked = asked._replace(forced=(*asked.forced, *(part.tokens or ())))
        finally:
            self._flights.discard(flight)
            flight.over.set()
            if flight.stream is not None:
                await flight.stream.aclose()

    def _made(self, part: Completion) -> Completion:
        """What one version of the weights sampled, with its label."""
        if not part.tokens:
            return part._replace(inner=())
        used = Usage(0, len(part.tokens))
        return part._replace(inner=(Inner(MADE, self._labels[part.version], part.version, used, tokens=part.tokens),))


def _piece(item: Piece, text: str) -> Piece:
    return Piece(text, item.tokens, item.logprobs, item.plain, item.tops, item.reasoning)

"""The requests of a program that wait for answers, numbered as the record numbers them.

``ProgramWorld`` takes each request in here. A program that is started again, for a fork or a resumed run, is given its
recorded answers: requests that it sends at the same time may then come in another order, or apart, and what it asks may
be worded otherwise (a date, a duration). Each answer must go to the request that it was for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from clew.core.errors import WorldError
from clew.core.keys import sampling_form
from clew.serve.history import Arrival, History
from clew.serve.programs.line import Incoming

APART = 2.0  # seconds for which a request is awaited that was recorded, where another came in its place
More = Callable[[float | None], Awaitable[list[Incoming]]]  # what comes within so many seconds; nothing after its end


class OpenRequests:
    """``differs``: started again, the program has asked something in other words than recorded."""

    def __init__(self) -> None:
        self.history, self.differs = History(), False
        self._told, self._placed = list[Incoming](), list[Arrival]()
        self.late = list[Incoming]()  # what came and is not taken in yet

    def take(self, it: Incoming) -> Arrival:
        """A request in the run's own words: what of it the conversation so far does not hold."""
        placed = self._place(it)
        self.history.apply(placed)
        it.exchange.number, it.exchange.thread = placed.number, placed.thread
        self._told.append(it)
        self._placed.append(placed)
        return placed

    def _place(self, it: Incoming) -> Arrival:
        asked, sampling = it.asked, sampling_form(it.asked.sampling) | {"stop": list(it.asked.sampling.stop)}
        named = f"{it.dialect}:{asked.model}"
        return self.history.place(asked.messages, named, asked.tools, sampling, it.sent.declared)

    async def answered(self, answers: Sequence[Mapping[str, Any]], more: More) -> list[Incoming]:
        """The requests that these answers are for, in their order; they wait no longer.

        Raises:
            WorldError: the program asks less than is answered.
        """
        if [(it.exchange.number, it.key) for it in self._told] != [(it["request"], it.get("key")) for it in answers]:
            await self._again(answers, more)
        found, self._told, self._placed = self._told, [], []
        return found

    async def _again(self, answers: Sequence[Mapping[str, Any]], more: More) -> None:
        """Take back what waits and take in, in the order of the answers, what they are for: a request of equal key, or,
        where none comes, the next that came in its place."""
        pool = list(self._told)
        for placed in reversed(self._placed):
            self.history.undo(placed)
        self._told, self._placed = [], []
        while (found := _equal(answers, pool)).count(None) and not self._goes_on(answers, found, pool):
            short = len(pool) < len(answers)
            fresh = await more(None if short else APART)
            if not fresh and short:
                raise WorldError(f"the program makes {len(pool)} requests where it made {len(answers)}")
            if not fresh:
                break
            pool += fresh
        rest = [it for it in pool if not any(it is one for one in found)]
        self.differs = self.differs or None in found
        for given, one in zip(answers, found, strict=True):
            placed = self.take(one if one is not None else rest.pop(0))
            if placed.number != given["request"]:
                raise WorldError(f"an answer to request {given['request']}, which waits for none")
        self.late = rest

    def _goes_on(
        self, answers: Sequence[Mapping[str, Any]], found: Sequence[Incoming | None], pool: Sequence[Incoming]
    ) -> bool:
        """Whether what has no request of equal key is sure to be what came in its place: the same conversation goes on
        in it."""
        rest = [self._place(it) for it in pool if not any(it is one for one in found)]
        threads = [given.get("thread") for given, one in zip(answers, found, strict=True) if one is None]
        return threads == [it.thread for it in rest if it.goes_on]


def _equal(answers: Sequence[Mapping[str, Any]], pool: Sequence[Incoming]) -> list[Incoming | None]:
    """For each answer a request of its key, taken once; None where there is none."""
    left = [(it.key, it) for it in pool]
    found = list[Incoming | None]()
    for given in answers:
        at = next((at for at, (key, _) in enumerate(left) if key == given.get("key")), None)
        found.append(left.pop(at)[1] if at is not None else None)
    return found

"""What a world may ask for while it performs an action: models, as a simulated user's world does, and its luck.

A taskset whose ``open`` takes a second parameter is given an Asks with each world. Answers are recorded with the act
(``Call.inner``, ``Call.seed``), and where a world is taken through recorded acts again they come from the record. A
world must ask in ``step`` alone, which is asynchronous where it asks a model.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from clew.core.errors import ReplayDiverged, WorldError
from clew.core.protocols import Taskset, World
from clew.core.records import Call
from clew.core.values import Message, Task

Answer = Callable[[Sequence[Message], str, Mapping[str, Any]], Awaitable[str]]
"""Messages, the reference of a model or "" for the run's own, fields of Sampling -> what the model says."""


class Asks:
    """Models and luck as a world reaches them; without ``live`` and ``draw`` it has the record alone.

    Args:
        known: told of an answer that the world has without asking: the text, and the reference of the model.
    """

    def __init__(
        self,
        live: Answer | None = None,
        draw: Callable[[], int] | None = None,
        known: Callable[[str, str], None] | None = None,
    ) -> None:
        self._live, self._draw, self._known = live, draw, known
        self._told: list[str] | None = None
        self._seed = 0

    def luck(self) -> int:
        """The seed of what chance decides in the act under way, which differs from run to run of one task.

        0 where no run draws one: outside a run, in an edit, and in acts recorded by a world that drew none. A world
        then goes by the task alone.
        """
        if self._told is not None:
            return self._seed
        return self._draw() if self._draw else 0

    @property
    def live(self) -> bool:
        """Whether a model would be asked now: not while a world is taken through recorded acts."""
        return self._told is None and self._live is not None

    def take(self, text: str, model: str = "") -> str:
        """An answer that the world has already, in place of ``ask``: it is recorded with the act like any other, so
        that a world taken through the record again finds it where no model was asked.

        Raises:
            ReplayDiverged: a recorded act had no such answer.
        """
        if self._told is not None:
            return self._next()
        if self._known is not None:
            self._known(text, model)
        return text

    def _next(self) -> str:
        if not self._told:
            raise ReplayDiverged(
                "the world asks a model more than when it was recorded", remedy="Its code has changed."
            )
        return self._told.pop(0)

    async def ask(self, messages: str | Sequence[Message], model: str = "", **sampling: Any) -> str:
        """What a model says next.

        Raises:
            WorldError: nothing answers here. ReplayDiverged: a recorded act did not ask this. ModelError: as raised.
        """
        if self._told is not None:
            return self._next()
        if self._live is None:
            raise WorldError("no model answers this world", remedy="Perform its acts in a run.")
        return await self._live([Message("user", messages)] if isinstance(messages, str) else messages, model, sampling)

    def tell(self, call: Call | None) -> None:
        """From now on hand over what was answered in a recorded act; None: ask again."""
        self._told = None if call is None else [one.text for one in call.inner]
        self._seed = 0 if call is None else call.seed

    def no_luck(self) -> None:
        """Until the next recorded act the world goes by the task alone: an edit's own acts have no Call."""
        self._seed = 0


def open_world(taskset: Taskset, task: Task, asks: Asks | None = None) -> World:
    """The world of a task, with ``asks`` where its taskset takes them (``open(task, asks)``)."""
    opening: Callable[..., World] = taskset.open
    return opening(task, asks or Asks()) if _asks(type(taskset)) else opening(task)


@lru_cache
def _asks(kind: Any) -> bool:
    return len(inspect.signature(kind.open).parameters) > 2  # self, task and asks

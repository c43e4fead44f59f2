"""Bases of the bundled worlds and tasksets: what all of them share whose tasks are numbered and judged by re-enactment.

The modules of this folder subclass them. A taskset of one's own needs none of them, since the harness asks only for the
protocols of ``core.protocols``. A base must never know the rules of a world.
"""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from clew.core.errors import WorldError
from clew.core.keys import derive
from clew.core.protocols import Restores, Taskset, World
from clew.core.reading import Record
from clew.core.values import Observation, Task, ToolCall, ToolSpec
from clew.worlds.judging import reenact
from clew.worlds.seeds import draw_numbers, number_of

W = TypeVar("W", bound=World)


class Prompt(World, Protocol):
    """A world that answers at once."""

    def step(self, action: str | ToolCall) -> Observation: ...


P = TypeVar("P", bound=Prompt)


class Exact:
    """A world that takes snapshots and, unless it says so, offers no tools; ``close`` sets ``_closed``."""

    __slots__ = ("_closed",)
    restores: Restores = "exact"
    tools: Sequence[ToolSpec] = ()
    _closed: bool

    def close(self) -> None:
        self._closed = True


class Answering(World, Protocol):
    """A world that answers each action with a text, and is over after so many actions or when ``_ended`` says so.

    A subclass is also ``Exact``, and sets ``_said``, what is seen first, and ``_left``, the actions that it allows.
    """

    _said: str
    _left: int
    _closed: bool

    @property
    def _ended(self) -> bool:
        """Whether an action ended the task."""
        ...

    def _answered(self, action: str | ToolCall) -> str:
        """Perform an action; what the world says to it."""
        ...

    def observe(self) -> Observation:
        return Observation(self._said, None, self._ended or self._left <= 0)

    def step(self, action: str | ToolCall) -> Observation:
        """Perform an action, as text or by a tool.

        Raises:
            WorldError: the task was ended, the actions are used up, or the world is closed.
        """
        alive(self.observe().done or self._closed, action)
        self._left -= 1
        self._said = self._answered(action)
        return self.observe()._replace(call_id=action.id if isinstance(action, ToolCall) else None)


class Numbered(Taskset, Protocol[W]):
    """A taskset whose task ids read ``prefix-NUMBER``, and whose judge looks at the last state of a world it ``plays``.

    A subclass gives ``find``, ``open`` and ``verdict``, and ``content`` where two numbers may stand for one task.
    """

    prefix: str
    plays: type[W]

    def __repr__(self) -> str:
        return self.ref

    def number(self, task_id: str) -> int:
        """The number in a task id.

        Raises:
            BadInput: the id is not of this set.
        """
        return number_of(task_id, self.prefix)

    def content(self, number: int) -> Hashable:
        """What a task number stands for, as a hashable JSON-like value."""
        return number

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]:
        return [self.find(f"{self.prefix}-{number}") for number in draw_numbers(n, seed, split, self.content)]

    def verdict(self, task: Task, last: W) -> dict[str, float]:
        """The rewards of a run whose world has come to the state of ``last``."""
        ...

    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float]:
        """The ``verdict`` on the world's last state, which re-enacting the record gives where the world is gone."""
        if isinstance(world, self.plays):
            return self.verdict(task, world)
        last = await reenact(self, task, run)
        assert isinstance(last, self.plays)
        try:
            return self.verdict(task, last)
        finally:
            last.close()


class Demonstrated(Numbered[P], Protocol[P]):
    """A taskset with an ``expert`` of its own, who makes a ``slip`` now and then."""

    def open(self, task: Task) -> P: ...

    def expert(self, world: P) -> str:
        """The next action of one who knows how the task is done."""
        ...

    def slip(self, world: P, rng: random.Random) -> str:
        """An action in the expert's place."""
        ...

    def demonstrations(
        self, n: int, seed: int = 0, noise: float = 0.3, split: str = "train"
    ) -> list[tuple[Task, list[tuple[str, str]]]]:
        """Episodes of the expert in which each action is, with probability ``noise``, a slip instead.

        Returns (task, [(observation, action), ...]) with failures kept.
        """
        tasks = enumerate(self.sample(n, seed, split))
        return [(task, self._episode(task, noise, derive(seed, "demonstrations", i))) for i, task in tasks]

    def demonstrate(self, task: Task, seed: int = 0, noise: float = 0.0) -> list[str]:
        """Actions of one episode of ``demonstrations``, until it is over."""
        return [action for _, action in self._episode(task, noise, derive(seed, "demonstrate", task.id))]

    def _episode(self, task: Task, noise: float, seed: int) -> list[tuple[str, str]]:
        world, steps, rng = self.open(task), list[tuple[str, str]](), random.Random(seed)
        seen = world.observe()
        while not seen.done:
            action = self.slip(world, rng) if rng.random() < noise else self.expert(world)
            steps.append((seen.text, action))
            seen = world.step(action)
        return steps


def alive(over: bool, action: str | ToolCall) -> None:
    """Raises WorldError where the episode is over, so that ``action`` comes too late."""
    if over:
        raise WorldError(f"step {action!r} after the end", remedy="Open a new world for the task.")


def foreign() -> WorldError:
    return WorldError("the snapshot is not of this task", remedy="Restore it into a world opened for its own task.")


def load(snapshot: bytes, name: str, fields: int) -> list[Any]:
    """The ``fields`` values of a JSON snapshot, of which the first is the ``name`` of its task.

    Raises:
        WorldError: the snapshot is of another task or cut short.
    """
    try:
        values = json.loads(snapshot)
    except (ValueError, TypeError):
        values = None
    if not isinstance(values, list) or len(values) != fields or values[0] != name:
        raise foreign()
    return values

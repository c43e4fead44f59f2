"""The contracts of Clew on one screen. Each extra power of a Model is a protocol of its own, never a flag."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from clew.core.reading import Record as Record
from clew.core.reading import Store as Store
from clew.core.records import Node, Request, Setup, Tapped
from clew.core.values import F32, Completion, Message, Observation, Ranked, Task, ToolCall, ToolSpec

Restores = Literal["exact", "reenact", "caller", "none"]
Done = Callable[[list[tuple[int, Completion | BaseException]]], None]


class World(Protocol):
    """Answers actions; single use. ``state_key`` (16 bytes) names its present state."""

    restores: Restores
    tools: Sequence[ToolSpec]

    @property
    def state_key(self) -> bytes: ...
    def observe(self) -> Observation: ...
    def step(self, action: str | ToolCall) -> Observation | Awaitable[Observation]: ...
    def close(self) -> None: ...


@runtime_checkable
class Snapshots(Protocol):
    """Worlds of kind ``exact``."""

    def snapshot(self) -> bytes: ...
    def restore(self, snapshot: bytes) -> None: ...


class Taskset(Protocol):
    """Makes tasks, opens a world for one, judges a finished run. ``ref`` rebuilds it in another process."""

    ref: str

    def sample(self, n: int, seed: int = 0, split: str = "train") -> list[Task]: ...
    def find(self, task_id: str) -> Task: ...
    def open(self, task: Task) -> World: ...
    async def judge(self, task: Task, run: Record, world: World | None) -> Mapping[str, float | None]: ...


class Renderer(Protocol):
    """Turns messages into token deltas; append-only. ``rewrites``: the template's own re-render changes history."""

    ref: str
    stop: frozenset[int]
    rewrites: bool

    def delta(
        self, prev: Node | None, closed: bool, message: Message, tools: Sequence[ToolSpec]
    ) -> tuple[int, ...]: ...
    def head(self) -> tuple[int, ...]: ...
    def parse(self, ids: Sequence[int]) -> Message: ...
    def encode(self, text: str) -> tuple[int, ...]: ...


class Model(Protocol):
    """Anything that answers. ``renderer`` is None where the model takes messages and not token ids."""

    ref: str

    @property
    def version(self) -> int: ...
    @property
    def renderer(self) -> Renderer | None: ...
    async def complete(self, request: Request) -> Completion: ...


def weights_of(model: object) -> str:
    """The content name of a model's weights, its attribute ``weights_name``; empty where it has none.

    Two folders that hold the same weights have one such name. Keys know the model by it, whatever its ``ref`` is.
    """
    name = getattr(model, "weights_name", "")
    return name if isinstance(name, str) else ""


def answers_for(model: Model, setup: Setup) -> bool:
    """Whether a recorded answer is the model's own: by the weights where both have a content name, else by the ref."""
    mine = weights_of(model)
    return setup.weights == mine if mine and setup.weights else setup.model == model.ref


class Policy(Protocol):
    """A model whose weights a trainer changes. ``publish`` serves the present ones, as the next version if not told."""

    ref: str

    @property
    def version(self) -> int: ...
    def publish(self, version: int | None = None) -> int: ...
    def save(self, path: Path) -> None: ...


@runtime_checkable
class Batches(Protocol):
    """Models that answer many requests at once, in a thread of their own.

    ``done`` receives (index, result) pairs, all of one tick in one call, from that thread. ``seat`` changes the number
    of live runs: a tick starts when that many requests wait, or when a tick's time has passed since the first.
    ``release``: this run sends no more, so that all that is cached for its requests may go.
    """

    def submit(self, requests: Sequence[Request], done: Done) -> None: ...
    def seat(self, change: int) -> None: ...
    def release(self, run: str) -> None: ...


@runtime_checkable
class Streams(Protocol):
    def stream(self, request: Request) -> AsyncIterator[str | Completion]: ...


@runtime_checkable
class Scores(Protocol):
    """Logprobs (nats, float32 [len(ids) - 1]) of given ids, each given those before it."""

    def score(self, ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[F32]: ...


@runtime_checkable
class Tops(Protocol):
    """The ``k`` likeliest next tokens after each row at temperature 1: ids and logprobs (nats), likeliest first."""

    def top(self, ids: Sequence[Sequence[int]], k: int = 20) -> list[tuple[tuple[int, ...], F32]]: ...


@runtime_checkable
class Ranks(Protocol):
    """What ``score`` says of given ids at temperature 1, and the ``k`` likeliest tokens at the same places."""

    def ranked(self, ids: Sequence[Sequence[int]], k: int = 20) -> list[tuple[F32, tuple[Ranked, ...]]]: ...


@runtime_checkable
class Taps(Protocol):
    """Hidden states of given ids, float32 [positions, layers, width] for each row; see ``Local.states``."""

    def states(
        self,
        ids: Sequence[Sequence[int]],
        layers: Sequence[int | str],
        positions: Sequence[Sequence[int]] | None = None,
        taps: Sequence[Sequence[Tapped]] | None = None,
        prompts: Sequence[int] | None = None,
    ) -> list[F32]: ...


class Tracker(Protocol):
    """Where metrics go."""

    def log(self, values: Mapping[str, float], step: int) -> None: ...


Judge = Callable[[Task, Record, World | None], Awaitable[Mapping[str, float | None]]]

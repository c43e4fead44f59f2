"""Any Clew taskset as an OpenEnv environment, over HTTP and WebSocket: the OpenEnv client is the policy.

`clew worlds WORLD --openenv PORT` calls ``app``. Written for the API of openenv-core 0.3, whose server it is; only the
environment behind that is made here. Each episode is a run of a Clew agent whose model is the client, judged by the
taskset and filed in a store. It must never sample by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, MissingExtra, ModelError
from clew.core.protocols import Taskset
from clew.core.records import Request
from clew.core.registry import build
from clew.core.values import Message, Task, ToolCall
from clew.harness import Runner
from clew.models.dialects.chat import tool_to_wire
from clew.models.fakes import Scripted
from clew.store import Run
from clew.store.base import Keeper
from clew.store.protocol import latest_last

try:
    from openenv.core.env_server import http_server as _server
    from openenv.core.env_server import interfaces as _interfaces
    from openenv.core.env_server import types as _types
    from pydantic import BaseModel, Field
except ImportError as error:
    remedy = "Run `pip install openenv-core==0.3.0`."
    raise MissingExtra("openenv-core is not installed", remedy=remedy) from error

types: Any = _types
AGAIN = "the client began another episode"
GONE = "the client left the episode"


class ToolUse(BaseModel):
    """One call of a tool."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ClewAction(types.Action):  # type: ignore[misc]
    """What the policy says: text, calls of tools, or both."""

    text: str = ""
    calls: list[ToolUse] = Field(default_factory=list)


class ClewObservation(types.Observation):  # type: ignore[misc]
    """What is new to the policy since it spoke last. The reward comes at the end, as the taskset's judge gave it."""

    text: str = Field("", description="the last new message; at the end: what the last action led to")
    messages: list[dict[str, str]] = Field(default_factory=list, description="all new messages: role, content")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="tools it may call, as OpenAI's API has them")
    task: str = ""
    run: str = Field("", description="at the end: the id of the run in the store")
    judged: dict[str, float | None] = Field(default_factory=dict, description="at the end: all that the judge said")
    stop: str = Field("", description="at the end: why the run ended")


class ClewState(types.State):  # type: ignore[misc]
    """Which task is under way."""

    task: str = ""


class _Episode:
    """One run, whose model waits for what the client says."""

    def __init__(self, runner: Runner, task: Task, seed: int) -> None:
        self.task, self.steps = task, 0
        self._asked: asyncio.Queue[Request] = asyncio.Queue()
        self._reply: asyncio.Future[Message] | None = None
        self._why = ""  # the client says no more
        self._playing = asyncio.ensure_future(self._played(runner, task, seed))

    async def _played(self, runner: Runner, task: Task, seed: int) -> Run:
        model = Scripted({"": self._said})
        model.ref = "openenv"
        [run] = [run async for group in runner.stream([task], 1, seed, model=model) for run in group]
        return run

    async def _said(self, request: Request) -> Message:
        if self._why:
            raise self._cut_off()
        self._reply = asyncio.get_running_loop().create_future()
        self._asked.put_nowait(request)
        return await self._reply

    async def turn(self) -> Request | Run:
        """What the policy is asked next, or the run when it has ended."""
        asked = asyncio.ensure_future(self._asked.get())
        await asyncio.wait({asked, self._playing}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        asked.cancel()
        return self._playing.result()

    def say(self, message: Message) -> None:
        """Answer what was asked.

        Raises:
            BadInput: the episode is over.
        """
        if self._reply is None or self._reply.done():
            raise BadInput("the episode is over", remedy="Call reset() for another.")
        self.steps += 1
        self._reply.set_result(message)

    def cut(self, why: str) -> None:
        """End the run, now or where it asks next; it stays in the store with this as its error."""
        self._why = self._why or why
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(self._cut_off())

    def _cut_off(self) -> ModelError:
        return ModelError(self._why, remedy="See the client's own log.")

    async def over(self, why: str) -> None:
        """``cut``, and wait for the record to be complete."""
        self.cut(why)
        await asyncio.wait({self._playing})


class ClewEnvironment(_interfaces.Environment):  # type: ignore[misc]
    """The environment of one client; openenv-core makes it, with ``environments`` below."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, runner: Runner, taskset: Taskset, split: str, numbers: itertools.count[int]) -> None:
        super().__init__()
        self._runner, self._taskset, self._split, self._numbers = runner, taskset, split, numbers
        self._episode: _Episode | None = None
        self._name: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, task: str | None = None, **_: Any
    ) -> ClewObservation:
        """Begin an episode: the task of this id, else the one that ``seed`` draws, else the next one.

        Raises:
            BadInput: no task has that id.
        """
        if self._episode is not None:
            await self._episode.over(AGAIN)
        number = next(self._numbers) if seed is None else seed
        chosen = self._taskset.find(task) if task else self._taskset.sample(1, number, self._split)[0]
        self._loop, self._name = asyncio.get_running_loop(), episode_id
        self._episode = _Episode(self._runner, chosen, number)
        return await self._seen()

    async def step_async(self, action: ClewAction, timeout_s: float | None = None, **_: Any) -> ClewObservation:
        """Say something, and see what comes of it.

        Raises:
            BadInput: no episode is under way.
        """
        if self._episode is None:
            raise BadInput("no episode is under way", remedy="Call reset() first.")
        count = self._episode.steps
        used = [ToolCall(f"call_{count}_{i}", c.name, json.dumps(c.arguments)) for i, c in enumerate(action.calls)]
        self._episode.say(Message("assistant", action.text, calls=tuple(used)))
        return await self._seen()

    async def _seen(self) -> ClewObservation:
        assert self._episode is not None
        turn, task = await self._episode.turn(), self._episode.task
        if isinstance(turn, Run):
            judged = {one.method: one.value for one in latest_last(turn.annotations(target="run"))}
            told = {"text": turn.view(-1).text, "task": task.id, "run": turn.id, "stop": turn.stop or ""}
            return ClewObservation(done=True, reward=turn.reward, judged=judged, **told)
        path = [node.message for node in turn.path]
        begin = max((i + 1 for i, message in enumerate(path) if message.role == "assistant"), default=0)
        new = [{"role": message.role, "content": message.text} for message in path[begin:]]
        tools = [] if begin else [tool_to_wire(tool) for tool in turn.tools]
        return ClewObservation(text=path[-1].text if new else "", messages=new, tools=tools, task=task.id)

    def reset(self, *given: Any, **named: Any) -> Any:
        """Raises BadInput: openenv-core's servers call ``reset_async`` in its place."""
        raise BadInput("an episode needs an event loop", remedy="Await reset_async().")

    def step(self, *given: Any, **named: Any) -> Any:
        """Raises BadInput: openenv-core's servers call ``step_async`` in its place."""
        raise BadInput("an episode needs an event loop", remedy="Await step_async().")

    @property
    def state(self) -> ClewState:
        """The episode under way."""
        begun = self._episode
        return ClewState(
            episode_id=self._name, step_count=begun.steps if begun else 0, task=begun.task.id if begun else ""
        )

    def get_metadata(self) -> Any:
        """Name and description of the taskset."""
        told = (type(self._taskset).__doc__ or "").split("\n")[0]
        return types.EnvironmentMetadata(name=self._taskset.ref, description=told or self._taskset.ref)

    def close(self) -> None:
        """End the run under way; called from another thread."""
        if self._episode is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._episode.cut, GONE)


def environments(
    taskset: Taskset | str,
    *,
    agent: str | Callable[..., Any] = "",
    config: Mapping[str, Any] | None = None,
    store: str | Path | Keeper = ".clew/store.db",
    split: str = "train",
) -> Callable[[], ClewEnvironment]:
    """What makes a client's environment, for openenv-core's ``create_app`` and the like.

    Args:
        taskset: or its reference, as ``household(rooms=3)``.
        agent: as ``Runner`` takes it. By default ``player`` for worlds that take text, ``tool_user`` for those that
            have tools, and ``answerer`` where there is no world.
        config: keyword arguments of the agent.
        store: where the runs are kept: a path, ``:memory:`` or an open store.
        split: from which tasks are drawn.

    Raises:
        UnknownName: no taskset has that name. BadInput: the taskset cannot be made.
    """
    made: Taskset = build("tasksets", taskset) if isinstance(taskset, str) else taskset
    runner = Runner(agent or f"clew.harness.agents:{_usual(made, split)}", made, None, store, config)
    numbers = itertools.count()
    return lambda: ClewEnvironment(runner, made, split, numbers)


def _usual(taskset: Taskset, split: str) -> str:
    """The agent that suits the taskset's worlds."""
    world: Any = taskset.open(taskset.sample(1, 0, split)[0])
    if world is None:
        return "answerer"
    try:
        return "tool_user" if world.tools or getattr(taskset, "functions", ()) else "player"
    finally:
        world.close()


def app(taskset: Taskset | str, *, most: int = 64, **how: Any) -> Any:
    """The FastAPI application, for uvicorn.

    Args:
        most: episodes at once.
        how: see ``environments``.

    Raises:
        UnknownName, BadInput: see ``environments``.
    """
    made = environments(taskset, **how)
    return _server.create_fastapi_app(made, ClewAction, ClewObservation, max_concurrent_envs=most)

"""What an agent holds while it runs: the run and its conversations. It reaches the outside through these alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, overload

from clew.core.errors import BadInput
from clew.core.protocols import Model
from clew.core.records import Call
from clew.core.values import Observation, Sampling, Task, ToolCall, ToolSpec
from clew.harness.loading import Agent
from clew.harness.run import acts, asks, notes
from clew.harness.run.nodes import Reply
from clew.harness.run.notes import LiveMemory
from clew.harness.run.path import Path
from clew.harness.run.run_state import RunState
from clew.models.images import Image, Source
from clew.store.run import Run

Spawn = Callable[[Agent | str, Task | str, Mapping[str, Any]], Awaitable[Run]]


class LiveRun:
    """A run while it is made. Everything the agent does goes through here; each await is one Call."""

    def __init__(self, run: RunState, spawn: Spawn) -> None:
        self._run, self._spawn, self._told = run, spawn, ""
        self.id = run.row.id
        self.task: Task = run.task

    @property
    def view(self) -> Observation:
        """What the world showed last."""
        return self._run.view

    @property
    def done(self) -> bool:
        """Whether the world has reported its end."""
        return self._run.done

    @property
    def step(self) -> int:
        """How many acts have been answered."""
        return self._run.step

    @property
    def under_way(self) -> int:
        """How many effects of this run were issued and have not answered."""
        return len(self._run.open_calls)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the world and those beside it."""
        return self._run.tools

    @property
    def tools_beside(self) -> tuple[ToolSpec, ...]:
        """The tools that the run was given beside those of its world."""
        return tuple(tool for tool in self._run.tools if tool.name in self._run.spec.tools)

    @property
    def sampling(self) -> Sampling:
        """How its models are asked where a conversation does not say otherwise."""
        return self._run.sampling

    @property
    def record(self) -> tuple[Call, ...]:
        """The recorded Calls that this run follows before it goes on by itself: for agents whose own code is gone, and
        no others."""
        tape = self._run.tape
        return () if tape is None else tuple(tape.calls.values())

    def memory(self, name: str) -> LiveMemory:
        """A memory of the run's store, to recall from and to use the tools of. What it gives is recorded; see
        ``clew.harness.memory``."""
        return LiveMemory(self._run, name, partial(acts.act, self._run))

    def told(self, text: str) -> LiveRun:
        """The same run, each of whose conversations has a text at the end of its system prompt."""
        run = copy(self)
        run._told = text
        return run

    def chat(
        self,
        system: str | None = None,
        *,
        model: str | Model | None = None,
        tools: Sequence[ToolSpec] | None = None,
        **sampling: Any,
    ) -> Conversation:
        """Open a conversation.

        Args:
            system: first message, with role ``system``.
            model: another Model than the run's, as object or reference.
            tools: offered to the model; default: none. Pass ``run.tools`` for the world's.
            sampling: fields of ``Sampling`` that every ask of this conversation uses.
        """
        if self._told:
            system = f"{system}\n\n{self._told}" if system else self._told
        chat = Conversation(self._run, self._run.new_conversation(), model, tuple(tools or ()), sampling)
        if system is not None:
            chat.say("system", system)
        return chat

    @overload
    async def act(self, action: str | ToolCall) -> Observation: ...
    @overload
    async def act(self, action: Reply) -> Any: ...
    async def act(self, action: Reply | str | ToolCall) -> Observation | list[Observation]:
        """Perform an action in the world, or a tool call of the model.

        A reply with tool calls performs each in order, one Call each, and gives a list of Observations; calls of
        tools that are ``parallel`` and follow each other are performed side by side. A reply without calls acts by its
        text.

        Raises:
            WorldError: the world failed or there is none.
        """
        if isinstance(action, Reply):
            if action.calls:
                return await acts.several(self._run, action.calls)
            action = action.text
        return await acts.act(self._run, action)

    async def spawn(self, agent: Agent | str, task: Task | str, **config: Any) -> Run:
        """Run another agent as a child of this one and give its finished record."""
        return await self._spawn(agent, task, config)

    def note(self, text: str, /, **data: Any) -> None:
        """Keep a remark in the record; ``data`` is JSON."""
        notes.note(self._run, text, data)

    async def draw(self, name: str, *, shared: bool = False) -> float:
        """A recorded uniform number in [0, 1); with ``shared`` the same in all runs of a group that draw this name, so
        that runs which are compared have it in common."""
        return await notes.draw(self._run, name, shared)

    async def now(self) -> float:
        """The recorded time, seconds since the epoch."""
        return await notes.now(self._run)


class Conversation(Path):
    """A path of nodes. ``say`` adds messages; ``ask`` adds the model's reply."""

    async def ask(self, *content: Any, images: Sequence[Source] = (), **sampling: Any) -> Reply:
        """Ask the model for the next message.

        Args:
            content: said first: a string or Observation (role user; tool where it answers a call), or a list of them.
            images: shown with the last of ``content``, or in a message of their own where that is no string: paths of
                files (PNG, JPEG, GIF, WebP), their bytes, or what ``clew.image`` made of them.
            sampling: fields of ``Sampling`` for this ask, and ``seed``: its own in place of one derived from the run's;
                forks that draw anew do not keep it.

        Raises:
            ModelError: the model failed, or reads text alone; ContextOverflow where the prompt does not fit.
            BadInput: an image is none.
        """
        said = [part for item in content for part in (item if isinstance(item, list) else (item,))]
        shown = [*images, *(part for part in said if isinstance(part, Image))]
        said = [part for part in said if not isinstance(part, Image)]
        if shown and not (said and isinstance(said[-1], str)):
            said.append("")
        for part in said[:-1]:
            self.say("user", part)
        if said:
            self.say("user", said[-1], shown)
        if not self.nodes:
            raise BadInput("a conversation was asked before anything was said", remedy="Pass a message to ask().")
        return await asks.ask(self._run, self, sampling)

    async def sample(self, n: int, **sampling: Any) -> list[Reply]:
        """Ask for ``n`` replies at once: one Call, the samples packed in it. The conversation does not move.

        Continue from one with ``take``. Seeds derive from the Call's, so that n samples are n draws.
        """
        if not self.nodes:
            raise BadInput("a conversation was asked before anything was said", remedy="Say something first.")
        return await asks.sample(self._run, self, n, sampling)

    def take(self, reply: Reply) -> None:
        """Go on from one of the replies of ``sample``.

        Raises:
            BadInput: the reply answers another path.
        """
        if not self.nodes or reply.node.parent != self.nodes[-1].key:
            raise BadInput("that reply was sampled at another place", remedy="Take it before anything else is said.")
        self.extend(reply.node, reply.finish)
        self._run.fresh.append(reply.node)

    def branch(
        self, keep: int | None = None, *, model: str | Model | None = None, tools: Sequence[ToolSpec] | None = None
    ) -> Conversation:
        """Another conversation that begins with this one's path; neither sees what the other adds.

        Args:
            keep: only the first so many nodes of the path.
            model, tools: as in ``LiveRun.chat``; None: as here.
        """
        other = Conversation(self._run, self._run.new_conversation(), self.model, self.tools, dict(self.defaults))
        other.named, other.nodes, other.closed, other.said = self.named, list(self.nodes), self.closed, self.said
        if tools is not None:
            other.tools = tuple(tools)
        if keep is not None and keep < len(self.nodes):
            other.nodes, renderer = self.nodes[:keep], self.model.renderer if self.model else None
            ids = other.nodes[-1].ids if other.nodes and other.nodes[-1].message.role == "assistant" else None
            other.closed = renderer is None or not ids or ids[-1] in renderer.stop
        if model is not None:
            other.named = model if isinstance(model, str) else model.ref
            found = self._run.model_for(model)
            if found is not None and found is not other.model and other.nodes:
                other.rerender(found)
            other.model = found
        return other

"""What an agent holds while it runs: the run, its conversations, and the replies it gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput
from clew.core.protocols import Model
from clew.core.records import Node, Setup
from clew.core.values import Message, Observation, Sampling, Task, ToolCall, ToolSpec
from clew.harness.run import acts, asks, notes
from clew.harness.run.nodes import Reply, edited, make_node

if TYPE_CHECKING:
    from clew.harness.loading import Agent
    from clew.harness.run.run_state import Effects
    from clew.store.run import Run


class LiveRun:
    """A run while it is made. Everything the agent does goes through here; each await is one Call."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.id = effects.row.id
        self.task: Task = effects.task
        self.view: Observation = Observation("")
        self.done = False
        self.step = 0
        self.tools: tuple[ToolSpec, ...] = ()

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
        chat = Conversation(self._effects, self._effects.new_conversation(), model, tuple(tools or ()), sampling)
        if system is not None:
            chat.say("system", system)
        return chat

    async def act(self, action: Reply | str | ToolCall) -> Any:
        """Perform an action in the world, or a tool call of the model.

        A reply with tool calls performs each in order, one Call each, and gives a list of Observations; a reply
        without them acts by its text.

        Raises:
            WorldError: the world failed or there is none.
        """
        if isinstance(action, Reply):
            if action.calls:
                return [await acts.act(self._effects, call) for call in action.calls]
            action = action.text
        return await acts.act(self._effects, action)

    async def spawn(self, agent: Agent | str, task: Task | str, **config: Any) -> Run:
        """Run another agent as a child of this one and give its finished record."""
        from clew.harness import children  # children start runs, which this module is part of

        child: Run = await children.spawn(self._effects, agent, task, config)
        return child

    def note(self, text: str, /, **data: Any) -> None:
        """Keep a remark in the record; ``data`` is JSON."""
        notes.note(self._effects, text, data)

    async def draw(self, name: str) -> float:
        """A recorded uniform number in [0, 1)."""
        return await notes.draw(self._effects, name)

    async def now(self) -> float:
        """The recorded time, seconds since the epoch."""
        return await notes.now(self._effects)


class Conversation:
    """A path of nodes. ``say`` adds messages; ``ask`` adds the model's reply."""

    def __init__(
        self,
        effects: Effects,
        index: int,
        model: str | Model | None,
        tools: tuple[ToolSpec, ...],
        sampling: dict[str, Any],
    ) -> None:
        self._effects = effects
        self.index = index
        self.named = "" if model is None else model if isinstance(model, str) else model.ref
        self.model = effects.model_for(model)
        self.tools = tools
        self.defaults = sampling
        self.nodes: list[Node] = []
        self.closed = True  # whether the last reply ended with its own stop token
        self.waiting = False
        self._settled: dict[Sampling, Setup] = {}
        self.said = 0  # messages the agent has said here, replies not counted
        self.asked = 0

    @property
    def tip(self) -> Node | None:
        return self.nodes[-1] if self.nodes else None

    def say(self, role: str, content: str | Message | Observation) -> Node | None:
        """Add a message; it is recorded with the next ask. Gives its node (None where an edit dropped it)."""
        if self.waiting:
            raise BadInput(
                "something was said while an ask is unanswered", remedy="Await the reply, or use chat.branch()."
            )
        if isinstance(content, Observation):
            message = Message("tool" if content.call_id else role, content.text, call_id=content.call_id)
        else:
            message = content if isinstance(content, Message) else Message(role, content)
        edits = self._effects.say_edits
        if edits:
            for kept in edited(message, [e for e in edits if (e.conversation, e.index) == (self.index, self.said)]):
                self._add(kept)
        else:
            self._add(message)
        self.said += 1
        return self.tip

    def _add(self, message: Message) -> None:
        tip = self.tip
        parent = tip.key if tip else b""
        renderer = self.model.renderer if self.model else None
        tokenizer = renderer.ref if renderer else self._effects.tape_tokenizer(parent)
        tape = self._effects.tape
        if tape is not None:
            known = tape.nodes.get((parent, message, tokenizer))
            if known is not None:
                self.nodes.append(known)
                self.closed = True
                return
        ids = renderer.delta(tip, self.closed, message, self.tools) if renderer else None
        self.nodes.append(make_node(tip, message, ids, tokenizer if renderer else ""))
        self._effects.fresh.append(self.nodes[-1])
        self.closed = True

    async def ask(self, *content: Any, **sampling: Any) -> Reply:
        """Ask the model for the next message.

        Args:
            content: said first: a string or Observation (role user; tool where it answers a call), or a list of them.
            sampling: fields of ``Sampling`` for this ask, and ``seed``: its own in place of one derived from the run's;
                forks that draw anew do not keep it.

        Raises:
            ModelError: the model failed; ContextOverflow where the prompt does not fit.
        """
        for item in content:
            for part in item if isinstance(item, list) else (item,):
                self.say("user", part)
        if not self.nodes:
            raise BadInput("a conversation was asked before anything was said", remedy="Pass a message to ask().")
        return await asks.ask(self._effects, self, sampling)

    async def sample(self, n: int, **sampling: Any) -> list[Reply]:
        """Ask for ``n`` replies at once: one Call, the samples packed in it. The conversation does not move.

        Continue from one with ``take``. Seeds derive from the Call's, so that n samples are n draws.
        """
        if not self.nodes:
            raise BadInput("a conversation was asked before anything was said", remedy="Say something first.")
        return await asks.sample(self._effects, self, n, sampling)

    def take(self, reply: Reply) -> None:
        """Go on from one of the replies of ``sample``.

        Raises:
            BadInput: the reply answers another path.
        """
        if not self.nodes or reply.node.parent != self.nodes[-1].key:
            raise BadInput("that reply was sampled at another place", remedy="Take it before anything else is said.")
        self.nodes.append(reply.node)
        self._effects.fresh.append(reply.node)
        self.closed = reply.finish not in ("length", "cut")

    def branch(
        self, keep: int | None = None, *, model: str | Model | None = None, tools: Sequence[ToolSpec] | None = None
    ) -> Conversation:
        """Another conversation that begins with this one's path; neither sees what the other adds.

        Args:
            keep: only the first so many nodes of the path.
            model, tools: as in ``LiveRun.chat``; None: as here.
        """
        other = Conversation(
            self._effects, self._effects.new_conversation(), self.model, self.tools, dict(self.defaults)
        )
        other.named, other.nodes, other.closed, other.said = self.named, list(self.nodes), self.closed, self.said
        if tools is not None:
            other.tools = tuple(tools)
        if keep is not None and keep < len(self.nodes):
            other.nodes, renderer = self.nodes[:keep], self.model.renderer if self.model else None
            ids = other.nodes[-1].ids if other.nodes and other.nodes[-1].message.role == "assistant" else None
            other.closed = renderer is None or not ids or ids[-1] in renderer.stop
        if model is not None:
            other.named = model if isinstance(model, str) else model.ref
            found = self._effects.model_for(model)
            if found is not None and found is not other.model and other.nodes:
                other.rerender(found)
            other.model = found
        return other

    def rerender(self, model: Model) -> None:
        """Continue under another model: the path is rendered anew where the tokenizer differs (rule 7)."""
        before, renderer = self.nodes, model.renderer
        self.model = model
        if (renderer.ref if renderer else "") == (before[-1].tokenizer if before else ""):
            return
        self.nodes, self.closed = [], True
        for old in before:
            self._add(old.message)
            self._effects.drift(self.nodes[-1], old, "tokenizer")

    def resolve(self, base: Sampling, overrides: dict[str, Any], edits: dict[str, Any]) -> Sampling:
        """Sampling settings of one ask: the run's, then the conversation's, the ask's, and what edits change."""
        changes = {**self.defaults, **overrides, **edits}
        if not changes:
            return base
        try:
            return base._replace(**changes)
        except ValueError as error:
            raise BadInput(
                f"no such sampling setting: {error}", remedy=f"Known: {', '.join(Sampling._fields)}."
            ) from error

    def setup(self, model: Model, sampling: Sampling) -> Setup:
        """What is equal over the asks of this conversation, one object per sampling."""
        found = self._settled.get(sampling)
        if found is None or found.model != model.ref:
            found = self._settled[sampling] = Setup(model.ref, 0, sampling, sampling, self.tools)
        return found

"""The path of nodes under a conversation: what is said is rendered and added here; asking is not.

``Conversation`` adds asking to a Path; ``asks`` extends it by replies; compaction and other rebuilders of a context
use ``now``, ``note`` and ``repeats``. A Path never calls a model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from clew.core.errors import BadInput, ModelError
from clew.core.protocols import Model, weights_of
from clew.core.records import Annotation, Node, Setup
from clew.core.values import Message, Observation, Sampling, ToolSpec
from clew.harness.run import notes
from clew.harness.run.nodes import edited, make_node
from clew.harness.run.run_state import RunState
from clew.models.images import Source, image, unnamed, with_images
from clew.models.shaping import changed


class Path:
    """Nodes from the root to the tip of one conversation, and how its model is asked."""

    def __init__(
        self,
        run: RunState,
        index: int,
        model: str | Model | None,
        tools: tuple[ToolSpec, ...],
        sampling: dict[str, Any],
    ) -> None:
        self._run, self.index = run, index
        self.named = "" if model is None else model if isinstance(model, str) else model.ref
        self.model = run.model_for(model)
        self.tools, self.defaults = tools, sampling
        self.nodes: list[Node] = []
        self.closed = True  # whether the last reply ended with its own stop token
        self.waiting = False
        self._settled: dict[Sampling, Setup] = {}
        self.said = 0  # messages the agent has said here, replies not counted
        self.asked = 0

    @property
    def tip(self) -> Node | None:
        return self.nodes[-1] if self.nodes else None

    def say(self, role: str, content: str | Message | Observation, images: Sequence[Source] = ()) -> Node | None:
        """Add a message; it is recorded with the next ask. Gives its node (None where an edit dropped it).

        Args:
            images: shown with it: paths of files (PNG, JPEG, GIF, WebP), their bytes, or what ``clew.image`` made.

        Raises:
            BadInput: an ask is unanswered, or an image is none.
            ModelError: there is an image, and the model reads text alone.
        """
        if self.waiting:
            raise BadInput(
                "something was said while an ask is unanswered", remedy="Await the reply, or use chat.branch()."
            )
        if isinstance(content, Observation):
            role = "tool" if content.call_id else role
            message = Message(role, content.text, call_id=content.call_id, extra=content.extra)
        else:
            message = content if isinstance(content, Message) else Message(role, content)
        if images:
            message = with_images(message, [image(one) for one in images])
        edits = self._run.say_edits
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
        renderer, tape = self.model.renderer if self.model else None, self._run.tape
        tokenizer = renderer.ref if renderer else tape.tokenizer_below(parent) if tape and not self.model else ""
        if tape is not None:
            known = tape.nodes.get((parent, message, tokenizer))
            if known is not None:
                self.extend(known)
                return
        if self.model and renderer and message.extra and unnamed(message):
            remedy = "Ask a model that sees images, or say str(image) in the text: a note of what is there."
            raise ModelError(f"{self.model.ref} reads text alone, and the message holds an image", remedy=remedy)
        ids = renderer.delta(tip, self.closed, message, self.tools) if renderer else None
        self.extend(make_node(tip, message, ids, tokenizer if renderer else ""))
        self._run.fresh.append(self.nodes[-1])

    def extend(self, node: Node, finish: str = "") -> None:
        """Go on with a node; ``finish`` says how it ended where it is a reply."""
        self.nodes.append(node)
        self.closed = finish not in ("length", "cut")

    def foreign(self, model: Model | None) -> bool:
        """Whether a message of the path is in other tokens than the model's."""
        tokenizer = model.renderer.ref if model is not None and model.renderer is not None else ""
        return any(node.tokenizer != tokenizer for node in self.nodes)

    def rerender(self, model: Model | None) -> None:
        """Continue under another model: the path is rendered anew where the tokenizer differs (rule 7)."""
        before = self.nodes
        self.model = model
        if not self.foreign(model):
            return
        self.nodes, self.closed = [], True
        for old in before:
            self._add(old.message)
            self.repeats(self.nodes[-1], old, "tokenizer")

    def resolve(self, base: Sampling, overrides: dict[str, Any], edits: dict[str, Any]) -> Sampling:
        """Sampling settings of one ask: the run's, then the conversation's, the ask's, and what edits change."""
        changes = {**self.defaults, **overrides, **edits}
        return changed(base, changes) if changes else base

    def setup(self, model: Model | None, sampling: Sampling) -> Setup:
        """What is equal over the asks of this conversation, one object per sampling."""
        found, ref = self._settled.get(sampling), model.ref if model is not None else ""
        weights = weights_of(model)
        if found is None or (found.model, found.weights) != (ref, weights):
            found = self._settled[sampling] = Setup(ref, 0, sampling, sampling, self.tools, weights=weights)
        return found

    def repeats(self, node: Node, old: Node, why: str) -> None:
        """Note that ``node`` of this path says anew what ``old`` said elsewhere, and why."""
        run, data = self._run.row.id, json.dumps({"repeats": old.key.hex(), "why": why})
        self._run.drifted.append(Annotation("node", "drift", run=run, node=node.key, scope=run, data=data))

    def note(self, text: str, /, **data: Any) -> None:
        """As ``LiveRun.note``, in the run this path belongs to."""
        notes.note(self._run, text, data)

    async def now(self) -> float:
        """As ``LiveRun.now``, in the run this path belongs to."""
        return await notes.now(self._run)

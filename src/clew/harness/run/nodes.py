"""Replies, and messages as values, nodes and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.keys import node_keys
from clew.core.records import Cursor, Edit, Node
from clew.core.values import F32, Message, ToolCall

Said = str | Message | Mapping[str, Any]
"""A message as users write it: a text, a Message, or a mapping of its fields."""


class Reply(NamedTuple):
    """A model's answer as the agent sees it. ``tokens`` are all ids of the reply's node, head excluded."""

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    tokens: tuple[int, ...] | None
    logprobs: F32 | None
    finish: str
    at: Cursor
    node: Node

    def __str__(self) -> str:
        return self.text


def make_node(tip: Node | None, message: Message, ids: tuple[int, ...] | None, tokenizer: str) -> Node:
    """A node below ``tip`` with its keys derived."""
    parent, parent_text = (tip.key, tip.text_key) if tip else (b"", b"")
    key, text = node_keys(parent, parent_text, message, ids, tokenizer)
    return Node(key, parent, message, ids, tokenizer, text)


def edited(message: Message, edits: Sequence[Edit]) -> list[Message]:
    """The messages that stand in place of ``message`` once ``edits`` of kind say, insert and delete are applied."""
    before: list[Message] = []
    kept: Message | None = message
    for edit in edits:
        if edit.kind == "insert":
            before.append(as_message(edit.value))
        elif edit.kind == "delete":
            kept = None
        elif kept is not None:
            kept = kept._replace(text=edit.value) if isinstance(edit.value, str) else as_message(edit.value)
    return before + ([kept] if kept is not None else [])


def as_message(value: Said) -> Message:
    """A Message from a string (role user) or a mapping of its fields."""
    if isinstance(value, str):
        return Message("user", value)
    if isinstance(value, Message):
        return value
    fields = dict(value)
    fields["calls"] = tuple(ToolCall(**c) if isinstance(c, dict) else ToolCall(*c) for c in fields.get("calls", ()))
    return Message(**fields)


def message_json(message: Message) -> dict[str, Any]:
    """The inverse of ``as_message``; defaults left out."""
    out: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.reasoning:
        out["reasoning"] = message.reasoning
    if message.calls:
        out["calls"] = [c._asdict() for c in message.calls]
    if message.call_id is not None:
        out["call_id"] = message.call_id
    if message.extra:
        out["extra"] = message.extra
    return out

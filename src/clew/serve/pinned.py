"""What a memory gave a foreign agent: one pinned block, right after the leading system messages that its model is sent.

The relay says the block in the run's conversation, so that the record holds it; the gateway writes it into what the
endpoint is sent, in each request of the conversation, and leaves the rest of the program's own writing as it is. The
block is data and bounded (``Recalled.text``); it is no rule of the operator's and does not claim to be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from clew.core.values import Message
from clew.harness.context.pins import Pins
from clew.harness.memory.recalled import Recalled
from clew.models.dialects import Asked, Json, dumps, tags

MARK = "pinned"  # in ``Message.extra``, where no program can write it: wire fields stand under their dialect


def block(found: Recalled) -> Message | None:
    """What was recalled as a message; None where it is nothing."""
    if not found.text:
        return None
    return Message("system", Pins([found.text], hardened=False).block(), extra=dumps({MARK: found.memory}))


def apart(path: Iterable[Message]) -> tuple[list[str], list[Message]]:
    """The texts of the pinned blocks of a conversation, and its other messages."""
    pins, rest = list[str](), list[Message]()
    for message in path:
        if MARK in message.extra and MARK in tags(message):
            pins.append(message.text)
        else:
            rest.append(message)
    return pins, rest


def leading(messages: Sequence[Message]) -> int:
    """How many system messages come first."""
    return next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))


def placed(asked: Asked) -> Asked:
    """A request with a block in it, to see whether a model takes one."""
    at = leading(asked.messages)
    return asked._replace(messages=(*asked.messages[:at], Message("system", "notes"), *asked.messages[at:]))


def into(dialect: str, body: Mapping[str, object], texts: Sequence[str]) -> Json:
    """A request's body with the blocks in it, in a dialect's way; all else stays as the program wrote it."""
    text = "\n\n".join(texts)
    if dialect != "chat":
        field = "system" if dialect == "messages" else "instructions"
        return {**body, field: _longer(body.get(field), text)}
    said = body.get("messages")
    messages = list(said) if isinstance(said, list) else []
    roles = [m.get("role") if isinstance(m, dict) else "" for m in messages]
    at = next((i for i, role in enumerate(roles) if role not in ("system", "developer")), len(roles))
    if not at:
        return {**body, "messages": [{"role": "system", "content": text}, *messages]}
    last = {**messages[at - 1], "content": _longer(messages[at - 1].get("content"), text)}
    return {**body, "messages": [*messages[: at - 1], last, *messages[at:]]}


def _longer(content: object, text: str) -> object:
    """A system prompt, as text or as parts, with a text at its end: many templates take one system message alone."""
    if isinstance(content, list):
        return [*content, {"type": "text", "text": text}]
    return f"{content}\n\n{text}" if content else text

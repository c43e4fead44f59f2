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
from clew.models.dialects import Json, dumps, tags

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


def into(dialect: str, body: Mapping[str, object], texts: Sequence[str]) -> Json:
    """A request's body with the blocks in it, in a dialect's way; all else stays as the program wrote it."""
    text = "\n\n".join(texts)
    if dialect == "chat":
        said = body.get("messages")
        messages = list(said) if isinstance(said, list) else []
        roles = [m.get("role") if isinstance(m, dict) else "" for m in messages]
        at = next((i for i, role in enumerate(roles) if role not in ("system", "developer")), len(roles))
        return {**body, "messages": [*messages[:at], {"role": "system", "content": text}, *messages[at:]]}
    field = "system" if dialect == "messages" else "instructions"
    old = body.get(field)
    if isinstance(old, list):
        return {**body, field: [*old, {"type": "text", "text": text}]}
    return {**body, field: f"{old}\n\n{text}" if old else text}

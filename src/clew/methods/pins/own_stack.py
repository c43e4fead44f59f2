"""A user's own compaction as a stack that the structural audit can follow: a function, named by module or file.

The structural audit calls it. The function is the operator's own code and runs as such, in this process; what it gives
back is checked before anything reads it. It must never be called with anything but the messages of the audit.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from clew.core.errors import BadInput, ClewError, UnknownName
from clew.core.values import Message
from clew.harness.context.pins import MESSAGES, Pins
from clew.harness.loading import load_agent
from clew.methods.pins.stacks import STACKS, Stack, Summary
from clew.models.dialects import chat
from clew.models.dialects.foreign import neutral

NEEDS = (
    "It is called as compact(messages, budget, summarise): messages in OpenAI's format, a number of tokens, and a "
    "function from text to its summary. It gives the messages of the next request."
)
Function = Callable[[list[dict[str, Any]], int, Summary], Any]


class OwnSession:
    """One conversation. The function sees all that it left of the last request, and what was said since.

    ``wrote``: it has given a text that it was not given: a summary of its own, where ``summarise`` was not called.
    """

    form = MESSAGES

    def __init__(self, name: str, function: Function, budget: int, summary: Summary, pins: Pins | None) -> None:
        self.name, self.function, self.budget, self.summary, self.pins = name, function, budget, summary, pins
        self.held, self.wrote = list[Message](), False

    def feed(self, messages: Sequence[Message]) -> list[Message]:
        asked = chat.messages_to_wire(neutral([*self.held, *messages], chat.NAME, named=True))
        try:
            given = self.function(asked, self.budget, self.summary)
            if inspect.isawaitable(given):
                given = asyncio.run(_awaited(given))
        except ClewError:
            raise
        except Exception as error:
            raise BadInput(f"{self.name} failed: {type(error).__name__}: {error}", remedy=NEEDS) from error
        try:
            self.held = chat.messages_from_wire(list(given))
        except (TypeError, ClewError) as error:
            raise BadInput(f"{self.name} gave {ascii(given)[:60]}, no list of messages", remedy=NEEDS) from error
        known = {str(message.get("content")) for message in asked}
        self.wrote |= any(str(message["content"]) not in known for message in chat.messages_to_wire(self.held))
        return self.held if self.pins is None else self.pins.apply(self.held)


async def _awaited(given: Any) -> Any:
    return await given


def stack(name: str) -> Stack:
    """The stack of a name, or of a user's own function: ``module:function`` or ``path/file.py:function``.

    Raises:
        UnknownName: there is neither.
    """
    if name in STACKS:
        return STACKS[name]
    known = f"Known: {', '.join(STACKS)}, or a function of yours, as in --stack own.py:compact."
    if ":" not in name:
        raise UnknownName(f"no stack is called {name!r}", remedy=known)
    try:
        found: Any = load_agent(name)
    except UnknownName as error:
        raise UnknownName(
            f"no stack {name!r} can be loaded: {error.__cause__ or error.message}", remedy=known
        ) from error
    if not callable(found):
        raise UnknownName(f"{name!r} is no function", remedy=NEEDS)
    return Stack(name, "", partial(OwnSession, name, found))

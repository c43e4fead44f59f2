"""Whose words the messages of a conversation are: the classes of data that travel with them.

A router keeps one. What a worker writes has the worker's own class, those of all it was shown, and those of the request
it answers. A tool's result has those of the message that called the tool. What a caller says has none but those that
its policy states. An assistant's message that this router did not write is of the class ``unknown``.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from clew.core.keys import value_digest
from clew.core.values import Message
from clew.models.compose.policy import UNKNOWN

MANY = 100_000  # messages that are remembered; one that is forgotten counts as unknown


def name_of(message: Message) -> str:
    """32 hex digits that name what a reply says: its text and its calls, however a client spells them back."""
    calls = [(call.name, _plain(call.arguments)) for call in message.calls]
    return value_digest(["clew.methods.routing.said.1", message.text.strip(), calls]).hex()


def _plain(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments.strip()


class Origins:
    """The classes of replies by what they say. Two replies that say the same have the classes of both."""

    def __init__(self, known: Iterable[tuple[str, Sequence[str]]] = ()) -> None:
        self._classes = OrderedDict[str, frozenset[str]]()
        for name, classes in known:
            self._add(name, classes)

    def _add(self, name: str, classes: Iterable[str]) -> None:
        self._classes[name] = self._classes.pop(name, frozenset()) | frozenset(classes)
        if len(self._classes) > MANY:
            self._classes.popitem(last=False)

    def said(self, message: Message, classes: Iterable[str]) -> str:
        """A worker has said this; gives the name of it."""
        name = name_of(message)
        self._add(name, classes)
        return name

    def classes(self, messages: Sequence[Message]) -> list[frozenset[str]]:
        """The classes of each message."""
        found, called, last = list[frozenset[str]](), dict[str, frozenset[str]](), frozenset({UNKNOWN})
        for message in messages:
            own = frozenset[str]()
            if message.role == "assistant":
                own = last = self._classes.get(name_of(message), frozenset({UNKNOWN}))
                called |= {call.id: own for call in message.calls}
            elif message.role == "tool":
                own = called.get(message.call_id or "", last)
            found.append(own)
        return found

"""Private anchors: labelled artefacts by which judges are compared, and which no proposer may ever see.

The engine shows an anchor's artefacts to judges and keeps the labels. Before anything goes to a proposer it is searched
for what is private (``Anchor.refuse_leak``). Which half of the anchor an item belongs to hangs on its id alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clew.core.errors import BadInput, ClewError
from clew.core.keys import encode, value_digest

SHORTEST = 12  # characters of an id: a shorter text may stand in any view by chance


@dataclass(frozen=True, slots=True)
class Item:
    """A labelled artefact. accept: what a right judge says of it."""

    id: str
    artefact: object
    accept: bool


class Anchor:
    """Labelled artefacts of a slot.

    Raises:
        BadInput: no item, two of one id, or labels of one kind alone, which a constant judge gets all right.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = tuple(items)
        if len({item.id for item in items}) < len(items) or not items:
            raise BadInput("an anchor without items, or with two of one id", remedy="Give each item an id of its own.")
        if len({item.accept for item in items}) < 2:
            remedy = "Add items with the other label: a judge that always says the same would be perfect."
            raise BadInput("all items of the anchor have one label", remedy=remedy)
        if any(len(item.id) < SHORTEST for item in items):
            remedy = f"Give ids of {SHORTEST} characters or more, which stand nowhere else."
            raise BadInput("an id of the anchor is too short to be searched for", remedy=remedy)
        self._private = sorted(self._texts())

    def _texts(self) -> set[str]:
        found = [text for item in self.items for text in (item.id, json.dumps(item.artefact), item.artefact)]
        return {text for text in found if isinstance(text, str) and len(text) >= SHORTEST}

    @property
    def digest(self) -> str:
        """Names the content of the anchor without telling it."""
        return value_digest([[item.id, item.artefact, item.accept] for item in self.items]).hex()

    def halves(self) -> tuple[list[int], list[int]]:
        """Indices of the items by which challengers are nominated, and of those by which one is confirmed.

        Items are put in the order of the digests of their ids and dealt alternately, each label by itself.
        """
        parts: tuple[list[int], list[int]] = ([], [])
        for label in (False, True):
            own = [i for i, item in enumerate(self.items) if item.accept is label]
            own.sort(key=lambda i: value_digest(encode(self.items[i].id)))
            for at, i in enumerate(own):
                parts[(at + label) % 2].append(i)
        return sorted(parts[0]), sorted(parts[1])

    def refuse_leak(self, told: object) -> None:
        """Raise ClewError where what is about to be told a proposer holds an id or a text of the anchor."""
        text = "\n".join([json.dumps(told), *_strings(told)])
        if any(private in text for private in self._private):
            remedy = "Keep the tasks of the anchor apart from those of training; nothing was sent."
            raise ClewError("what a proposer was about to be told holds a text of a private anchor", remedy=remedy)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from (str(name), *_strings(one))
    elif isinstance(value, Sequence):
        for one in value:
            yield from _strings(one)

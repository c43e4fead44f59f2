"""Deleting items for good: from the memory, and from the records of the runs that were given them.

``clew memory delete`` calls it. What it will do is told first (``places``), then done (``forget``). The recall Calls
that gave an item, and the messages that hold the block they were given in, become tombstones: such runs still verify,
and can no longer be replayed from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clew.core.printable import escaped, visible
from clew.harness.memory.book import Memory
from clew.harness.memory.item_kinds import Item
from clew.harness.memory.recalled import Recalled, shown_in
from clew.store.base import Keeper
from clew.store.redaction import LONG, own_calls


class Place(NamedTuple):
    """A recall Call that gave one of the items, and the texts by which it shows in messages."""

    run: str
    seq: int
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.run}@{self.seq}"


def places(store: Keeper, items: Sequence[Item]) -> list[Place]:
    """Every recall that gave one of the items, in runs and forks alike. Reads the Calls of all runs."""
    ids, found = {item.id for item in items}, list[Place]()
    fields = {item.id: (*item.body.values(),) for item in items}
    for run in store.run_ids():
        for call in own_calls(store, store.row(run)):
            shown = shown_in(call.text) if call.kind == "recall" else []
            given = [one for one in shown if one.id in ids]
            if given:
                said = [one.text for one in given] + [text for one in given for text in fields[one.id]]
                texts = [Recalled("", tuple(shown)).text, *(text for text in said if len(text) >= LONG)]
                spelt = (way for text in texts for way in spellings(text))
                found.append(Place(run, call.seq, tuple(dict.fromkeys(spelt))))
    return found


def spellings(text: str) -> list[str]:
    """A text as it is, as it stands in JSON, and with hidden characters shown: programs pass on what they are given."""
    inside = (json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (False, True))
    return [text, visible(text), *inside, escaped(json.dumps(text, ensure_ascii=False))[1:-1]]


def forget(memory: Memory, items: Sequence[Item], where: Iterable[Place]) -> list[str]:
    """Delete the items, and what runs were shown of them; gives the places in records that got a tombstone.

    Raises:
        StoreError: another process reads the file; the content leaves it when that one is done.
    """
    erased: set[str] = set()
    for place in where:
        erased |= {*memory.store.redact(str(place), only=place.texts)}
    memory.delete([item.id for item in items])
    return sorted(erased)

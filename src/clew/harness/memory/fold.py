"""What the entries of a memory add up to: each item's content, its state, and who was given it.

The order in which entries came into a store does not matter: they are taken in the order of (time, key), so that two
stores that hold the same entries hold the same items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from clew.store.entries import Entry, content_of

ENDS = {"supersede": "superseded", "retire": "retired"}


class Given(NamedTuple):
    """One time that a run was given the item."""

    place: str  # run@call
    query: str
    at: float


class Kept(NamedTuple):
    """An item, as the entries tell it. ``state`` is active, superseded, promoted or retired."""

    id: str
    memory: str
    at: float  # when it was added
    content: Mapping[str, object]
    state: str
    why: str
    replaced_by: str  # id of the item that took its place
    given: tuple[Given, ...]  # each place once, oldest first


def fold(entries: Iterable[Entry]) -> dict[str, Kept]:
    """Items by id, oldest first. A deleted item is left out, and one whose ``add`` is not there.

    Of several ends of an item the first counts, and an end counts before a promotion. Of promotions the last counts;
    one that names no item says that the plan returned to text.
    """
    grouped: dict[str, list[Entry]] = {}
    for one in sorted(entries, key=lambda e: (e.at, e.key)):
        grouped.setdefault(one.item, []).append(one)
    found = (_item(lines) for lines in grouped.values())
    return {item.id: item for item in sorted(filter(None, found), key=lambda item: (item.at, item.id))}


def _item(lines: list[Entry]) -> Kept | None:
    added = next((one for one in lines if one.what == "add"), None)
    if added is None or any(one.what == "deleted" for one in lines):
        return None
    end = next((one for one in lines if one.what in ENDS), None)
    turn = end or next((one for one in reversed(lines) if one.what == "promote"), None)
    told = content_of(turn) if turn else {}
    state = "active" if turn is None else ENDS.get(turn.what, "promoted" if told.get("by") else "active")
    given = dict[str, Given]()
    for one in lines:
        if one.what == "selected":
            body = content_of(one)
            place = str(body.get("place", ""))
            given.setdefault(place, Given(place, str(body.get("query", "")), one.at))
    ids = (added.item, added.memory, added.at)
    return Kept(*ids, content_of(added), state, str(told.get("why", "")), str(told.get("by", "")), (*given.values(),))

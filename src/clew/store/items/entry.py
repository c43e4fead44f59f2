"""``Entry``: one thing that happened to one item of one memory. Entries are added and never changed.

Both stores keep entries in one table; ``fold.py`` adds them up to items. An entry is named by a digest of all it says,
so two stores unite by taking what the other has. Nothing here knows what the body of an item means.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.core.keys import digest, encode

ENTRY = b"clew.memory.1"
WHATS = ("add", "supersede", "promote", "retire", "selected", "spent", "deleted")
NAME, BODY = 80, 200_000  # characters of a name and of a body
_pack = struct.Struct("<d").pack


class Entry(NamedTuple):
    """One line of the list.

    ``what``: ``add`` (the body is the item), ``supersede`` (the body names the item that took its place), ``promote``,
    ``retire``, ``selected`` (a run was given the item; the body has its place and its query), ``spent`` (work for the
    memory was paid for; the body has its figures, and the item is an id of its own), ``deleted`` (the item is gone and
    stays gone; no content).
    """

    key: bytes
    memory: str  # name
    item: str  # id, globally unique
    at: float  # seconds since the epoch
    what: str
    body: str = "{}"  # a JSON object


class Numbered(NamedTuple):
    """An entry and its number in this file, by which a reader asks for what is new. Later entries have greater ones."""

    no: int
    entry: Entry


def entry_key(memory: str, item: str, at: float, what: str, body: str) -> bytes:
    """What names an entry: 16 bytes of all it says."""
    return digest(ENTRY, encode(memory), encode(item), _pack(at), encode(what), encode(body))


def entry(memory: str, item: str, at: float, what: str, body: Mapping[str, object] | None = None) -> Entry:
    """An entry with its key.

    Raises:
        BadInput: the body is no JSON.
    """
    try:
        text = json.dumps(body or {}, ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"an entry of memory {memory!r} cannot be kept as JSON: {error}") from error
    return Entry(entry_key(memory, item, at, what, text), memory, item, at, what, text)


def tombstone(memory: str, item: str, at: float) -> Entry:
    """What stays of an item that was deleted."""
    return entry(memory, item, at, "deleted")


def check_entries(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, each of which a store can keep.

    Raises:
        BadInput: one is not what its key says, is of no known kind, or is too large.
    """
    found = list(entries)
    for one in found:
        name = f"an entry of memory {one.memory[:NAME]!r}"
        if one.what not in WHATS or not math.isfinite(one.at):
            raise BadInput(f"{name} says {one.what[:NAME]!r} at {one.at}", remedy=f"It says one of {', '.join(WHATS)}.")
        if not 0 < len(one.memory) <= NAME or not 0 < len(one.item) <= NAME or len(one.body) > BODY:
            raise BadInput(f"{name} is too large", remedy=f"Names have {NAME} characters at most, a body {BODY:,}.")
        if one.key != entry_key(*one[1:]):
            raise BadInput(f"{name} is not what its key says", remedy="It was altered: take it from where it was made.")
        if one.what == "deleted" and one.body != "{}":
            raise BadInput(f"{name} deletes an item and keeps content", remedy="A deleted item keeps none.")
    return found

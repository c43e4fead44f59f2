"""What a store keeps beside its records for agents' memories: an append-only list of entries, and vectors of items.

An entry is one thing that happened to one item of one memory. Entries are added and never changed, and each is named by
a digest of all it says, so two stores unite by taking what the other has. The store knows no more of an item than that
it is kept whole, verified, united, redacted and deleted; what entries add up to is the business of
``clew.harness.memory``. A vector is what an embedding model made of one item's text: it is gone when the item is
deleted and can be made again, so no merge takes it over and no export writes it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from clew.core.errors import BadInput
from clew.core.keys import digest, encode

ENTRY = b"clew.memory.1"
WHATS = ("add", "supersede", "promote", "retire", "selected", "spent", "deleted")
NAME, BODY = 80, 200_000  # characters of a name and of a body
_pack = struct.Struct("<d").pack
MODEL, BYTES = 500, 32_768  # characters of a model's reference, bytes of a vector's numbers
DIGEST = 16  # bytes


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


class Vector(NamedTuple):
    """One vector. ``text``: 16 bytes of digest of what was embedded and by which model; ``values``: the numbers."""

    item: str  # id of the item
    model: str  # reference of the model
    text: bytes
    values: bytes


def check_vectors(vectors: Iterable[Vector]) -> list[Vector]:
    """The vectors, each of which a store can keep.

    Raises:
        BadInput: one is empty or too large.
    """
    found = list(vectors)
    for one in found:
        sizes = 0 < len(one.item) <= NAME and 0 < len(one.model) <= MODEL and len(one.text) == DIGEST
        if not sizes or not 0 < len(one.values) <= BYTES:
            remedy = f"Its model has up to {MODEL} characters, its numbers up to {BYTES:,} bytes."
            raise BadInput(f"a vector of item {one.item[:NAME]!r} cannot be kept", remedy=remedy)
    return found


class Lists(Protocol):
    """A store, as far as entries go."""

    def entries(self, memory: str | None = None, since: int = 0) -> list[Numbered]: ...


def content_of(one: Entry) -> Mapping[str, object]:
    """The body of an entry; empty where somebody wrote none that is a JSON object."""
    try:
        body = json.loads(one.body)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


class Holds(Lists, Protocol):
    """A store, as far as entries go, to be written."""

    def put_entries(self, entries: Iterable[Entry]) -> int: ...
    def bury_entries(self, tombstones: Iterable[Entry]) -> list[str]: ...


def take_entries(store: Holds, other: Lists) -> int:
    """Take in what the other has; gives how many entries were new."""
    theirs = [one for _, one in other.entries()]
    store.bury_entries(one for one in theirs if one.what == "deleted")
    return store.put_entries(one for one in theirs if one.what != "deleted")


def sources(store: Lists) -> set[str]:
    """Runs that the provenance of an item names: they are kept as long as the item is."""
    found: set[str] = set()
    for _, one in store.entries():
        cursors = content_of(one).get("provenance") if one.what == "add" else None
        if isinstance(cursors, list):
            found |= {str(cursor).partition("@")[0] for cursor in cursors}
    return found


def altered(store: Lists) -> list[tuple[str, str]]:
    """Entries that are not what their keys say: (memory/item, what is wrong)."""
    return [
        (f"{one.memory}/{one.item}", f"an entry ({one.what}) of a memory that is not what its key says")
        for _, one in store.entries()
        if one.key != entry_key(*one[1:])
    ]

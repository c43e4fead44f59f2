"""A memory as JSONL, to be read, kept and taken elsewhere: one item a line. ``clew memory export`` and ``import``.

A line is checked as an item that is added. Who was given an item is not written: the ledger names runs of one store.
What lines say is hostile text: each is bounded before it is read, and none is run.
"""

from __future__ import annotations

import json
import time
from base64 import b32encode
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from clew.core.errors import BadInput, BadRecord
from clew.core.keys import digest, encode
from clew.harness.memory.book import Memory
from clew.harness.memory.item_kinds import Item, content
from clew.store.entries import ENTRY, NAME, Entry, entry

SCHEMA = "clew.memory.1"
LINE = 100_000  # characters
WHY = 800  # characters of a reason


class Taken(NamedTuple):
    """What an import did: items added, those that the memory held before, and those that were deleted here before.

    ``copied`` of those added have ids of their own, since another memory of the store holds theirs.
    """

    added: int
    known: int
    deleted: int = 0
    copied: int = 0


def line_of(item: Item) -> str:
    """An item as one line of JSON."""
    told = {
        "schema": SCHEMA,
        "id": item.id,
        "kind": item.kind,
        "body": dict(item.body),
        "scope": item.scope,
        "provenance": item.provenance,
        "by": item.by,
        **({"key": item.key} if item.key else {}),
        "state": item.state,
        "why": item.why,
        "replaced_by": item.replaced_by,
    }
    return json.dumps(told, ensure_ascii=True, sort_keys=True)


def take_lines(memory: Memory, lines: Iterable[str]) -> Taken:
    """Add the items of an export, all or none. An item that the memory holds is left as it is, and one that was deleted
    in the store stays deleted. Where another memory holds an item of this id, this one gets a copy with an id that
    follows from its own name and the content, so that the same lines taken again add nothing.

    Raises:
        BadRecord: a line is none; the sentence has its number.
    """
    now, items = time.time(), list[list[Entry]]()
    for number, line in enumerate(lines, 1):
        if line.strip():
            items.append(list(_entries(memory.name, line, number, now)))
    here, elsewhere, deleted = set[str](), set[str](), set[str]()
    for _, one in memory.store.entries():
        if one.what == "deleted":
            deleted.add(one.item)
        elif one.what == "add":
            (here if one.memory == memory.name else elsewhere).add(one.item)
    own = {found[0].item: _copy_id(found[0]) for found in items if found[0].item in elsewhere - here - deleted}
    if own:
        items = [[_renamed(one, own) for one in found] for found in items]
    ids = {found[0].item for found in items}
    new = ids - here - deleted
    memory.store.put_entries([one for found in items for one in found if one.item in new])
    return Taken(len(new), len(ids & here - deleted), len(ids & deleted), len(new & {*own.values()}))


def _copy_id(added: Entry) -> str:
    """The id of an item's copy in another memory: the same at each import."""
    said = digest(ENTRY, b"copy", *(encode(text) for text in (added.memory, added.item, added.body)))
    return b32encode(said).decode().lower()[:12]


def _renamed(one: Entry, own: Mapping[str, str]) -> Entry:
    """An entry with the new ids, also of the item that took the place of its own."""
    told = json.loads(one.body)
    if one.what != "add" and told.get("by") in own:
        told |= {"by": own[told["by"]]}
    return entry(one.memory, own.get(one.item, one.item), one.at, one.what, told)


def _entries(name: str, line: str, number: int, now: float) -> Iterator[Entry]:
    told = _read(line, number)
    names = ("id", "state", "why", "replaced_by", "key")
    id, state, why, by, key = (_text(told.get(field, "")) for field in names)
    if id is None or state is None or why is None or by is None or key is None:
        raise _bad(number, "its id, state, why, replaced_by or key is no text")
    if not 0 < len(id) <= NAME or len(by) > NAME:
        raise _bad(number, "its id, state, why or replaced_by is no text of the size it has")
    body, scope, cursors, person = (told.get(field) for field in ("body", "scope", "provenance", "by"))
    if not isinstance(body, dict) or not isinstance(scope, list) or not isinstance(cursors, list):
        raise _bad(number, "its body is no object, or its scope or provenance no list")
    if not all(isinstance(text, str) for text in (*scope, *cursors, person, told.get("kind"))):
        raise _bad(number, "its kind, by, scope or provenance holds what is no text")
    try:
        yield entry(name, id, now, "add", content(str(told["kind"]), body, scope, cursors, str(person), key))
    except BadInput as error:
        raise _bad(number, error.message) from error
    ends = {"active": "", "superseded": "supersede", "promoted": "promote", "retired": "retire"}
    if state not in ends:
        raise _bad(number, f"there is no state {state[:40]!r}")
    if state != "active":
        yield entry(name, id, now, ends[state], {"why": why[:WHY], **({"by": by} if by else {})})


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _read(line: str, number: int) -> dict[str, object]:
    if len(line) > LINE:
        raise _bad(number, f"it has more than {LINE:,} characters")
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        raise _bad(number, "it is no JSON") from None
    if not isinstance(told, dict):
        raise _bad(number, "it is no JSON object")
    if told.get("schema") != SCHEMA:
        raise _bad(number, f"its schema is {str(told.get('schema'))[:40]!r}, and this version reads {SCHEMA!r}")
    return told


def _bad(number: int, what: str) -> BadRecord:
    return BadRecord(f"line {number} is no item: {what}", remedy="Nothing was taken. Mend the line or leave it out.")

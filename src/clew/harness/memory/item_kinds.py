"""``Item``: one thing that a memory holds, of four kinds, and the text of it that a model is shown.

After Metis (arXiv 2606.24151, section 3.2): plans, facts and pitfalls are text that a model reads; a tool is called.
An item is checked when it is added, never when it is read. What an item says comes from runs, so it is hostile text:
nothing here runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from clew.core.errors import BadInput
from clew.core.records import Cursor
from clew.harness.memory.fold import Given, Kept

Kind = Literal["plan", "fact", "pitfall", "tool"]
State = Literal["active", "superseded", "promoted", "retired"]
KINDS: tuple[str, ...] = get_args(Kind)
FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # of each kind: those it must have, those it may have
    "plan": (("text",), ()),
    "fact": (("text",), ()),
    "pitfall": (("trigger", "mistake", "consequence"), ("fix",)),
    "tool": (("name", "doc"), ("signature", "source", "deps", "checks", "from_plan")),
}
ROOMS = {"source": 20_000, "deps": 20_000, "checks": 20_000}  # characters of fields that are longer than others
FIELD, SCOPES, SCOPE, CURSORS = 4000, 16, 80, 256  # characters of a field; keys, characters of one; cursors
KEY = 200  # characters of what a program calls an item


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item, as it stands now. ``made`` is in seconds since the epoch; ``scope`` empty holds everywhere.

    ``provenance`` names the places it was learnt from as ``run@call``; ``by`` the person or the program that wrote it,
    ``key`` what a program calls it. ``given`` is the ledger of recurrence: each run that was given the item, with its
    query; forks are not counted.
    """

    id: str
    memory: str
    kind: str
    body: Mapping[str, str]
    scope: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    by: str = ""
    key: str = ""
    made: float = 0.0
    state: str = "active"
    why: str = ""
    replaced_by: str = ""
    given: tuple[Given, ...] = ()

    @property
    def text(self) -> str:
        """What a model is shown."""
        return text_of(self.kind, self.body)


def text_of(kind: str, body: Mapping[str, str]) -> str:
    """What a model is shown of an item."""
    if kind == "pitfall":
        lines = [f"{name.capitalize()}: {body[name]}" for name in (*FIELDS[kind][0], "fix") if body.get(name)]
        return "\n".join(lines)
    if kind == "tool":
        return f"{body.get('name', '')}{body.get('signature', '')}: {body.get('doc', '')}"
    return body.get("text", "")


def check_body(kind: str, body: Mapping[str, object]) -> dict[str, str]:
    """The fields of an item, each of which has its words and a bounded size.

    Raises:
        BadInput: no such kind, a field that is missing, unknown, empty or too long.
    """
    if kind not in FIELDS:
        raise BadInput(f"an item cannot be a {kind[:40]!r}", remedy=f"Its kind is one of {', '.join(KINDS)}.")
    must, may = FIELDS[kind]
    for name in must:
        value = body.get(name)
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"a {kind} without {name}", remedy=f"A {kind} says {', '.join(must)}.")
    found: dict[str, str] = {}
    for name, value in body.items():
        if name not in (*must, *may):
            raise BadInput(f"a {kind} has no field {name[:40]!r}", remedy=f"It has {', '.join((*must, *may))}.")
        room = ROOMS.get(name, FIELD)
        if not isinstance(value, str) or len(value) > room:
            raise BadInput(f"the {name} of a {kind} is no text of up to {room:,} characters", remedy="Write less.")
        if value:
            found[name] = value
    return found


def check_scope(scope: str | Iterable[str]) -> tuple[str, ...]:
    """Scope keys, sorted and each once.

    Raises:
        BadInput: too many, or one that is empty or too long.
    """
    if isinstance(scope, str):
        scope = [scope]
    keys = tuple(sorted(set(scope)))
    if len(keys) > SCOPES or not all(isinstance(key, str) and 0 < len(key) <= SCOPE for key in keys):
        raise BadInput("these scope keys cannot be kept", remedy=f"Give up to {SCOPES} of up to {SCOPE} characters.")
    return keys


def check_provenance(provenance: str | Sequence[str], by: str) -> tuple[str, ...]:
    """Cursors as ``run@call``.

    Raises:
        BadInput: one is no cursor, there are too many, or there is neither a cursor nor a person.
    """
    cursors = [provenance] if isinstance(provenance, str) else list(provenance)
    if len(cursors) > CURSORS or len(by) > SCOPE:
        raise BadInput(f"more than {CURSORS} places, or a name of more than {SCOPE} characters")
    if not cursors and not by.strip():
        raise BadInput(
            "an item that comes from nowhere", remedy="Name a place of a run (run@call) or the person who says it."
        )
    return tuple(str(Cursor.parse(cursor)._replace(token=0)) for cursor in cursors)


def content(
    kind: str,
    body: Mapping[str, object],
    scope: str | Iterable[str],
    provenance: str | Sequence[str],
    by: str,
    key: str = "",
) -> dict[str, object]:
    """An item's content as an entry keeps it, checked.

    Raises:
        BadInput: see the checks above.
    """
    if len(key) > KEY:
        raise BadInput(f"a key of {len(key):,} characters", remedy=f"Write at most {KEY}.")
    known = {"kind": kind, "body": check_body(kind, body), "scope": [*check_scope(scope)], "by": by}
    return {**known, "provenance": [*check_provenance(provenance, by)], **({"key": key} if key else {})}


def item_of(kept: Kept) -> Item | None:
    """The item that entries tell of; None where they tell of nothing that this version can show."""
    told = kept.content
    kind, body, scope, provenance = (told.get(name) for name in ("kind", "body", "scope", "provenance"))
    if not isinstance(kind, str) or kind not in FIELDS or not isinstance(body, dict):
        return None
    words = {str(name): value for name, value in body.items() if isinstance(value, str)}
    lists = [tuple(map(str, it)) if isinstance(it, list) else () for it in (scope, provenance)]
    return Item(
        id=kept.id,
        memory=kept.memory,
        kind=kind,
        body=words,
        scope=lists[0],
        provenance=lists[1],
        by=str(told.get("by", "")),
        key=str(told.get("key", "")),
        made=kept.at,
        state=kept.state,
        why=kept.why,
        replaced_by=kept.replaced_by,
        given=kept.given,
    )

"""A memory as a store of LangGraph: ``graph.compile(store=langgraph_store(store, "shop"))``.

It satisfies LangGraph's published ``BaseStore``; the package is imported when a store is made and not before. A search
is a recall, and every item that is given is in a recall Call of a stored run (``visit.py``). What is deleted here is
deleted for good, and only where the operator allowed it. What items say is hostile text: data, never acted upon.

Namespaces are scopes: ``("users", "ann")`` is the scope key ``users/ann``, and ``()`` holds everywhere. A search under
a namespace finds what lies under it and what holds everywhere, as a recall with a scope does. A value
``{"text": ...}`` is a fact; ``{"kind": "plan", "text": ...}`` and ``{"kind": "pitfall", "trigger": ...}`` are what they
say; any other JSON object is kept as a fact whose text is its JSON, up to 4,000 characters.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from clew.core.errors import BadInput, need
from clew.harness.memory.item_kinds import FIELDS, Item
from clew.harness.memory.meaning import Embeds
from clew.harness.memory.recalled import Shown
from clew.harness.memory.recalling import MOST
from clew.serve.doors.memory_tools import WRITTEN, added, deleted
from clew.serve.doors.visit import Visit
from clew.store import Keeper

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

LISTED = 100  # items of a search without a query
SIGNS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


def langgraph_store(
    store: Keeper,
    memory: str,
    *,
    who: str = "langgraph",
    run: str = "",
    allow: Collection[str] = ("add",),
    embedder: Embeds | None = None,
) -> BaseStore:
    """A memory as LangGraph's ``BaseStore``.

    Its attribute ``visit`` says how a task went (``store.visit.judge(1.0)``); ``put`` on a known key puts a new item in
    the place of the old one. There is no expiry, and ``index`` is not needed: all text is searched.

    Args:
        store: where the memory is kept.
        memory: its name.
        who: names the program in the provenance of what it puts.
        run: as in ``Visit``.
        allow: ``add``; ``retire``, to put in the place of what others wrote; ``delete``.
        embedder: ranks what a search finds by vectors too, as in ``Visit``.

    Raises:
        MissingExtra: ``langgraph`` is not installed (extra ``frameworks``).
    """
    base = need("langgraph.store.base", "frameworks")
    desk = Shelf(Visit(store, memory, who, run, allow, embedder))

    class MemoryStore(base.BaseStore):  # type: ignore[misc,name-defined]
        """A memory of Clew."""

        visit = desk.visit

        def batch(self, ops: Iterable[Any]) -> list[Any]:
            return [self._done(op) for op in ops]

        async def abatch(self, ops: Iterable[Any]) -> list[Any]:
            return await asyncio.to_thread(self.batch, [*ops])

        def _done(self, op: Any) -> Any:
            if isinstance(op, base.GetOp):
                found = desk.get(op.namespace, op.key)
                return base.Item(**_fields(found)) if found is not None else None
            if isinstance(op, base.SearchOp):
                items = desk.search(op.namespace_prefix, op.query, op.filter, op.limit, op.offset)
                return [base.SearchItem(**_fields(item)) for item in items]
            if isinstance(op, base.PutOp):
                return desk.put(op.namespace, op.key, op.value)
            if isinstance(op, base.ListNamespacesOp):
                conditions = [(one.match_type, tuple(one.path)) for one in op.match_conditions or ()]
                return desk.namespaces(conditions, op.max_depth, op.limit, op.offset)
            raise BadInput(f"a store does not know {type(op).__name__}", remedy="Use get, search, put and delete.")

    made: BaseStore = MemoryStore()
    return made


class Shelf:
    """A memory as namespaces, keys and values, without LangGraph's types."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit

    def get(self, namespace: Sequence[str], key: str) -> Item | None:
        """The item of a key; its own id is the key of one that no program named."""
        found = self._named(namespace, key)
        if found is not None:
            self.visit.hand([found], f"key {key}"[:200])
        return found

    def search(
        self,
        prefix: Sequence[str],
        query: str | None,
        where: Mapping[str, object] | None,
        limit: int,
        offset: int,
    ) -> list[Item]:
        """Items under a namespace, with a query the likeliest first, else the newest.

        Raises:
            BadInput: an operator of the filter is not known, or more is asked for than one recall gives.
        """
        if limit < 1 or offset < 0 or (query and limit + offset > MOST):
            raise BadInput(f"a search of {limit} items from {offset}", remedy=f"Ask for the first {MOST}, from 0 on.")
        items = {item.id: item for item in self._standing()}

        def fits(item: Item) -> bool:
            return all(_matches(value_of(item).get(name), wanted) for name, wanted in (where or {}).items())

        def page(found: Sequence[Shown]) -> list[Shown]:
            kept = [one for one in found if one.id in items and fits(items[one.id])]
            return kept[offset : offset + limit]

        if query:
            scope = self._under(prefix)
            k = MOST if where else limit + offset
            given = self.visit.recall(query, k=k, scope=scope[:1], within=scope, choose=page)
            if given.error:
                raise BadInput(f"memory {given.memory} could not be asked: {given.error}")
            return [items[one.id] for one in given.items]
        under = {*self._under(prefix)}
        near = [i for i in items.values() if not under or not i.scope or not under.isdisjoint(i.scope)]
        newest = [item for item in reversed(near) if fits(item)][offset : offset + min(limit, LISTED)]
        if newest:
            self.visit.hand(newest, f"list {'/'.join(prefix)}"[:200])
        return newest

    def put(self, namespace: Sequence[str], key: str, value: Mapping[str, object] | None) -> None:
        """Keep a value under a key, in the place of what was there; None deletes it.

        Raises:
            BadInput: it cannot be kept, or the operator does not allow it.
        """
        old = self._named(namespace, key)
        if value is None:
            if old is not None:
                deleted(self.visit, old.id)
            return
        kind, body = _item_of(value)
        if old is None:
            added(self.visit, kind, body, [_scope(namespace)], key)
        elif value_of(old) != value:
            self.visit.may("add" if old.by == self.visit.who else "retire")
            if kind == old.kind:
                self.visit.book.edit(old.id, body, by=self.visit.who, provenance=self.visit.learnt_at())
            else:
                new = added(self.visit, kind, body, old.scope, key)
                self.visit.book.supersede(old.id, new.id)

    def namespaces(
        self, conditions: Sequence[tuple[str, tuple[str, ...]]], depth: int | None, limit: int, offset: int
    ) -> list[tuple[str, ...]]:
        """The namespaces in use that meet all conditions (prefix or suffix, with ``*`` for any label), sorted."""
        found = {namespace_of(item) for item in self._standing()}
        kept = [one for one in found if all(_meets(one, how, path) for how, path in conditions)]
        return sorted({one[:depth] for one in kept})[offset : offset + limit]

    def _standing(self) -> list[Item]:
        return [item for item in self.visit.book.items() if item.state in ("active", "promoted")]

    def _named(self, namespace: Sequence[str], key: str) -> Item | None:
        place = tuple(namespace)
        named = (i for i in self._standing() if (i.key or i.id) == key and namespace_of(i) == place)
        return next(named, None)

    def _under(self, prefix: Sequence[str]) -> list[str]:
        """The scope keys under a namespace, the namespace's own first; none for the whole memory."""
        if not prefix:
            return []
        own = _scope(prefix)
        known = {key for item in self._standing() for key in item.scope}
        return [own, *sorted(key for key in known if key.startswith(f"{own}/"))]


def namespace_of(item: Item) -> tuple[str, ...]:
    """Where an item stands: its first scope key."""
    return tuple(item.scope[0].split("/")) if item.scope else ()


def value_of(item: Item) -> dict[str, object]:
    """An item as a value: a fact as it was put, others with their kind, a tool without its code."""
    if item.kind == "fact":
        return _kept_json(item.text) or {"text": item.text}
    shown = ("name", "signature", "doc") if item.kind == "tool" else (*FIELDS[item.kind][0], *FIELDS[item.kind][1])
    return {"kind": item.kind, **{name: item.body[name] for name in shown if name in item.body}}


def _item_of(value: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Kind and body of a value; see the first lines of this file.

    Raises:
        BadInput: it is no JSON object.
    """
    kind, rest = value.get("kind"), {name: part for name, part in value.items() if name != "kind"}
    if kind in WRITTEN and kind != "fact" and {*FIELDS[kind][0]} <= {*rest} <= {*FIELDS[kind][0], *FIELDS[kind][1]}:
        return kind, rest
    text = value.get("text")
    if {*value} == {"text"} and isinstance(text, str) and _kept_json(text) is None:
        return "fact", {"text": text}
    try:
        told = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if json.loads(told) != value:
            raise ValueError("it reads back as something else")
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"a value that is no JSON object: {error}"[:300], remedy='Put {"text": "..."}.') from error
    return "fact", {"text": told}


def _kept_json(text: str) -> dict[str, object] | None:
    """The value whose JSON a fact is, if it is one."""
    try:
        found = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _scope(namespace: Sequence[str]) -> str:
    if any("/" in label for label in namespace):
        raise BadInput("a label of a namespace holds a slash", remedy="A namespace is kept as a scope key, a/b.")
    return "/".join(namespace)


def _fields(item: Item) -> dict[str, Any]:
    made = datetime.fromtimestamp(item.made, UTC)
    place = {"namespace": namespace_of(item), "key": item.key or item.id}
    return {**place, "value": value_of(item), "created_at": made, "updated_at": made}


def _meets(namespace: tuple[str, ...], how: str, path: tuple[str, ...]) -> bool:
    part = namespace[: len(path)] if how == "prefix" else namespace[len(namespace) - len(path) :]
    same = len(part) == len(path) and all(want in ("*", label) for label, want in zip(part, path, strict=True))
    return len(namespace) >= len(path) and same


def _matches(value: object, wanted: object) -> bool:
    """Whether a field is as a filter wants it: equal, or as its operators say."""
    if not isinstance(wanted, Mapping) or not any(str(name).startswith("$") for name in wanted):
        return value == wanted
    return all(_compared(value, str(sign), than) for sign, than in wanted.items())


def _compared(value: object, sign: str, than: object) -> bool:
    if sign not in SIGNS:
        raise BadInput(f"a filter with {sign[:40]!r}", remedy=f"Operators are {', '.join(SIGNS)}.")
    if sign in ("$eq", "$ne"):
        return (value == than) == (sign == "$eq")
    try:
        a, b = float(value), float(than)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return {"$gt": a > b, "$gte": a >= b, "$lt": a < b, "$lte": a <= b}[sign]

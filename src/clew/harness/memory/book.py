"""``Memory``: one memory of a store, as people and programs that write it hold it. Agents only recall from it.

Nothing is changed in place: an edit is a new item that supersedes the old one, and what was superseded or retired stays
in the store with its reason. ``delete`` alone removes content, and for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from clew.core.errors import BadInput, UnknownName
from clew.core.records import Cursor
from clew.harness.memory.fold import fold
from clew.harness.memory.item_kinds import Item, content, item_of
from clew.store.base import Keeper
from clew.store.entries import NAME, Entry, entry
from clew.store.names import check_name, new_id, resolve, some


class Memory:
    """One memory, by name. It begins with its first item.

    Args:
        store: where it is kept; several processes may write one memory.
        name: letters, digits and ``_ . / -``, 80 at most.
        clock: gives seconds since the epoch.

    Raises:
        BadInput: the name is none.
    """

    def __init__(self, store: Keeper, name: str, clock: Callable[[], float] = time.time) -> None:
        if len(name) > NAME:
            raise BadInput(f"a memory's name has {NAME} characters at most", remedy="Choose a shorter one.")
        self.store, self.name, self._clock = store, check_name(name), clock

    def add(
        self,
        kind: str,
        body: Mapping[str, object],
        *,
        scope: str | Iterable[str] = (),
        provenance: str | Sequence[str] = (),
        by: str = "",
        key: str = "",
    ) -> Item:
        """Add an item.

        Args:
            kind: plan, fact, pitfall or tool.
            body: of a plan or a fact ``text``; of a pitfall ``trigger``, ``mistake``, ``consequence`` and perhaps
                ``fix``; of a tool ``name``, ``doc`` and perhaps ``signature``. Up to 4,000 characters each.
            scope: the apps or things it holds for; none: for all.
            provenance: where it was learnt, as ``run@call``; the runs must be in the store.
            by: the person or the program that says so; needed where there is no provenance.
            key: what a program calls it; edits keep it.

        Raises:
            BadInput: it cannot be kept; UnknownName: a run or Call is not there.
        """
        new, now = new_id(), self._clock()
        self.store.put_entries([self._added(new, now, content(kind, body, scope, self._found(provenance), by, key))])
        return self.item(new)

    def edit(
        self,
        item: str,
        body: Mapping[str, object],
        *,
        why: str = "",
        scope: str | Iterable[str] | None = None,
        provenance: str | Sequence[str] | None = None,
        by: str = "",
    ) -> Item:
        """Put a new item in the place of one: same kind, and scope and provenance too where they are not given.

        Raises:
            BadInput: as ``add``; or the item was superseded or retired before.
        """
        old, now = self._standing(item), self._clock()
        where = old.provenance if provenance is None else self._found(provenance)
        told = content(old.kind, body, old.scope if scope is None else scope, where, by or old.by, old.key)
        new = new_id()
        end = entry(self.name, old.id, now, "supersede", {"by": new, "why": why[: NAME * 10]})
        self.store.put_entries([self._added(new, now, told), end])
        return self.item(new)

    def supersede(self, item: str, by: str, why: str = "") -> Item:
        """Say that another item of this memory took the place of one."""
        return self._turn("supersede", self._standing(item), why, self.item(by).id)

    def retire(self, item: str, why: str = "") -> Item:
        """Take an item out of use: it is not recalled any more."""
        return self._turn("retire", self._standing(item), why)

    def promote(self, item: str, by: str, why: str = "") -> Item:
        """Say that a plan became the tool ``by``. The plan stays in use, as what a model falls back to.

        Raises:
            BadInput: it is no plan. Facts and pitfalls stay text (arXiv 2606.24151).
        """
        plan, tool = self._standing(item), self.item(by)
        if plan.kind != "plan" or tool.kind != "tool":
            raise BadInput(f"{item} is a {plan.kind}, {by} a {tool.kind}", remedy="A plan is promoted to a tool.")
        return self._turn("promote", plan, why, tool.id)

    def demote(self, tool: str, why: str) -> Item:
        """Return a tool to text: it is retired, and the plan that it was made from is an active plan again.

        Raises:
            BadInput: it is no tool in use.
        """
        found = self._standing(tool)
        if found.kind != "tool":
            raise BadInput(f"{tool} is a {found.kind}", remedy="A tool returns to text; retire another item.")
        now, kept = self._clock(), why[: NAME * 10]
        lines = [entry(self.name, found.id, now, "retire", {"why": kept})]
        plans = [one.id for one in self.items("promoted") if one.replaced_by == found.id]
        lines += [entry(self.name, plan, now, "promote", {"by": "", "why": kept}) for plan in plans]
        self.store.put_entries(lines)
        return self.item(found.id)

    def items(self, state: str = "") -> list[Item]:
        """Items, oldest first; with ``state`` only those."""
        found = filter(None, map(item_of, fold(one for _, one in self.store.entries(self.name)).values()))
        return [item for item in found if state in ("", item.state)]

    def item(self, id: str) -> Item:
        """The item of an id or a unique beginning of one.

        Raises:
            UnknownName, BadInput: none or several are meant.
        """
        items = {item.id: item for item in self.items()}
        found = [id] if id in items else [one for one in items if id and one.startswith(id)]
        if len(found) > 1:
            raise BadInput(f"{id!r} means {len(found)} items", remedy=f"Write more of the id: {some(found)}.")
        if not found:
            raise UnknownName(f"memory {self.name} has no item {id!r}", remedy="`clew memory list` lists them.")
        return items[found[0]]

    def line(self, item: Item) -> list[Item]:
        """An item and those that it took the place of, one after another, newest first."""
        items = self.items()
        return [item, *_before(items, item.id)]

    def delete(self, items: Iterable[str]) -> list[str]:
        """Delete items for good: no byte of them stays in the store's files, and no union brings them back.

        Runs that were given an item still hold its text in their records; see ``forgetting.places``.
        """
        return self.store.forget([self.item(item).id for item in items])

    def _added(self, new: str, now: float, told: Mapping[str, object]) -> Entry:
        return entry(self.name, new, now, "add", told)

    def _standing(self, id: str) -> Item:
        item = self.item(id)
        if item.state in ("superseded", "retired"):
            raise BadInput(f"item {item.id} is {item.state}", remedy="Edit the item that stands, or add a new one.")
        return item

    def _turn(self, what: str, item: Item, why: str, by: str = "") -> Item:
        body = {"why": why[: NAME * 10], **({"by": by} if by else {})}
        self.store.put_entries([entry(self.name, item.id, self._clock(), what, body)])
        return self.item(item.id)

    def _found(self, provenance: str | Sequence[str]) -> list[str]:
        """Cursors with whole run ids, of Calls that are there."""
        found = []
        for text in [provenance] if isinstance(provenance, str) else provenance:
            cursor = Cursor.parse(text)
            run = resolve(self.store, cursor.run)
            if not self.store.calls(run, cursor.seq, cursor.seq + 1):
                raise UnknownName(f"run {run} has no Call {cursor.seq}", remedy="`clew show` lists its Calls.")
            found.append(str(Cursor(run, cursor.seq)))
        return found


def _before(items: Sequence[Item], id: str) -> Iterator[Item]:
    seen = {id}
    edge = [id]
    while edge:
        at = edge.pop(0)
        for item in items:
            if item.replaced_by == at and item.state == "superseded" and item.id not in seen:
                seen.add(item.id)
                edge.append(item.id)
                yield item

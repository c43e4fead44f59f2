"""What is wrong with a memory that no run is needed to see: junk, copies, contradictions, items that were never given.

``clew memory audit`` prints these lists beside the worth of items. Each entry says why it is there; none is a verdict:
what an item does is told by forks alone. Nothing here changes a memory, and no model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clew.core.errors import ClewError
from clew.core.records import Cursor
from clew.harness.memory.item_kinds import Item
from clew.harness.memory.telling import THRESHOLD
from clew.methods.memory.lessons import likeness
from clew.store.base import Keeper
from clew.store.protocol import rewards

ECHO = 0.8  # share of words that an item has in common with the one query that it was ever given for


class Remark(NamedTuple):
    """Items, and why they are in a list."""

    items: tuple[str, ...]
    why: str


class Lists(NamedTuple):
    """What can be said of a memory without any run.

    junk: too short, of empty words, repeating itself or a query. copies, contradictions: pairs and groups. never: not
    given at any of the recalls since they were added. unfounded: where an item was learnt is gone, or failed.
    """

    junk: list[Remark]
    copies: list[Remark]
    contradictions: list[Remark]
    never: list[Remark]
    unfounded: list[Remark]


def lists(store: Keeper, items: Sequence[Item]) -> Lists:
    """The lists of a memory's items that are in use."""
    used = [item for item in items if item.state in ("active", "promoted")]
    return Lists(
        [Remark((item.id,), why) for item in used if (why := junk(item))],
        [Remark(group, "say nearly the same") for group in likeness.copies(used)],
        [Remark(clash.items, clash.why) for clash in likeness.contradictions(used)],
        _never(items, used),
        _unfounded(store, used),
    )


def junk(item: Item) -> str:
    """Why an item looks as if it said nothing; empty where it does not."""
    said = likeness.telling(item.text)
    if item.kind == "tool":
        return ""
    if why := likeness.says_nothing(item.text):
        return why
    queries = {given.query for given in item.given}
    if len(queries) == 1:
        query = likeness.telling(next(iter(queries)))
        if query and len(said & query) >= ECHO * len(said | query):
            return "it says what the one task asked that it was given for"
    return ""


def _never(items: Sequence[Item], used: Sequence[Item]) -> list[Remark]:
    """Items that none of the recalls gave that came after them; a recall that gave nothing is not in any ledger."""
    recalls = {given.place: given.at for item in items for given in item.given}
    found = []
    for item in used:
        since = sum(at > item.made for at in recalls.values())
        if since and not item.given:
            found.append(Remark((item.id,), f"given at none of {since} recalls since it was added"))
    return found


def _unfounded(store: Keeper, used: Sequence[Item]) -> list[Remark]:
    """Items whose runs are gone, and plans, facts and tools learnt only from runs that failed, as pitfalls may be."""
    sources = {item.id: [Cursor.parse(place).run for place in item.provenance] for item in used}
    known = {run: _there(store, run) for runs in sources.values() for run in runs}
    reward = rewards(store, sorted(run for run, there in known.items() if there))
    found = []
    for item in used:
        runs = sources[item.id]
        there = [run for run in runs if known[run]]
        if runs and not there:
            found.append(Remark((item.id,), f"the run it was learnt from is gone: {runs[0]}"))
        elif item.kind != "pitfall" and there and all(reward.get(run, 1.0) <= THRESHOLD for run in there):
            found.append(Remark((item.id,), f"learnt only from runs that failed: {', '.join(there[:3])}"))
    return found


def _there(store: Keeper, run: str) -> bool:
    try:
        store.row(run)
    except ClewError:
        return False
    return True

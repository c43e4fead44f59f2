"""How runs that were given an item ended, against runs that were given others of its memory. No causal claim.

Runs that were given an item differ from the rest in more than the item: a query that it fits is part of the task. What
an item does is told by forks without it (``clew fork --without-memory``), not by this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clew.core.records import Report
from clew.core.stats import deviate, newcombe
from clew.harness.memory.item_kinds import Item
from clew.store.base import Keeper
from clew.store.protocol import rewards

THRESHOLD = 0.5  # a reward above it is a success, as in ``Group.success``
CAVEAT = "no causal claim: runs that were given an item differ in more than the item; fork without it to know"


class Share(NamedTuple):
    """Successes among judged runs."""

    hits: int
    n: int


class Told(NamedTuple):
    """Shares of success with the item and without, and their difference where both have runs."""

    given: Share
    others: Share
    report: Report | None


def told(store: Keeper, item: Item, items: Iterable[Item]) -> Told:
    """Compare the judged runs that were given the item with those that were given others of the memory, and not it.

    Runs are those of the ledger of recurrence: forks are not among them, and no run that was given nothing.
    """
    mine = {_run(given.place) for given in item.given}
    rest = {_run(given.place) for other in items for given in other.given} - mine
    reward = rewards(store, sorted(mine | rest))
    given, others = (
        Share(sum(r > THRESHOLD for r in got), len(got))
        for got in ([reward[run] for run in sorted(runs) if run in reward] for runs in (mine, rest))
    )
    if not given.n or not others.n:
        return Told(given, others, None)
    low, high = newcombe(given, others, deviate(0.95))
    report = Report(
        claim=f"success of runs that were given {item.id} less that of runs that were not",
        estimate=given.hits / given.n - others.hits / others.n,
        low=low,
        high=high,
        n=given.n + others.n,
        design="observed, runs of the ledger, unpaired; Newcombe's interval",
        runs=tuple(sorted(run for run in mine | rest if run in reward)),
        caveats=(CAVEAT,),
    )
    return Told(given, others, report)


def _run(place: str) -> str:
    return place.partition("@")[0]

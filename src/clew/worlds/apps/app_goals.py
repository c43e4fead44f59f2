"""What is asked of the apps: families of queries, the query of a task number as people would write it, and its goal.

The taskset reads it to make tasks and to judge. A world must never hold a Goal: it is what only the judge may know.
"""

from __future__ import annotations

import itertools
from bisect import bisect
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from clew.worlds.apps.app_rules import APPS, CATEGORIES, CHANGES, PEOPLE, TABLES, Habits, Row, rows_of
from clew.worlds.seeds import Dice

WORDS: dict[str, tuple[str, ...]] = {  # of each verb: four ways to ask for it
    "sum": (
        "Add up my {}.",
        "What is the total of my {}?",
        "How much do my {} come to?",
        "Sum the amounts of all {}.",
    ),
    "count": (
        "Count my {}.",
        "How many {} are there?",
        "Give me the number of {}.",
        "Tell me how many {} I have.",
    ),
    "max": (
        "What is the largest amount among my {}?",
        "Find the highest amount of my {}.",
        "How big is the biggest of my {}?",
        "Which amount tops the list of my {}?",
    ),
    "like": (
        "Like my {}.",
        "Give a like to all {}.",
        "Put a heart on my {}.",
        "Mark as liked the {}.",
    ),
    "pay": (
        "Pay my {}.",
        "Settle all {}.",
        "Take care of payment for the {}.",
        "Clear what I owe on my {}.",
    ),
    "delete": (
        "Delete my {}.",
        "Remove all {}.",
        "Erase the {}.",
        "Throw away my {}.",
    ),
}
FILTERS: dict[tuple[str, str], tuple[str, ...]] = {  # (field, operator) -> ways to say it
    ("category", "is"): ("filed under {}", "of the category {}", "labelled {}"),
    ("category", "is not"): ("not filed under {}", "outside the category {}", "labelled anything but {}"),
    ("person", "is"): ("from {}", "that name {}", "with {}"),
    ("person", "is not"): ("not from {}", "that do not name {}", "with anyone but {}"),
    ("amount", "over"): ("over {} dollars", "above {} dollars", "of more than {} dollars"),
    ("amount", "under"): ("under {} dollars", "below {} dollars", "of less than {} dollars"),
}
VALUES = {"category": CATEGORIES, "person": PEOPLE}


class Family(NamedTuple):
    """Queries that ask one thing of one table in one wording; their filters differ."""

    app: str
    table: str
    verb: str
    words: str


class Filter(NamedTuple):
    """Which rows are meant: those whose field, by the operator, is in that relation to the value."""

    field: str
    operator: str
    value: str | int

    def keeps(self, row: Row) -> bool:
        """Whether a row is meant."""
        if self.operator == "over":
            return row.dollars > int(self.value)
        if self.operator == "under":
            return row.dollars < int(self.value)
        own = row.category if self.field == "category" else row.person
        return (own == self.value) is (self.operator == "is")


class Goal(NamedTuple):
    """What a task asks for. ids: of the rows that are meant. answer: in dollars or as a count; None of a change."""

    app: str
    table: str
    verb: str
    ids: tuple[int, ...]
    answer: int | None


ALL = tuple(
    Family(app, table, verb, words) for app in APPS for table in TABLES[app] for verb in WORDS for words in WORDS[verb]
)


@lru_cache(maxsize=64)
def families(seed: int, n: int) -> tuple[Family, ...]:
    """The first ``n`` families of the world of a seed, the most frequent one first."""
    left, found = list(ALL), []
    for i in range(n):
        found.append(left.pop(Dice(seed, f"apps family {i}").below(len(left))))
    return tuple(found)


@lru_cache(maxsize=64)
def shares(n: int, exponent: float) -> tuple[int, ...]:
    """Running sums of whole weights after Zipf's law: family i, from 0, weighs (i + 1) ** -exponent."""
    return tuple(itertools.accumulate(max(1, round(1e9 * (i + 1) ** -exponent)) for i in range(n)))


def family_of(number: int, seed: int, n: int, exponent: float) -> int:
    """The family of a task number."""
    running = shares(n, exponent)
    return bisect(running, Dice(number, f"apps draw {seed}").below(running[-1]))


def asked(number: int, family: Family) -> tuple[str, tuple[Filter, ...]]:
    """The query of a task number, and its one or two filters, which keep at least one row that is not pending."""
    dice = Dice(number, "apps query")
    rows = rows_of(number, family.app, family.table)
    model = dice.pick([row for row in rows if not row.pending])
    fields = [("category", "person", "amount")[i] for i in dice.order(3, 1 + dice.below(2))]
    filters = tuple(_filter(dice, field, model) for field in fields)
    said = [dice.pick(FILTERS[f.field, f.operator]).format(f.value) for f in filters]
    rows_are = dice.pick(TABLES[family.app][family.table])
    return family.words.format(f"{rows_are} in {family.app} {' and '.join(said)}"), filters


def _filter(dice: Dice, field: str, row: Row) -> Filter:
    """A filter on a field that keeps the row."""
    first = bool(dice.below(2))
    if field == "amount":
        over = first if 1 < row.dollars < 99 else row.dollars > 1
        value = 1 + dice.below(row.dollars - 1) if over else row.dollars + 1 + dice.below(99 - row.dollars)
        return Filter(field, "over" if over else "under", value)
    own = row.category if field == "category" else row.person
    others = [value for value in VALUES[field] if value != own]
    return Filter(field, "is", own) if first else Filter(field, "is not", dice.pick(others))


def answered(verb: str, rows: Iterable[Row]) -> int | None:
    """What a verb gives of the rows that are meant, in dollars or as a count; None where it changes them."""
    dollars = [row.dollars for row in rows]
    return {"sum": sum(dollars), "count": len(dollars), "max": max(dollars, default=0)}.get(verb)


def goal_of(number: int, family: Family, apps: Mapping[str, Habits]) -> Goal:
    """What a task number asks for."""
    _, filters = asked(number, family)
    rows = [
        row
        for row in rows_of(number, family.app, family.table)
        if all(f.keeps(row) for f in filters) and not (row.pending and apps[family.app].leaves_out)
    ]
    answer = None if family.verb in CHANGES else answered(family.verb, rows)
    return Goal(family.app, family.table, family.verb, tuple(row.id for row in rows), answer)

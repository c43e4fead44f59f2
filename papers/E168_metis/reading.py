"""What the player reads: a query, and lines of advice. It reads by the words that the world ``apps`` writes with.

The player and compiled tools call it. Advice is written by a memory, perhaps by a model: a line that is not understood
is passed over, and nothing in it is ever run.

    fact: app mail: endpoint is list_items
    fact: app mail: action endpoint is apply
    fact: app mail: login first
    fact: app mail: amounts are in cents
    fact: app mail: pending rows are left out
    pitfall: app mail: on submit -> pending rows were counted -> wrong answer; fix: pending rows are left out
    plan: app mail: login; fetch list_items; pages 2; where category is food; change apply; submit

A plan is heeded for the order of its steps and the names in them. ``pages`` and ``where`` are what an over-fitted plan
has kept of one run; see ``override`` of the player. A line without ``app NAME:`` is for every app.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from clew.worlds.apps.app_goals import FILTERS, WORDS, Filter
from clew.worlds.apps.app_rules import TABLES

LONGEST, MOST = 400, 200  # characters of a line, and lines, that are read


class Asked(NamedTuple):
    """What a query asks for."""

    app: str
    table: str
    verb: str
    filters: tuple[Filter, ...]


def _pattern(words: str, value: str = "(.+)") -> re.Pattern[str]:
    return re.compile(value.join(map(re.escape, words.split("{}"))))


_VERBS = [(_pattern(words), verb) for verb, many in WORDS.items() for words in many]
_FILTERS = [(_pattern(words, r"(\w+)"), at) for at, many in FILTERS.items() for words in many]
_TABLES = {(word, app): table for app, tables in TABLES.items() for table, words in tables.items() for word in words}


def read(query: str) -> Asked | None:
    """What a query asks for; None where it is not understood."""
    for pattern, verb in _VERBS:
        if (found := pattern.fullmatch(query)) and (asked := _rows(found[1], verb)):
            return asked
    return None


def _rows(text: str, verb: str) -> Asked | None:
    for (word, app), table in _TABLES.items():
        head = f"{word} in {app} "
        if text.startswith(head):
            filters = [_filter(part) for part in text.removeprefix(head).split(" and ")]
            return Asked(app, table, verb, tuple(filter(None, filters))) if all(filters) else None
    return None


def _filter(text: str) -> Filter | None:
    for pattern, at in _FILTERS:
        if found := pattern.fullmatch(text):
            return _made(*at, found[1])
    return None


def _made(name: str, operator: str, value: str) -> Filter | None:
    if (name, operator) not in FILTERS or (name == "amount" and not (value.isascii() and value.isdigit())):
        return None
    return Filter(name, operator, int(value[:9]) if name == "amount" else value)


@dataclass
class Advice:
    """What lines of advice say of one app.

    fetch, change: endpoints in the order in which they are to be tried. login: whether to log in unasked. cents,
    leaves_out: as the facts say; a fact that is not told is taken not to hold. pages, where: what a plan has kept of
    one run, a number of pages and the filters; None where it keeps none.
    """

    fetch: list[str] = field(default_factory=list)
    change: list[str] = field(default_factory=list)
    login: bool = False
    cents: bool = False
    leaves_out: bool = False
    pages: int | None = None
    where: tuple[Filter, ...] | None = None
    planned: bool = False

    def fact(self, said: str) -> None:
        """Take in one fact."""
        if found := re.fullmatch(r"(action )?endpoint is (\w+)", said):
            (self.change if found[1] else self.fetch).append(found[2])
        elif said in ("login first", "no login"):
            self.login = said == "login first"
        elif said in ("amounts are in cents", "amounts are in dollars"):
            self.cents = said == "amounts are in cents"
        elif said in ("pending rows are left out", "pending rows count"):
            self.leaves_out = said == "pending rows are left out"

    def plan(self, steps: str) -> None:
        """Take in a plan; the first is heeded. The names in it are tried before those of facts."""
        if self.planned:
            return
        self.planned, where = True, list[Filter | None]()
        for step in steps.split(";"):
            word, *rest = step.split()[:4] or [""]
            if word == "login":
                self.login = True
            elif word in ("fetch", "change") and rest:
                (self.fetch if word == "fetch" else self.change).insert(0, rest[0])
            elif word == "pages" and rest and re.fullmatch(r"[1-9]\d?", rest[0]):
                self.pages = int(rest[0])
            elif word == "where":
                name, _, more = step.strip().removeprefix("where ").partition(" ")
                operator, _, value = more.rpartition(" ")
                where.append(_made(name, operator, value))
        self.where = tuple(filter(None, where)) or None


def advice(lines: Iterable[str], app: str) -> Advice:
    """What lines of advice say of an app."""
    told = Advice()
    for line in [line for _, line in zip(range(MOST), lines, strict=False)]:
        found = re.fullmatch(r"\s*(?:(fact|pitfall|plan): *)?(?:app (\w+): *)?(.*?)\s*", line[:LONGEST])
        if found is None or found[2] not in (None, app):
            continue
        if found[1] == "plan":
            told.plan(found[3])
        elif found[1] != "pitfall":
            told.fact(found[3])
        elif "fix:" in found[3]:
            told.fact(found[3].rpartition("fix:")[2].strip())
    return told

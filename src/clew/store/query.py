"""The query language of the CLI, the viewer and Python: it selects runs and sorts them.

    world=household return<0.5 steps>20 tag:x text:"open fridge" -stop=done sort:-steps

A run must fulfil every term; ``-`` before a term negates the term. ``=`` compares whole names; ``*`` and ``?`` are
wildcards, and the name of a reference stands for all its arguments (``household`` for ``household(rooms=3)``). ``:``
looks for a part of the text, whatever its case. A run without a number (it was not judged, say) fulfils no comparison
of that number and sorts last. ``sort:stars`` sorts by the mean of the stars on a run as a whole. ``g2po<-1`` compares
the values of a method that has annotated runs: a run fulfils it where one value on it, a Call or a token of it does.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadQuery
from clew.core.records import Annotation
from clew.core.values import StopReason
from clew.store import labels
from clew.store.protocol import Summary, Tables
from clew.store.summary import words

Test = Callable[[Summary], bool]
NUMBERS = {"return": "reward"} | {n: n for n in ("reward", "steps", "calls", "tokens", "cost", "seconds", "seed")}
NAMES = ("world", "task", "agent", "model", "group", "stop", "origin", "id", "parent")
ELSEWHERE = ("tag", "name", "has", "text", *labels.FIELDS)
DATES = ("after", "before")
FIELDS = (*NUMBERS, *NAMES, *ELSEWHERE, *DATES, "sort")
MOST = 100  # terms of a query; a database bounds how deep its expressions nest
_COMPARE = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "!=": ne}
_TERM = re.compile(r'(-?)([A-Za-z_][\w.]*(?:-[A-Za-z][\w.]*)*)(!=|<=|>=|<|>|=|:)("(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|$)')
_AGO = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Term(NamedTuple):
    """One condition, and where it stands in the query."""

    negated: bool
    field: str
    op: str
    value: str
    place: int

    def __str__(self) -> str:
        return f"{'-' * self.negated}{self.field}{self.op}{self.value}"


class Query(NamedTuple):
    """A parsed query. ``order``: field and whether it descends, first counts most."""

    terms: tuple[Term, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()


def parse(text: str) -> Query:
    """Read a query.

    Raises:
        BadQuery: names the term, its position and what to write instead.
    """
    terms: list[Term] = []
    order: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TERM.match(text, at)
        if not match:
            word = text[at:].split()[0]
            raise BadQuery(
                f"{word!r} at position {at} is not a term",
                remedy='Write field=value, field<number or field:part, as in world=household return<0.5 text:"fridge".',
            )
        value = match[4]
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        field = match[2].lower()
        term = Term(bool(match[1]), field if field in FIELDS else match[2], match[3], value, at)
        _check(term)
        if term.field == "sort":
            order.append((term.value.lstrip("-"), term.value.startswith("-")))
        else:
            terms.append(term)
        at = match.end()
        if len(terms) + len(order) > MOST:
            raise BadQuery(f"more than {MOST} terms", remedy="Narrow the runs down by fewer of them.")
    return Query(tuple(terms), tuple(order))


def _check(term: Term) -> None:
    field, op, value = term.field, term.op, term.value
    sortable = (*NUMBERS, *NAMES, "created", "stars")
    if field not in FIELDS and op not in _COMPARE:
        raise _strange(term, "there is no such field")
    if not value:
        raise _bad(term, "it has no value", f"Write {field}{op}VALUE.")
    if field in NUMBERS or field == "stars" or field not in FIELDS:
        if op not in _COMPARE:
            raise _bad(term, "it is a number", f"Compare with < <= > >= = or !=, as in {field}>1.")
        try:
            float(value)
        except ValueError:
            if field not in FIELDS:
                raise _strange(term, "there is no such field") from None
            raise _bad(term, f"{value!r} is not a number", f"Write {field}{op}0.5, say.") from None
    elif op not in ("=", ":", "!="):
        raise _bad(term, "it is a name", f"Compare with = or :, as in {field}={value}.")
    if field in DATES:
        moment(term)
    if field == "sort" and (value.lstrip("-") not in sortable or op != ":" or term.negated):
        raise _bad(
            term, "runs cannot be sorted so", f"Write sort:FIELD or sort:-FIELD with one of {', '.join(sortable)}."
        )
    if field == "stop" and op == "=" and not re.search(r"[*?]", value) and value not in {*StopReason, "open"}:
        raise _bad(term, "no run stops so", f"Known: {', '.join(StopReason)}, and open for one that runs.")
    if field == "text" and not words(value):
        raise _bad(term, "it has no word", 'Write text:"some words".')


def _strange(term: Term, why: str) -> BadQuery:
    near = difflib.get_close_matches(term.field.lower(), FIELDS, 3)
    return _bad(term, why, f"{'Near' if near else 'Known'}: {', '.join(near or FIELDS)}.")


def _bad(term: Term, why: str, remedy: str) -> BadQuery:
    said = str(term) if len(str(term)) <= 60 else f"{str(term)[:57]}..."
    return BadQuery(f"{said!r} at position {term.place}: {why}", remedy=remedy)


def moment(term: Term) -> float:
    """Seconds since the epoch of a local date, or of so long ago (30m, 2h, 3d, 1w)."""
    ago = re.fullmatch(r"(\d+)([smhdw])", term.value)
    try:
        return time.time() - int(ago[1]) * _AGO[ago[2]] if ago else datetime.fromisoformat(term.value).timestamp()
    except (ValueError, OverflowError):
        raise _bad(term, "it is no date", f"Write {term.field}:2026-01-31 or {term.field}:2h.") from None


def choose(store: Tables, query: Query, rows: Sequence[Summary]) -> list[Summary]:
    """Those of ``rows`` (in order of creation) that a query selects, newest first or as it sorts.

    What a store in memory does; the slow twin of the SQL that ``listing`` makes of a query.
    """
    found = list(enumerate(rows))
    for term in query.terms:
        test = _bind(term, store)
        found = [pair for pair in found if test(pair[1]) != term.negated]
    found.sort(key=lambda pair: (pair[1].created, pair[0]), reverse=True)
    for field, down in reversed(query.order):
        given, name = labels.stars(store) if field == "stars" else {}, column(field)
        values = {row.run: given.get(row.run) if field == "stars" else getattr(row, name) for _, row in found}
        present = [pair for pair in found if values[pair[1].run] is not None]
        absent = [pair for pair in found if values[pair[1].run] is None]
        present.sort(key=lambda pair, values=values: values[pair[1].run], reverse=down)  # type: ignore[misc]
        found = present + absent
    return [row for _, row in found]


def column(field: str) -> str:
    """The field of Summary that a field of the language reads."""
    return NUMBERS.get(field, {"id": "run"}.get(field, field))


def _bind(term: Term, store: Tables) -> Test:
    """The test of one term, with what it needs from the store at hand."""
    field, op, value = term.field, term.op, term.value
    if field in NUMBERS:
        name, compare, bound = NUMBERS[field], _COMPARE[op], float(value)

        def number(row: Summary) -> bool:
            has = getattr(row, name)
            return has is not None and bool(compare(has, bound))

        return number
    if field in DATES:
        moment_, later = moment(term), field == "after"
        return lambda row: (row.created >= moment_) if later else (row.created < moment_)
    if beside(field):
        chosen, without = elsewhere(term, store), turned(term)
        return lambda row: (row.run in chosen) != without
    return lambda row: named(getattr(row, column(field)), field, op, value) != (op == "!=")


def beside(field: str) -> bool:
    """Whether a field is not in a run's summary: tags and the like, and the values of methods."""
    return field in ELSEWHERE or field not in FIELDS


def turned(term: Term) -> bool:
    """Whether a term means the runs that ``elsewhere`` does not find; a run without a number fulfils no comparison."""
    return term.op == "!=" and term.field in FIELDS and term.field != "stars"


def reaches(values: Sequence[float] | npt.NDArray[np.float32], op: str, bound: float) -> bool:
    """Whether one of some values, NaN where absent, compares so with a number."""
    numbers = np.asarray(values, np.float64)
    return bool(_COMPARE[op](numbers[~np.isnan(numbers)], bound).any())


def value_list(of: Annotation) -> Sequence[float] | npt.NDArray[np.float32]:
    """The numbers of an annotation: one for each token, one, or none."""
    if of.values is not None:
        return of.values
    return () if of.value is None else (of.value,)


def elsewhere(term: Term, store: Tables) -> set[str]:
    """Runs that a term selects by what is not in their summary; ``!=`` is left to the caller, but for stars."""
    field, value = term.field, term.value
    if field not in FIELDS:
        if not store.annotated(field):
            raise _strange(term, "there is no such field, and no method of this name has annotated a run here")
        return store.valued(field, term.op, float(value))
    if field in labels.FIELDS:
        return labels.chosen(store, field, term.op, value)
    if field == "tag":
        return {run for name, runs in store.tags().items() if fnmatchcase(name, value) for run in runs}
    if field == "has":
        return store.annotated(value)
    if field == "text":
        return store.search(words(value))
    fitting = [group for group, name in store.group_names().items() if _matches((name,), term.op, value)]
    return {run for group in fitting for run in store.group(group).runs}


def named(has: str, field: str, op: str, value: str) -> bool:
    """Whether a name fits; ``!=`` is left to the caller."""
    if field in ("id", "parent"):
        return has.startswith(value)
    if field == "stop":
        return _matches((has or "open",), op, value)
    short = has.rpartition(":")[2] if field == "agent" else has.partition("(")[0]
    return _matches((has, short), op, value)


def _matches(names: Sequence[str], op: str, value: str) -> bool:
    if op == ":":
        return any(value.lower() in name.lower() for name in names)
    return any(name == value or fnmatchcase(name, value) for name in names)

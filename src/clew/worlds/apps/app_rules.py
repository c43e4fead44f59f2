"""What there is in the apps: tables, rows, tools, and the habits of each app, which an agent has to find out.

The world and its task generator read it; papers/E168_metis reads the words. All of it is drawn from numbers and labels
(``worlds.seeds``), so that it is the same on every machine. Nothing here may know what a task asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from clew.core.values import ToolSpec
from clew.worlds.schemas import tool_spec
from clew.worlds.seeds import Dice

TABLES: dict[str, dict[str, tuple[str, ...]]] = {  # app -> table -> what people call its rows
    "bank": {"transfers": ("transfers", "remittances"), "bills": ("bills", "charges")},
    "shop": {"orders": ("orders", "purchases"), "returns": ("returns", "refunds")},
    "mail": {"invoices": ("invoices", "payment requests"), "receipts": ("receipts", "payment slips")},
    "music": {"songs": ("songs", "tracks"), "concerts": ("concerts", "shows")},
    "travel": {"flights": ("flights", "plane trips"), "hotels": ("hotels", "hotel stays")},
    "club": {"courses": ("courses", "classes"), "events": ("events", "gatherings")},
}
APPS = tuple(TABLES)
FETCH = ("list", "list_items", "search", "query")  # one of them is the app's endpoint for reading
CHANGE = ("apply", "update", "perform", "execute")  # and one of these for changing rows
FIELDS = {  # what a column is about -> what apps call it
    "amount": ("amount", "total", "value", "price"),
    "category": ("category", "kind", "label", "type"),
    "person": ("person", "who", "contact", "name"),
}
CATEGORIES = ("food", "rent", "games", "books")
PEOPLE = ("Ana", "Bram", "Chloe", "Dario")
READS, CHANGES = ("sum", "count", "max"), ("like", "pay", "delete")
PENDING = 5  # one row of so many is pending
AUTH, HABIT = 70, 35  # of 100 apps: need a login; count in cents; leave out pending rows

_NAMED = "; ".join(f"{app} ({', '.join(tables)})" for app, tables in TABLES.items())
_ROWS = {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 50}
_TEXT = {"type": "string", "maxLength": 40}


def _tool(name: str, description: str, **properties: object) -> ToolSpec:
    schema = dict(tool_spec(name, description, **dict.fromkeys(properties, "")).schema)
    return ToolSpec(name, description, {**schema, "properties": properties})


TOOLS: tuple[ToolSpec, ...] = (
    _tool("login", "Log in to an app. Some apps want it before they answer.", app=_TEXT),
    _tool(
        "fetch",
        f"Read one page of a table. The apps and their tables: {_NAMED}. Each app answers at one endpoint, of "
        f"{', '.join(FETCH)}. The first page is 1; has_more says whether there is another.",
        app=_TEXT,
        endpoint=_TEXT,
        table=_TEXT,
        page={"type": "integer"},
    ),
    _tool(
        "change",
        "Like, pay or delete rows of a table, named by their ids. Each app does it at one endpoint, of "
        f"{', '.join(CHANGE)}.",
        app=_TEXT,
        endpoint=_TEXT,
        table=_TEXT,
        verb={"enum": list(CHANGES)},
        ids=_ROWS,
    ),
    _tool(
        "submit",
        "End the task with the answer: a number (amounts in dollars), or done where rows were to be changed.",
        answer={"type": ["string", "number"], "maxLength": 40},
    ),
)


class Face(NamedTuple):
    """How an app behaves toward those who call it.

    fetch, change: its endpoints. auth: whether it wants a login. page: rows of a page. names: of its columns amount,
    category and person. unit: what one dollar is written as.
    """

    fetch: str
    change: str
    auth: bool
    page: int
    names: tuple[str, str, str]
    unit: int


class Habits(NamedTuple):
    """An app whole: its face, and whether the house leaves pending rows out, which no answer of the app tells."""

    face: Face
    leaves_out: bool


class Row(NamedTuple):
    """A row as it is meant: dollars, whatever the app writes."""

    id: int
    dollars: int
    category: str
    person: str
    pending: bool


def habits(seed: int) -> dict[str, Habits]:
    """What each app is like in the world of a seed."""
    return {app: _drawn(Dice(seed, f"apps habits {app}")) for app in APPS}


def _drawn(dice: Dice) -> Habits:
    fetch, change = dice.pick(FETCH), dice.pick(CHANGE)
    auth, page = dice.below(100) < AUTH, 4 + dice.below(5)
    amount, category, person = (dice.pick(names) for names in FIELDS.values())
    unit = 100 if dice.below(100) < HABIT else 1
    return Habits(Face(fetch, change, auth, page, (amount, category, person), unit), dice.below(100) < HABIT)


@lru_cache(maxsize=512)
def rows_of(number: int, app: str, table: str) -> tuple[Row, ...]:
    """The 2 to 23 rows of a table in a task; at least one is not pending."""
    head = Dice(number, f"apps table {app} {table}")
    n = 2 + head.below(22)
    settled, rows = head.below(n), []
    for i in range(n):
        dice = Dice(number, f"apps row {app} {table} {i}")
        kind, person = dice.pick(CATEGORIES), dice.pick(PEOPLE)
        pending = dice.below(PENDING) == 0 and i != settled
        rows.append(Row(10 + 7 * i + dice.below(7), 1 + dice.below(99), kind, person, pending))
    return tuple(rows)


def shown(row: Row, face: Face, marks: Sequence[str] = ()) -> dict[str, object]:
    """A row as its app writes it. ``marks``: what was done to it."""
    values = (row.dollars * face.unit, row.category, row.person)
    columns: dict[str, object] = dict(zip(face.names, values, strict=True))
    status = "pending" if row.pending else "booked"
    return {"id": row.id, **columns, "status": status, **dict.fromkeys(marks, True)}

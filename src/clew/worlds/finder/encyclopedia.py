"""The invented encyclopedia of the finder world: people who never lived, the pages on them, and a search over these.

The world searches and opens pages here, and the taskset draws its questions from the rows. Nothing in it is true of the
real world, so that a model can know it from these pages alone. It must never depend on anything but its number.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from clew.worlds.seeds import Dice

Snippets = Literal["rich", "poor"]
HITS, SHOWN = 5, 60  # results of a search; characters of a query that are shown again
SITE = "https://fabled.example/"
_STARTS = (
    "Bel",
    "Cor",
    "Dra",
    "Fen",
    "Gor",
    "Hal",
    "Jor",
    "Kes",
    "Lum",
    "Mar",
    "Nol",
    "Orv",
    "Pel",
    "Quin",
    "Ras",
    "Sel",
)
_ENDS = (
    "adin",
    "bert",
    "dora",
    "esta",
    "fina",
    "garth",
    "imar",
    "lena",
    "mund",
    "nova",
    "olin",
    "peth",
    "rick",
    "sina",
)
_HOUSES = (
    "Ash",
    "Birk",
    "Crane",
    "Dorn",
    "Elm",
    "Frost",
    "Gale",
    "Hook",
    "Iver",
    "Juno",
    "Kell",
    "Lark",
    "Moss",
    "Nettle",
)
_TAILS = ("brook", "dale", "field", "gate", "ley", "mere", "more", "stead", "ton", "ward")
TOWNS = ("Arvale", "Brenholt", "Caldmoor", "Dunwick", "Esterlin", "Farrow", "Grenmark", "Holloway", "Istra", "Jarnby")
TRADES = ("glazier", "cartographer", "organist", "botanist", "clockmaker", "engraver", "surveyor", "bookbinder", "dyer")
RELATIONS = {
    "town": "In which town was {} born?",
    "trade": "What was the trade of {}?",
    "year": "In which year was {} born?",
}


class Person(NamedTuple):
    """One row. ``teacher``: the place of the row of the teacher."""

    name: str
    town: str
    trade: str
    year: str
    teacher: int

    @property
    def url(self) -> str:
        return SITE + self.name.lower().replace(" ", "-")


@lru_cache(maxsize=32)
def people(table: int, rows: int) -> tuple[Person, ...]:
    """The rows of a table; no two share a name, and nobody teaches himself."""
    places = len(_STARTS) * len(_ENDS) * len(_HOUSES) * len(_TAILS)
    drawn, found = set[int](), list[Person]()
    for i in range(rows):
        dice = Dice(table, f"finder row {i}")
        place = dice.below(places)
        while place in drawn:
            place = (place + 1) % places
        drawn.add(place)
        name, own = [], place
        for words in (_STARTS, _ENDS, _HOUSES, _TAILS):
            own, at = divmod(own, len(words))
            name.append(words[at])
        teacher = (i + 1 + dice.below(rows - 1)) % rows
        whole = f"{name[0]}{name[1]} {name[2]}{name[3]}"
        found.append(Person(whole, dice.pick(TOWNS), dice.pick(TRADES), str(1600 + dice.below(300)), teacher))
    return tuple(found)


class Question(NamedTuple):
    """What is asked, and the answer. ``path``: places of the rows on the way to it."""

    text: str
    answer: str
    path: tuple[int, ...]


def question_of(number: int, table: int, rows: int, hops: int) -> Question:
    """The question of a task number, over one row or over a row and its teacher's."""
    dice = Dice(number, "finder question")
    everyone, first = people(table, rows), dice.below(rows)
    relation = dice.pick(tuple(RELATIONS))
    if hops == 1:
        return Question(RELATIONS[relation].format(everyone[first].name), getattr(everyone[first], relation), (first,))
    second = everyone[first].teacher
    asked = RELATIONS[relation].format(f"the teacher of {everyone[first].name}")
    return Question(asked, getattr(everyone[second], relation), (first, second))


def values_in(text: str) -> set[str]:
    """Every town, trade and year that a text names, in small letters."""
    words = set(re.findall(r"[a-z0-9]+", text.lower()))
    known = {word.lower() for word in (*TOWNS, *TRADES)}
    return {word for word in words if word in known or re.fullmatch(r"[0-9]{4}", word)}


def page(everyone: tuple[Person, ...], one: Person) -> str:
    """A page whole."""
    told = f"{one.name}, {one.trade}, was born in {one.town} in {one.year}."
    return f"{one.name}\n{told} The teacher of {one.name} was {everyone[one.teacher].name}."


def snippet(everyone: tuple[Person, ...], one: Person, kind: Snippets) -> str:
    """What a search shows of a page: its facts where snippets are rich, else only which facts it holds."""
    if kind == "rich":
        return f"{one.trade}, born in {one.town} in {one.year}; teacher: {everyone[one.teacher].name}."
    return "The trade, the birth and the teacher; read more on the page."


def searched(everyone: tuple[Person, ...], query: str, kind: Snippets) -> str:
    """The results of a search: pages whose names (with rich snippets also facts) hold most of the query's words."""
    words = set(re.findall(r"[a-z0-9]+", query.lower()))
    ranked = []
    for place, one in enumerate(everyone):
        held = set(one.name.lower().split())
        if kind == "rich":
            held |= {one.town.lower(), one.trade, one.year}
        if hits := len(words & held):
            ranked.append((-hits, place))
    if not ranked:
        return f"No results for {query[:SHOWN]!r}."
    shown = [everyone[place] for _, place in sorted(ranked)[:HITS]]
    return "\n".join(f"{i + 1}. {one.name} - {one.url}\n{snippet(everyone, one, kind)}" for i, one in enumerate(shown))

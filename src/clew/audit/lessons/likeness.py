"""Whether a lesson says what a memory holds already, more than that, or the contrary. The screen calls it.

A symbolic comparison of words: texts that say one thing in different words are two to it, and a contradiction is seen
only where both have one form ("the endpoint is list", "the endpoint is search"). A model's screen can do more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from clew.audit.lessons.grounds import content, terms
from clew.harness.memory import Item
from clew.harness.memory.item_kinds import text_of

Relation = Literal["same", "more", "contrary"]
SAME = 0.8  # of the words of both together
WITHIN = 0.9  # of the words of one
_NOT_WORDS = "no not never without none cannot dont doesnt isnt arent wont cant neither nor"
_VALUE_WORDS = """is are was be equals means takes needs uses expects returns holds has have at called named costs lasts
starts begins ends opens closes"""
_NOT, _SAYS = frozenset(_NOT_WORDS.split()), frozenset(_VALUE_WORDS.split())
_WORD = re.compile(r"[\w'./@:-]*\w")


class Relative(NamedTuple):
    """An item and how a lesson stands to it."""

    item: Item
    how: Relation


def relative(kind: str, body: dict[str, str], scope: Sequence[str], neighbours: Sequence[Item]) -> Relative | None:
    """The first of the neighbours that a lesson repeats, completes or contradicts; None where it is new."""
    text = text_of(kind, body)
    for item in neighbours:
        if item.kind == kind and (how := _relation(text, tuple(scope), item)) is not None:
            return Relative(item, how)
    return None


def _relation(text: str, scope: tuple[str, ...], item: Item) -> Relation | None:
    alike = not scope or not item.scope or not set(scope).isdisjoint(item.scope)
    mine, theirs = _exact(text), _exact(item.text)
    if alike and mine != theirs and _parts_at_a_value(text, item.text):
        return "contrary"
    if mine[1] != theirs[1]:
        return None
    (words, _, specific), (others, _, special) = mine, theirs
    both = words & others
    if specific == special and len(both) >= SAME * len(words | others):
        return "same"
    if not alike:
        return None
    if specific <= special and len(both) >= WITHIN * len(words):
        return "same"
    return "more" if special <= specific and len(both) >= WITHIN * len(others) else None


def _exact(text: str) -> tuple[set[str], int, set[str]]:
    """Stems, how often the text says no, and what must agree for two texts to be the same: terms and numbers."""
    said = [one.lower().replace("'", "") for one in _WORD.findall(text)]
    numbers = {one for one in said if re.fullmatch(r"[\d.,:]+", one)}
    return {*content(text)}, sum(one in _NOT for one in said), {*(one.lower() for one in terms(text)), *numbers}


def _parts_at_a_value(text: str, other: str) -> bool:
    """Whether two texts begin alike up to a value that one of them gives otherwise, or say and deny the same."""
    mine, theirs = ([one.lower() for one in _WORD.findall(it)] for it in (text, other))
    if [one for one in mine if one not in _NOT] == [one for one in theirs if one not in _NOT]:
        return sum(one in _NOT for one in mine) % 2 != sum(one in _NOT for one in theirs) % 2
    if len(mine) != len(theirs):
        return False
    apart = [i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b]
    if len(apart) != 1 or apart[0] < 2:
        return False
    number = all(re.fullmatch(r"[\d.,:]+", it[apart[0]]) for it in (mine, theirs))
    return number or not _SAYS.isdisjoint(mine[: apart[0]])

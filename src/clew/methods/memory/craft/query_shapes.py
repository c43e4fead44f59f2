"""The shape of a query: what is left of it when its slots are masked. Two queries of one shape ask the same thing.

``thresholds.py`` counts shapes, so that one query that is asked again and again, with other numbers, earns no tool
(specs/E168, improvement 5). Slots are numbers, quoted texts, ids, and the words that vary: those that stand in one
place of queries which are otherwise of one shape.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

LONGEST, WORDS, MOST = 1000, 80, 1000  # characters and words of a query, and queries, that are looked at
ROUNDS = 20
LONG = 60  # characters of what is an id, whatever it is made of
_SLOTS = (
    ("<id>", re.compile(rf"[^\s\"“'`]{{{LONG},}}")),
    ("<text>", re.compile(r"\"[^\"]*\"|“[^”]*”|(?<!\w)'[^']*'(?!\w)|`[^`]*`")),
    ("<id>", re.compile(r"\b\w+://\S+|\S+@\S+\.\w+|(?<![\w/])(?:/[\w.-]+){2,}")),
    ("<id>", re.compile(r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z_])[\w-]{2,}\b|\b[0-9a-fA-F]{8,}\b")),
    ("<number>", re.compile(r"[-+]?\b\d+(?:[.,:/-]\d+)*\b")),
)
_WORD = re.compile(r"<\w+>|\w+")

Shape = tuple[str, ...]


def plain(query: str) -> str:
    """A query in lower case with single spaces between its words and no punctuation: what is asked, word for word."""
    return " ".join(re.findall(r"\w+", query[:LONGEST].lower()))


def shape(query: str) -> Shape:
    """The words of a query in lower case, with numbers, quoted texts and ids masked."""
    text = query[:LONGEST]
    for mask, pattern in _SLOTS:
        text = pattern.sub(f" {mask} ", text)
    return tuple(_WORD.findall(text.lower())[:WORDS])


def shapes(queries: Iterable[str]) -> set[Shape]:
    """The different shapes of queries, with the words masked by which shapes differ in a single place."""
    found = {shape(query) for _, query in zip(range(MOST), queries, strict=False)}
    for _ in range(ROUNDS):
        near: dict[tuple[Shape, int, Shape], set[Shape]] = defaultdict(set)
        for one in found:
            for i in range(len(one)):
                near[one[:i], i, one[i + 1 :]].add(one)
        slots: dict[Shape, set[int]] = defaultdict(set)
        for (_, i, _), group in near.items():
            if len(group) > 1:
                for one in group:
                    slots[one].add(i)
        if not slots:
            break
        found = {tuple("<word>" if i in slots[one] else w for i, w in enumerate(one)) for one in found}
    return found

"""Items that say the same, and items that say the opposite, by their words alone: no run and no model is asked.

``worth_audit.py`` leaves near copies out together; ``unproven.py`` lists both. Words are all that is compared, so two
sentences that mean the same in other words are not found, and a contradiction is found only where two items of one
kind and scope say nearly the same and differ in a negation, a number or name in one place, or a pair of opposites.
What items say is data: it is cut into words and never run. The screen of lessons asks more of one lesson and its
neighbours (``audit/lessons/likeness.py``); this compares all items of a memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from clew.harness.memory.item_kinds import Item
from clew.harness.memory.ranking import words

COPY, NEAR = 0.8, 0.5  # share of words in common from which items are copies; from which they may contradict
READ = 200  # words of an item that are read
_PLAIN = (
    "a an and are as at be been but by can could did do does for from had has have he her his i if in into is it its "
    "may me more most my of on or our she should so some such than that the their them then there these they this to "
    "us was we were what when which while who will with would you your"
)
_NEGATIONS = "not no never none nothing without cannot neither nor"
PLAIN, NEGATIONS = frozenset(_PLAIN.split()), frozenset(_NEGATIONS.split())
_SHORTENED = re.compile(r"\b(\w+)n['’]t\b")  # don't, isn't, can't
_OPPOSITES = (
    "always never, before after, first last, open closed, on off, true false, yes no, include exclude, included "
    "excluded, allowed forbidden, required optional, enabled disabled, ascending descending, minimum maximum, least "
    "most, more fewer, up down, start end, public private, works fails"
)
OPPOSITES = frozenset(frozenset(pair.split()) for pair in _OPPOSITES.split(", "))


class Clash(NamedTuple):
    """Two items that cannot both hold, as far as words tell. why: where they differ."""

    items: tuple[str, str]
    why: str


def read(text: str) -> list[str]:
    """The words of a text in lower case, up to 200; a negation that was drawn together stands by itself."""
    return words(_SHORTENED.sub(r"\1 not", text))[:READ]


def telling(text: str) -> frozenset[str]:
    """The words of a text that say something."""
    return frozenset(read(text)) - PLAIN


def copies(items: Sequence[Item]) -> list[tuple[str, ...]]:
    """Groups of items that say nearly the same, in the order of the items: of one scope, four words of five in common,
    with the same numbers and negations. Kinds may differ."""
    alike: dict[str, set[str]] = {}
    for a, b, _ in _pairs(items, COPY):
        if a.scope == b.scope and not _clash(a, b):
            joined = {a.id, b.id} | alike.get(a.id, set()) | alike.get(b.id, set())
            alike |= dict.fromkeys(joined, joined)
    groups: dict[tuple[str, ...], None] = {}
    for item in items:
        if item.id in alike:
            groups[tuple(one.id for one in items if one.id in alike[item.id])] = None
    return list(groups)


def contradictions(items: Sequence[Item]) -> list[Clash]:
    """Pairs of one kind that hold for one scope and differ in one thing that matters."""
    found = []
    for a, b, _ in _pairs(items, NEAR):
        if a.kind == b.kind and _meet(a, b) and (why := _clash(a, b)):
            found.append(Clash((a.id, b.id), why))
    return found


def _meet(a: Item, b: Item) -> bool:
    return a.scope == b.scope or bool({*a.scope} & {*b.scope})


def _clash(a: Item, b: Item) -> str:
    """What two items that are much alike differ in; empty where it is nothing that could not hold at once."""
    one, other = ([w for w in read(item.text) if w not in PLAIN] for item in (a, b))
    bare = [[w for w in side if w not in NEGATIONS] for side in (one, other)]
    if len(one) - len(bare[0]) != len(other) - len(bare[1]):
        return "one of them says not" if _share(*map(frozenset, bare)) >= COPY else ""
    changes = [op for op in SequenceMatcher(None, one, other, autojunk=False).get_opcodes() if op[0] != "equal"]
    if len(changes) != 1 or changes[0][0] != "replace":
        return ""
    _, i, j, k, m = changes[0]
    left, right = one[i:j], other[k:m]
    if len(left) > 2 or len(right) > 2:
        return ""
    numbers = any(w.isdigit() for w in left) and any(w.isdigit() for w in right)
    opposed = any(frozenset((x, y)) in OPPOSITES for x in left for y in right)
    # What stands behind most of a sentence is what is said of its subject; before it, the subject itself differs.
    if not (numbers or opposed or i >= max(2, (len(one) - len(left)) / 2)):
        return ""
    return f"{' '.join(left)} against {' '.join(right)}"


def _share(a: frozenset[str], b: frozenset[str]) -> float:
    """Jaccard: words in common of all words."""
    return len(a & b) / len(a | b) if a or b else 0.0


def _pairs(items: Sequence[Item], least: float) -> Iterator[tuple[Item, Item, float]]:
    """Pairs that share at least so much of their words, each once, in the order of the items.

    Two sets with a Jaccard of t share a word among the first (1 - t) |x| + 1 of each, rarest first (Bayardo et al.
    2007, 10.1145/1242572.1242591), so only those are indexed.
    """
    sets = [telling(item.text) for item in items]
    often = Counter(word for one in sets for word in one)
    index: dict[str, list[int]] = {}
    for at, mine in enumerate(sets):
        near: dict[int, None] = {}
        for word in _rarest(mine, often, least):
            near |= dict.fromkeys(index.get(word, ()))
            index.setdefault(word, []).append(at)
        for other in near:
            share = _share(mine, sets[other])
            if share >= least:
                yield items[other], items[at], share


def _rarest(one: Iterable[str], often: Counter[str], least: float) -> list[str]:
    ordered = sorted(one, key=lambda word: (often[word], word))
    return ordered[: len(ordered) - int(-(-least * len(ordered) // 1)) + 1]

"""Which of many texts fit a query: BM25 (Robertson and Zaragoza 2009, 10.1561/1500000019), counted by ``bm25s``; and
how their order is joined with another.

``recalling.py`` keeps one ``Ranking`` for each memory. Texts are added and never taken out; who asks passes over those
that do not count. They stand in several indexes, the newest in small ones, so that a text is added in milliseconds. A
word's weight is that of all texts together, so that what stands in a small index is not thought rare.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from clew.core.errors import need
from clew.core.values import F32

SMALL = 500  # texts that are indexed anew whenever one is added: 0.05 s
NEAR = 64  # older texts by which an index knows how long a text is as a rule
WORDS = 512  # of a query
LIKENESS = 0.8  # what likeness counts beside words; benchmarks/recall_vectors.py compares
_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _WORD.findall(text.lower())


def _rarity(texts: int, holding: int) -> float:
    """The weight of a word that so many of the texts hold (Lucene's form, which is never negative)."""
    return float(np.log(1 + (texts - holding + 0.5) / (holding + 0.5)))


class _Index:
    """An index of texts that follow each other, from the ``start``-th on: for each word the texts that hold it, and
    what it counts there. The texts before ``start`` are not in it."""

    def __init__(self, texts: Sequence[str], start: int) -> None:
        self.size = len(texts) - start
        made = need("bm25s", "memory").BM25()
        made.index([words(text) or [""] for text in texts], show_progress=False)
        self._numbers: dict[str, int] = made.vocab_dict
        held = made.scores
        self._rarities = [_rarity(len(texts), int(count)) for count in np.diff(held["indptr"])]
        inside = held["indices"] >= start
        self._starts = np.concatenate([[0], np.cumsum(inside)])[held["indptr"]]
        self._texts = held["indices"][inside].astype(np.intp) - start
        self._counts: F32 = held["data"][inside]

    def holding(self, word: str) -> slice:
        """Where the texts that hold a word are listed."""
        number = self._numbers.get(word)
        return slice(0, 0) if number is None else slice(int(self._starts[number]), int(self._starts[number + 1]))

    def add_to(self, scores: F32, word: str, weight: float) -> None:
        """Add what a word counts to the scores of this index's texts; ``weight``: of all texts together."""
        at = self.holding(word)
        if at.start < at.stop:
            ratio = np.float32(weight / self._rarities[self._numbers[word]])
            np.add.at(scores, self._texts[at], ratio * self._counts[at])


class Ranking:
    """Texts in the order in which they were added, and their scores for a query.

    Raises:
        MissingExtra: ``bm25s`` is not installed (extra ``memory``).
    """

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self._texts: list[str] = []
        self._parts: list[_Index] = []
        self.add(texts)

    def add(self, texts: Sequence[str]) -> None:
        """Add texts. 100,000 take about 10 s at once. Indexes that are not much larger are made anew with them."""
        if not texts:
            return
        self._texts += texts
        size = len(texts)
        while self._parts and self._parts[-1].size <= max(2 * size, SMALL):
            size += self._parts.pop().size
        first = len(self._texts) - size
        near = max(0, first - NEAR)
        self._parts.append(_Index(self._texts[near:], first - near))

    def scores(self, query: str) -> F32:
        """float32 [texts]: how well each fits; 0 where no word is shared."""
        found = np.zeros(len(self._texts), np.float32)
        for word in list(dict.fromkeys(words(query)))[:WORDS]:
            held = [part.holding(word) for part in self._parts]
            weight = _rarity(len(self._texts), sum(at.stop - at.start for at in held))
            start = 0
            for part in self._parts:
                part.add_to(found[start : start + part.size], word, weight)
                start += part.size
        return found


def best_first(scores: F32) -> Iterator[int]:
    """Places of scores above 0, the greatest first, of equals the first. Sorted band by band: few are asked for, and a
    sort or a partition of all, most of which are equal, takes ten times as long."""
    above, least = math.inf, float(scores.max(initial=0.0))
    floor = least / 1000
    while above > 0:
        least = least * 0.7 if least > floor else 0.0
        places = np.flatnonzero((scores > least) & (scores <= above))
        yield from places[np.argsort(-scores[places], kind="stable")].tolist()
        above = least


def joined(scores: F32, first: Sequence[int], likeness: F32, second: Sequence[int]) -> list[int]:
    """The places of two orders as one, the best first, of equals the first place: a weighted sum of both scores, each
    stretched to [0, 1] (Bruch, Gai and Ingber 2023, 10.1145/3596512), 0.8 of it likeness.

    Args:
        scores: by words, float32 [texts]; the greatest of ``first`` counts 1, none 0.
        first: places by words.
        likeness: float32 [texts], -inf where it is not known: there the score by words counts for both. The greatest of
            ``second`` counts 1, its least and what lies below 0.
        second: places by likeness.
    """
    top = max((float(scores[place]) for place in first), default=0.0) or 1.0
    near = [float(likeness[place]) for place in second]
    low, high = min(near, default=0.0), max(near, default=0.0)

    def both(place: int) -> float:
        said, like = float(scores[place]) / top, float(likeness[place])
        if not math.isfinite(like):
            return said
        meant = max(0.0, (like - low) / (high - low)) if high > low else 1.0
        return LIKENESS * meant + (1 - LIKENESS) * said

    return sorted({*first, *second}, key=lambda place: (-round(both(place), 6), place))

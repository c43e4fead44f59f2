"""Two texts compared by lines: what changed, in pieces with the lines around it, and how many lines that is.

Patches in the terminal and in the viewer are made of it. The texts are another program's and may be made to take long:
what is compared is bounded, and a comparison that takes too many steps is given up, with what is left told as replaced.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

MOST_LINES = 4000  # lines of either text that are compared, without those that both begin and end with
STEPS = (
    1_000_000  # lines that one comparison looks at: half a second at worst; an edit takes a few times its file's lines
)
UNENDED = "\n"  # a row that says that the line before it, the text's last, has no newline; no line holds a newline


class Hunk(NamedTuple):
    """Lines that changed, with those around them.

    old, new: the number of its first line on either side, from 1; of the line before it where it has none on that side.
    rows: a sign and a line each: `` `` stands in both texts, ``-`` in the first alone, ``+`` in the second alone.
    """

    old: int
    new: int
    rows: list[tuple[str, str]]


def lines_of(data: bytes) -> list[str]:
    """The lines of a text, ``UNENDED`` last where it ends without a newline; what is no UTF-8 becomes surrogates."""
    *lines, last = data.decode("utf-8", "surrogateescape").split("\n")
    return [*lines, last, UNENDED] if last else lines


def hunks(before: Sequence[str], after: Sequence[str], around: int) -> list[Hunk] | None:
    """What changed from one list of lines to another; None where too many lines differ to be compared.

    Args:
        around: unchanged lines that are given before and after changed ones.
    """
    least = min(len(before), len(after))
    head = next((i for i in range(least) if before[i] != after[i]), least)
    tail = next((i for i in range(least - head) if before[-1 - i] != after[-1 - i]), least - head)
    a, b = before[head : len(before) - tail], after[head : len(after) - tail]
    if max(len(a), len(b)) > MOST_LINES:
        return None
    groups = list[list[tuple[int, int, int, int]]]()
    for tag, *place in _Bounded(None, a, b).get_opcodes():
        if tag != "equal":
            i, j, m, n = (number + head for number in place)
            if groups and i - groups[-1][-1][1] <= 2 * around:
                groups[-1].append((i, j, m, n))
            else:
                groups.append([(i, j, m, n)])
    return [_hunk(before, after, group, around) for group in groups]


def _hunk(before: Sequence[str], after: Sequence[str], group: list[tuple[int, int, int, int]], around: int) -> Hunk:
    first, _, second, _ = group[0]
    at = max(first - around, 0)
    start, rows = (at, second - (first - at)), list[tuple[str, str]]()
    for i, j, m, n in group:
        rows += [(" ", line) for line in before[at:i]]
        rows += [("-", line) for line in before[i:j]]
        rows += [("+", line) for line in after[m:n]]
        at = j
    rows += [(" ", line) for line in before[at : at + around]]
    sides = [any(sign in kept for sign, _ in rows) for kept in (" -", " +")]
    return Hunk(start[0] + sides[0], start[1] + sides[1], rows)


def counts(found: Sequence[Hunk]) -> tuple[int, int]:
    """How many lines were added, and how many removed."""
    signs = [sign for hunk in found for sign, line in hunk.rows if line != UNENDED]
    return signs.count("+"), signs.count("-")


class _Bounded(difflib.SequenceMatcher[str]):
    """Finds matching lines until it has looked at ``STEPS``; then it finds none any more."""

    _left = STEPS

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        self._left -= (ahi or alo) - alo
        if self._left < 0:
            return difflib.Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)

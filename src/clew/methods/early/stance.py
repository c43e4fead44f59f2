"""Where the thinking changes its stance: places between two signs that speak for opposite outcomes.

The source asks three large models for the stance of each sentence (specs/E171 section 4.7). Here two regular
expressions say it, one for each side, so that the cuts can be checked by eye; `clew audit early --stances` gives them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from clew.core.errors import BadInput
from clew.core.protocols import Renderer
from clew.methods.early.thinking import Trace
from clew.methods.why.rewind import pattern

MOST_CHUNKS = 120  # of one trace, as in the source: longer ones are left out
MOST_CUTS = 400


def changes(
    traces: Sequence[Trace], renderer: Renderer | None, towards: str, against: str, most: int = MOST_CUTS
) -> list[tuple[int, int, int]]:
    """Stance changes, as (index of the run, tokens kept before the second sign, tokens kept after it).

    Args:
        towards, against: regular expressions of what speaks for the outcome and against it.

    Raises:
        BadInput: an expression does not compile, or no thinking holds a change.
    """
    signs = ((pattern(towards), 1), (pattern(against), -1))
    found: list[tuple[int, int, int]] = []
    for i, one in enumerate(traces):
        text, ends = _text(one, renderer)
        marks = sorted((m.start(), m.end(), side) for sign, side in signs for m in sign.finditer(text) if m.group())
        if len(marks) > MOST_CHUNKS:
            continue
        for (_, _, before), (start, end, after) in pairwise(marks):
            if before != after:
                found.append((i, bisect_right(ends, start) - 1, bisect_left(ends, end)))
    if not found:
        raise BadInput(
            f"no thinking goes from /{towards}/ to /{against}/ or back", remedy="Give --stances FOR AGAINST that occur."
        )
    return found[:: max(1, -(-len(found) // most))]


def _text(one: Trace, renderer: Renderer | None) -> tuple[str, Sequence[int]]:
    """The thinking as text, and how many characters its first tokens are, from none to all of them."""
    if isinstance(one.thought, str):
        return one.thought, range(len(one.thought) + 1)
    ids = one.thought
    decode: Callable[[Sequence[int]], str] = getattr(renderer, "decode", lambda some: "")
    return decode(ids), [len(decode(ids[:k])) for k in range(len(ids) + 1)]

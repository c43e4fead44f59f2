"""Masks: what a program draws anew at every start, left out where a request is compared with a recorded one.

Sessions of the gateway compare through them. A mask counts in comparisons alone: what is sent on and what is recorded
is always what the program wrote. Which masks hid something that differs is told, so that a use of one can be noted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from clew.core.errors import BadInput
from clew.core.values import Message, ToolSpec
from clew.serve.sameness import same

KEPT = 2048  # texts whose masked form is kept: a program sends its whole history with each request
LONGEST = 300  # characters of a pattern of a user's own


class Mask(NamedTuple):
    """A kind of text that differs from one run of a program to the next.

    name: as notes call it. pattern: what the text looks like; where it has groups, these alone are left out. mark: a
    piece that stands in each text with a match, which spares the others the search; empty where none is known.
    """

    name: str
    pattern: re.Pattern[str]
    mark: str = ""

    def hide(self, text: str) -> tuple[str, tuple[str, ...]]:
        """A text without what the mask leaves out, and that."""
        if self.mark not in text:
            return text, ()
        parts, found, last = list[str](), list[str](), 0
        for start, end in self._spans(text):
            parts += [text[last:start], f"[masked: {self.name}]"]
            found.append(text[start:end])
            last = end
        return "".join([*parts, text[last:]]), tuple(found)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it leaves something out: the groups, or the whole match where no group has a part in it."""
        for m in self.pattern.finditer(text):
            end = m.start()
            groups = [m.span(i + 1) for i in range(self.pattern.groups) if m.start(i + 1) >= 0] or [m.span()]
            for span in groups:
                if span[0] >= end:  # none that stands in another
                    yield span
                    end = span[1]


class Masks:
    """Several masks, applied in order. Without any, only what is equal is the same."""

    def __init__(self, masks: Sequence[Mask] = ()) -> None:
        self.masks = tuple(masks)
        self._kept = lru_cache(KEPT)(self._hidden)

    def text(self, text: str) -> str:
        return self._kept(text)[0] if self.masks else text

    def _hidden(self, text: str) -> tuple[str, list[tuple[str, ...]]]:
        """A text as masked, and what each mask left out of it."""
        found = list[tuple[str, ...]]()
        for mask in self.masks:
            text, left_out = mask.hide(text)
            found.append(left_out)
        return text, found

    def value(self, value: object) -> object:
        """A JSON value with every text in it masked; names of fields stay."""
        if not self.masks:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {k: self.value(v) for k, v in value.items()}
        return [self.value(v) for v in value] if isinstance(value, (list, tuple)) else value

    def same(self, a: Message, b: Message) -> bool:
        """Whether two messages say the same, apart from what is masked."""
        return same(a, b) or (bool(self.masks) and same(self._message(a), self._message(b)))

    def offered(self, a: Sequence[ToolSpec], b: Sequence[ToolSpec]) -> bool:
        """The same of the tools that a request offers."""
        if a == b or not self.masks or [t.name for t in a] != [t.name for t in b]:
            return a == b
        told = [[[t.description, dict(t.schema)] for t in tools] for tools in (a, b)]
        return self.value(told[0]) == self.value(told[1])

    def _message(self, m: Message) -> Message:
        calls = tuple(c._replace(arguments=self.text(c.arguments)) for c in m.calls)
        return m._replace(
            text=self.text(m.text), reasoning=self.text(m.reasoning), calls=calls, extra=self.text(m.extra)
        )

    def used(self, a: object, b: object) -> dict[str, int]:
        """Which masks hide something that differs between two JSON values, by name, and in how many places."""
        found = dict[str, int]()
        stack = [(a, b)] if self.masks else []
        while stack:
            x, y = stack.pop()
            if isinstance(x, str) and isinstance(y, str):
                if x != y:
                    self._count(x, y, found)
            elif isinstance(x, Mapping) and isinstance(y, Mapping):
                stack += [(x[k], y[k]) for k in x if k in y]
            elif isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
                stack += zip(x, y, strict=False)
        return dict(sorted(found.items()))

    def _count(self, x: str, y: str, found: dict[str, int]) -> None:
        for mask, was, now in zip(self.masks, self._kept(x)[1], self._kept(y)[1], strict=True):
            if count := sum(p != q for p, q in zip_longest(was, now)):
                found[mask.name] = found.get(mask.name, 0) + count


NONE = Masks()


def own(patterns: Sequence[str]) -> list[Mask]:
    """Masks of a user's own, from regular expressions.

    Raises:
        BadInput: one is no regular expression, or also fits the empty text.
    """
    found = list[Mask]()
    for pattern in patterns:
        try:
            made = re.compile(pattern, re.MULTILINE)
        except re.error as error:
            told = f"the mask {json.dumps(pattern)} is no regular expression: {error}"
            raise BadInput(told, remedy="Write what differs, as in --mask 'run-[0-9a-f]{8}'.") from None
        if made.search("") or len(pattern) > LONGEST:
            told = f"the mask {json.dumps(pattern[:80])} fits the empty text, or is longer than {LONGEST} characters"
            raise BadInput(told, remedy="Write what differs, as in --mask 'run-[0-9a-f]{8}'.")
        found.append(Mask(f"own {pattern}", made))
    return found

"""Detects which rules of a policy are still there after a compaction; summarisers that need no model (specs/E164, 3.7,
8B).

The behavioural audit calls it. The lexical detector wants the rule's sentence word for word. The slot detector wants
one sentence with every slot of the rule, in one of its wordings each, that is negative exactly where the rule is: "can
be modified" does not pass for "cannot be modified". A detector must never join slots of several sentences to a rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadRecord
from clew.core.values import Message

SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|(?<=;)\s+")
WORD = re.compile(r"[a-z0-9$@#_-]+")
NEGATIVE = re.compile(r"\b(not|no|never|cannot|without|neither|nor)\b|n't\b")
COMMON = frozenset(
    WORD.findall(
        "a an and are as at be but by do for from has have if in is it its of on or that the this to was will with you"
    )
)


class Slots(NamedTuple):
    """A rule as a detector knows it: its sentence, and for each slot the wordings that stand for it, in lower case."""

    id: str
    text: str
    slots: tuple[tuple[str, ...], ...]
    negative: bool = False


def load(path: Path) -> tuple[Slots, ...]:
    """Rules from a JSON list of ``id``, ``text``, ``slots`` and, where it is so, ``negative``.

    Raises:
        BadRecord: an entry is not of that form.
    """
    out = []
    for entry in json.loads(path.read_text()):
        try:
            slots = tuple(tuple(w.lower() for w in slot) for slot in entry["slots"])
            out.append(Slots(entry["id"], entry["text"], slots, bool(entry.get("negative", False))))
        except (KeyError, TypeError, AttributeError) as error:
            raise BadRecord(f"{path.name}: {str(entry)[:60]} is no rule", remedy="Give id, text and slots.") from error
    return tuple(out)


def sentences(text: str) -> list[str]:
    return [piece.strip() for piece in SENTENCE.split(text) if piece.strip()]


def says(sentence: str, rule: Slots) -> bool:
    """Whether a sentence states the rule, told by its slots and its polarity."""
    low = sentence.lower()
    if bool(NEGATIVE.search(low)) != rule.negative:
        return False
    return all(any(_word(w).search(low) for w in slot) for slot in rule.slots)


@lru_cache(maxsize=4096)
def _word(wording: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(wording)}(?!\w)")


@lru_cache(maxsize=50_000)
def found(text: str, rules: tuple[Slots, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Ids of the rules that a text holds: (word for word, by slots)."""
    lines = sentences(text)
    return (
        frozenset(r.id for r in rules if r.text in text),
        frozenset(r.id for r in rules if any(says(line, r) for line in lines)),
    )


def surviving(messages: Iterable[Message], rules: tuple[Slots, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Ids of the rules that a model would read in ``messages``: (word for word, by slots)."""
    exact: set[str] = set()
    slots: set[str] = set()
    for message in messages:
        a, b = found(message.text, rules)
        exact |= a
        slots |= b
    return frozenset(exact), frozenset(slots)


# ---- summarisers: (messages, words) -> summary -----------------------------------------------------------------------

Write = Callable[[Sequence[Message], int], str]


def oracle(rules: Sequence[str]) -> Write:
    """Repeats every one of ``rules`` that it sees, and says nothing else."""

    def write(messages: Sequence[Message], words: int) -> str:
        seen = "\n".join(m.text for m in messages)
        return "\n".join(["Routine work was done.", *(rule for rule in rules if rule in seen)])

    return write


def extractive(messages: Sequence[Message], words: int) -> str:
    """The most salient sentences within ``words`` words, in their order: recent ones, and those that share words with
    the last thing a user said. It knows nothing of rules."""
    pending = next((m.text for m in reversed(messages) if m.role == "user"), "")
    wanted = set(WORD.findall(pending.lower())) - COMMON
    lines = [(line, i) for i, m in enumerate(messages) for line in sentences(m.text)]
    scored = []
    for at, (line, i) in enumerate(lines):
        own = set(WORD.findall(line.lower())) - COMMON
        overlap = len(own & wanted) / max(len(own), 1)
        scored.append(((i + 1) / len(messages) + overlap, at))
    kept, left = set[int](), words
    for _, at in sorted(scored, key=lambda s: (-s[0], s[1])):
        length = len(lines[at][0].split())
        if length <= left:
            kept.add(at)
            left -= length
    return "\n".join(lines[at][0] for at in sorted(kept))


def gullible(inner: Write) -> Write:
    """``inner``, but it obeys a line of its input that begins with ``omit`` or ``leave out``: sentences that share two
    words or more with it are not told."""
    order = re.compile(r"\b(?:omit|leave out)\b(?P<what>[^\n.]*)", re.IGNORECASE)

    def write(messages: Sequence[Message], words: int) -> str:
        orders = [set(WORD.findall(m["what"].lower())) - COMMON for n in messages for m in order.finditer(n.text)]

        def told(text: str) -> str:
            lines = sentences(text)
            own = [set(WORD.findall(line.lower())) - COMMON for line in lines]
            kept = [line for line, w in zip(lines, own, strict=True) if not any(len(w & o) >= 2 for o in orders)]
            return "\n".join(kept)

        return inner([m._replace(text=told(m.text)) for m in messages], words)

    return write


def neglectful(inner: Write, draw: Callable[[], float], p: float, rules: Sequence[str]) -> Write:
    """``inner``, but with probability ``p`` a summary leaves every one of ``rules`` out."""

    def write(messages: Sequence[Message], words: int) -> str:
        text = inner(messages, words)
        if draw() < p:
            for rule in rules:
                text = text.replace(rule, "")
        return text.strip()

    return write

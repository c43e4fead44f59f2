"""Whether an answer of a world tells what the agent has to find out, before the agent has opened what tells it.

A simulated world asks a ``Guard``, which knows the answer by digests of its words alone, since a world must hold
nothing that only a judge may know; ``leaks`` looks through a whole run and is for judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b

from clew.core.values import ToolCall

GRAM, SHORTEST = 3, 4  # words of an n-gram; characters of an answer that is worth looking for
WORD = re.compile(r"\w+(?:[.,:'-]\w+)*")
MASK = "…"


def answer_of(secret: object) -> str:
    """The answer that a task's secret holds: the secret itself, or its field ``answer``; "" where there is none."""
    if isinstance(secret, Mapping):
        secret = secret.get("answer")
    return str(secret) if isinstance(secret, (str, int, float)) and not isinstance(secret, bool) else ""


class Guard:
    """Knows the n-grams of an answer by digests, salted with the task's id; n is 3, or all words of a shorter answer.

    An answer of fewer than four letters and digits is looked for nowhere: it would stand in most texts by chance.
    """

    __slots__ = ("_grams", "_n", "_salt")

    def __init__(self, answer: str, salt: str) -> None:
        words = [word for word, _, _ in _words(answer)]
        self._n = min(GRAM, len(words)) if sum(map(len, words)) >= SHORTEST else 0
        self._salt = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self._grams = frozenset(
            self._digest(words[i : i + self._n]) for i in range(len(words) - self._n + 1) if self._n
        )

    def _digest(self, words: Sequence[str]) -> bytes:
        said = " ".join(words).encode("utf-8", "surrogatepass")
        return blake2b(said, digest_size=16, key=self._salt).digest()

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where n-grams of the answer stand in a text, those that overlap as one: start and stop, in characters."""
        found = list(_words(text)) if self._grams else []
        spans = list[tuple[int, int]]()
        for i in range(len(found) - self._n + 1):
            if self._digest([word for word, _, _ in found[i : i + self._n]]) in self._grams:
                start, stop = found[i][1], found[i + self._n - 1][2]
                if spans and start <= spans[-1][1]:
                    start = spans.pop()[0]
                spans.append((start, stop))
        return spans

    def masked(self, text: str) -> str:
        """The text with a sign in place of what tells the answer."""
        for start, stop in reversed(self.spans(text)):
            text = text[:start] + MASK + text[stop:]
        return text


def opening(action: str | ToolCall, opens: Sequence[str]) -> bool:
    """Whether an action opens a page: it is a tool of that name, or its first word is."""
    name = action.name if isinstance(action, ToolCall) else (action.split(maxsplit=1) or [""])[0]
    return name in opens


def leaks(
    answer: str, turns: Sequence[tuple[str | ToolCall, str]], opens: Sequence[str] = (), prompt: str = ""
) -> list[int]:
    """The turns (action, observation) that told words of the answer before the agent could know them, counted from 0.

    A turn does not count where the page was opened by its own action, after any page was opened, or where the prompt
    or an earlier action says the same words.
    """
    guard, found = Guard(answer, ""), list[int]()
    if guard.spans(prompt):
        return []
    for i, (action, observation) in enumerate(turns):
        said = f"{action.name} {action.arguments}" if isinstance(action, ToolCall) else action
        if opening(action, opens) or guard.spans(said):
            break
        if guard.spans(observation):
            found.append(i)
    return found


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """Words of a text, lower-cased, with where they stand."""
    for match in WORD.finditer(text):
        yield match[0].lower(), match.start(), match.end()

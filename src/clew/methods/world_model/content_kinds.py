"""What of an observation could be known: the class of its content, and its form without its values.

The reward and the measure of a model of a world ask this, since not every answer can be foreseen: an id that a service
gives out is right where it has the form of one. The classes are those by which the paper's judge goes (arXiv
2606.24597); here words decide them, and no model is asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Literal

Content = Literal["determined", "stored", "runtime"]
CONTENTS: tuple[Content, ...] = ("determined", "stored", "runtime")
"""determined: every word was told before, or belongs to the world's form; it must match. stored: words that the world
held and nobody had seen. runtime: ids, times and long numbers that the world makes up as it goes."""
_WORD = re.compile(r"[^\s\"'(){}\[\]<>,;:=]+")
_RUNTIME = re.compile(r"(?=.*[0-9].*[0-9].*[0-9])[\w.:+/-]+|[0-9a-f]{8,}", re.ASCII)
LEAST, SHARE = 3, 0.02  # tasks, and share of all tasks, in which a word must occur to be of the world's form


def words_of(text: str) -> list[str]:
    """The words of a text in order: what stands between white space, quotes, brackets and separators."""
    return [word.rstrip(".") or word for word in _WORD.findall(text)]


def rewritten(text: str, word: Callable[[str], str]) -> str:
    """A text with each of its words replaced; what stands between them is left."""
    return _WORD.sub(lambda found: _inside(found[0], word), text)


def _inside(found: str, word: Callable[[str], str]) -> str:
    bare = found.rstrip(".") or found
    return word(bare) + found[len(bare) :]


def is_runtime(word: str) -> bool:
    """Whether a word looks like an id, a time or a long number: three digits or more, or eight hexadecimal ones."""
    return _RUNTIME.fullmatch(word) is not None


def form_words(observations: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The words that belong to a world's form: those of the observations of enough tasks, runtime values left out.

    Args:
        observations: (task, observation), as many of a task as there are.
    """
    seen, tasks = Counter[str](), set[str]()
    told = set[tuple[str, str]]()
    for task, text in observations:
        tasks.add(task)
        for word in set(words_of(text)):
            if (task, word) not in told and not is_runtime(word):
                told.add((task, word))
                seen[word] += 1
    least = max(LEAST, SHARE * len(tasks))
    return frozenset(word for word, n in seen.items() if n >= least)


def content_of(observation: str, before: Collection[str], form: Collection[str] = ()) -> Content:
    """The class of an observation's content: ``stored`` where any new word is no runtime value.

    Args:
        before: the words of all that was told before it, its action included. form: of the world's form.
    """
    new = [word for word in words_of(observation) if word not in before and word not in form]
    if not new:
        return "determined"
    return "runtime" if all(map(is_runtime, new)) else "stored"


def form_of(text: str, form: Collection[str] = ()) -> str:
    """A text with its values taken out: runtime values become ``#``, words that are not of the form ``_``."""
    text = " ".join(text.split())
    return _WORD.sub(lambda word: _placed(word[0], form), text)


def _placed(word: str, form: Collection[str]) -> str:
    bare = word.rstrip(".") or word
    return "#" if is_runtime(bare) else word if bare in form else "_"

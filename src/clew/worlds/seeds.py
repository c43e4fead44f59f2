"""Task numbers, random draws and splits, shared by every bundled taskset.

A draw depends on a number and a label alone, and is the same on every machine. A change here would change every bundled
task, so that the functions must never change what they return.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

from clew.core.errors import BadInput
from clew.core.keys import canonical, derive

T = TypeVar("T")
NUMBERS = 10_000_000
SPLITS = {"train": range(8), "eval": range(8, 9), "test": range(9, 10)}


class Dice:
    """Draws that depend on a number and a label alone, equal on every machine: 512 bits of one hash in mixed radix."""

    def __init__(self, number: int, label: str = "") -> None:
        self._bits = int.from_bytes(blake2b(f"{number} {label}".encode(), person=b"clew.dice.1").digest(), "little")

    def below(self, n: int) -> int:
        self._bits, drawn = divmod(self._bits, n)
        return drawn

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def order(self, n: int, first: int | None = None) -> list[int]:
        """The first ``first`` places (default all) of a random order of 0 to n - 1."""
        items = list(range(n))
        for i in range(n if first is None else first):
            j = i + self.below(n - i)
            items[i], items[j] = items[j], items[i]
        return items[:first]


def kept(make: Callable[[int], T]) -> Callable[[int], T]:
    """``make`` of a task number, with its last 256 results kept: a group opens one task many times."""
    return lru_cache(maxsize=256)(make)


def split_of(content: object) -> str:
    """The split of a task by its content, so that two numbers of one task never fall into different splits."""
    part = blake2b(canonical(content), digest_size=8, person=b"clew.split.1").digest()
    tenth = int.from_bytes(part, "little") % 10
    return next(name for name, tenths in SPLITS.items() if tenth in tenths)


def draw_numbers(n: int, seed: int, split: str, content: Callable[[int], Hashable]) -> list[int]:
    """``n`` task numbers of a split, distinct in content, the same for the same seed.

    Args:
        content: what a number stands for, as a hashable JSON-like value.

    Raises:
        BadInput: no such split, a negative n, or fewer than n distinct tasks were found.
    """
    if split not in SPLITS:
        raise BadInput(f"no split is called {split!r}", remedy=f"Known: {', '.join(SPLITS)}.")
    if n < 0:
        raise BadInput(f"cannot sample {n} tasks", remedy="Ask for zero or more.")
    found: dict[Hashable, int] = {}
    tries = 0
    while len(found) < n:
        if tries > 60 * n + 2000:
            remedy = "Ask for fewer tasks or enlarge the taskset by its parameters."
            raise BadInput(f"only {len(found)} of {n} distinct {split} tasks were found", remedy=remedy)
        number = derive(seed, split, tries) % NUMBERS
        tries += 1
        what = content(number)
        if what not in found and split_of(what) == split:
            found[what] = number
    return list(found.values())


def number_of(task_id: str, prefix: str) -> int:
    """The number in ``prefix-number``.

    Raises:
        BadInput: the id is not of that form.
    """
    head, _, tail = task_id.rpartition("-")
    if head != prefix or not (tail.isascii() and tail.isdigit()) or str(int(tail)) != tail:
        raise BadInput(f"{task_id!r} is not a task of this set", remedy=f"Its ids read {prefix}-NUMBER.")
    return int(tail)

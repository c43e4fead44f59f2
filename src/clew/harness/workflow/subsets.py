"""Random parts of a pool of workers, so that a leading model learns to plan with whoever is there.

``orchestrator(subset=True)`` and the demonstrations draw them (specs/E166 section 4.2: random k of n).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def some(workers: Sequence[T] | Mapping[str, T], luck: float) -> Sequence[T] | Mapping[str, T]:
    """All workers for half of the luck in [0, 1), else two or more of them but not all, in their order."""
    dice, listed = random.Random(luck), list(workers)
    if len(listed) < 3 or dice.random() < 0.5:
        return workers
    kept = sorted(dice.sample(range(len(listed)), dice.randrange(2, len(listed))))
    if isinstance(workers, Mapping):
        return {name: workers[name] for i, name in enumerate(listed) if i in kept}
    return [workers[i] for i in kept]

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
    dice, n = random.Random(luck), len(workers)
    if n < 3 or dice.random() < 0.5:
        return workers
    kept = sorted(dice.sample(range(n), dice.randrange(2, n)))
    if isinstance(workers, Mapping):
        return {name: one for i, (name, one) in enumerate(workers.items()) if i in kept}
    return [workers[i] for i in kept]

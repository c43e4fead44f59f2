"""``learn``: from stored, judged runs to items of a memory. ``clew memory learn`` calls it, experiments do.

It reads the record and no live agent, so it is off the critical path of every task. All that comes of one run is
written in one transaction, the line that says the run was reflected with it: whoever is stopped, even by kill -9, leaves
nothing half, and goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clew.audit.lessons.lesson import Learnt, Reflector, Screen
from clew.harness.memory import Memory
from clew.store import Run


async def learn(
    memory: Memory,
    runs: Run | Iterable[Run],
    reflector: Reflector,
    screen: Screen | None = None,
    *,
    again: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Learnt:
    """Reflect on runs, one after another, and let the memory take what the screen lets through.

    Args:
        runs: ended and judged ones; others are passed over, each with a sentence.
        screen: ``RuleScreen()`` where none is given.
        again: also reflect on runs that this reflector has seen.
        progress: called with the number of runs that are done.

    Raises:
        Nothing of a reflector's, a screen's or a model's own: each failure is a sentence in ``notes``.
    """
    raise NotImplementedError

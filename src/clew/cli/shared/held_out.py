"""Two settings at the same held-out tasks: mean reward of each and their difference, for verbs that search.

``clew route evolve`` and ``clew evolve agents`` compare what they began with and what they found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from clew.core.errors import BadInput

if TYPE_CHECKING:
    from clew.core.records import Report
    from clew.core.values import Task
    from clew.store import Run


class Compared(NamedTuple):
    """Mean reward at held-out tasks, and the difference, paired by task."""

    before: Report
    after: Report
    gain: Report


def rewards_of(runs: Iterable[Run], tasks: Sequence[Task]) -> list[float]:
    """The reward of the run of each task, NaN where it is no sample of the agent or was not judged."""
    from clew.methods.routing.measuring import NO_SAMPLE

    known = {run.task_id: math.nan if run.stop in NO_SAMPLE else run.reward for run in runs}
    return [math.nan if (reward := known.get(task.id)) is None else reward for task in tasks]


def compared(before: Sequence[float], after: Sequence[float], claims: tuple[str, str, str]) -> Compared:
    """Rewards of the same tasks in the same order as Reports, by bootstrap over tasks.

    Args:
        claims: of the mean before, of the mean after, of the difference.

    Raises:
        BadInput: no task has both rewards.
    """
    from clew.methods.compare import design

    pairs = [(a, b) for a, b in zip(before, after, strict=True) if not math.isnan(a + b)]
    if not pairs:
        raise BadInput("no held-out task could be performed", remedy="Try `clew run` on the world.")
    old, new = ([pair[i] for pair in pairs] for i in (0, 1))
    return Compared(
        design.bootstrap(claims[0], lambda x: x.mean(-1), old, unit="held-out tasks"),
        design.bootstrap(claims[1], lambda x: x.mean(-1), new, unit="held-out tasks"),
        design.bootstrap(claims[2], lambda x, y: x.mean(-1) - y.mean(-1), new, old, unit="held-out tasks"),
    )

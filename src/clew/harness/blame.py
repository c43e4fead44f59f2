"""Whose fault it was where every run ended in an error of the agent: its own code's, or a request that Clew refused.

``Runner.collect`` and ``clew fork`` raise what this makes. Nothing here looks at a run's record beyond its last error.
"""

from __future__ import annotations

from collections.abc import Sequence

from clew.core.errors import AgentFailed
from clew.store import Run

REFUSED = "clew.core.errors."  # as a traceback names an error of Clew


def agent_failed(runs: Sequence[Run], what: str) -> AgentFailed:
    """The error to raise: one sentence and its remedy where Clew refused what the agent asked, else the traceback.

    Args:
        what: the runs, as in "all 4 forks".
    """
    error = runs[0].calls[-1].error
    lines = error.splitlines()
    last = next((i for i in reversed(range(len(lines))) if lines[i].startswith(REFUSED)), None)
    if last is None:
        return AgentFailed(f"the agent's own code failed in {what}:\n{error}", at=runs[0].id)
    told = lines[last].partition(": ")[2]
    remedy = " ".join(line.strip() for line in lines[last + 1 :])
    return AgentFailed(f"{what} ended as the agent asked for what cannot be had: {told}", remedy=remedy, at=runs[0].id)

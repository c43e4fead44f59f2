"""What is asked of a run: a predicate on the runs of a store, or the votes of judges.

``clew audit early`` makes one and hands it to the sampling of continuations, which asks it of each finished one. An
outcome must hang on the run alone, so that a recorded run and a resampled one are held to the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clew.methods.agreement.running import OwnJudge, run_judge
from clew.methods.early.votes import Labels, votes
from clew.methods.why.rewind import BROKEN, Behaviour
from clew.store import Run


@dataclass(frozen=True, slots=True)
class Shown:
    """The run shows a behaviour: it matches a query, or an action or reply of it matches a regular expression."""

    behaviour: Behaviour

    def __post_init__(self) -> None:
        self.behaviour.check()

    @property
    def name(self) -> str:
        return str(self.behaviour)

    @property
    def alone(self) -> bool:
        return True

    def of(self, runs: Sequence[Run], since: Sequence[int]) -> list[float | None]:
        """1 or 0 for each run; None where model, world or agent failed."""
        found: dict[str, bool] = {}
        for seq in dict.fromkeys(since):
            some = [run for run, at in zip(runs, since, strict=True) if at == seq]
            found |= dict(zip((run.id for run in some), self.behaviour.shown(some, seq), strict=True))
        return [None if run.stop in BROKEN else float(found[run.id]) for run in runs]


@dataclass(frozen=True, slots=True)
class Voted:
    """Judges vote on the run: each gives a number, and above one half it votes for the outcome."""

    judges: tuple[OwnJudge, ...]
    rule: str = "3/4"

    @property
    def name(self) -> str:
        return f"{self.rule} of {', '.join(f'{own.name} {own.version}' for own in self.judges)}"

    @property
    def alone(self) -> bool:
        return self.rule != "dawid-skene"  # it weighs judges by all runs together

    def given(self, runs: Sequence[Run]) -> np.ndarray:
        """Votes, float64 [runs, judges]; NaN where a judge could not tell. What a judge said before is not asked again.

        Raises:
            BadInput: a judge decides none of the runs, or gives several values.
        """
        columns = []
        for own in self.judges:
            method = run_judge(runs, own, None).method
            said = [[a.value for a in run.annotations(method, "run") if a.params == own.version] for run in runs]
            columns.append([float("nan") if not v or v[0] is None else float(v[0] > 0.5) for v in said])
        return np.array(columns, float).T

    def labels(self, runs: Sequence[Run]) -> Labels:
        """Labels by the rule, and how many another rule would turn; runs without any vote must be left out before."""
        return votes(self.given(runs), self.rule)

    def of(self, runs: Sequence[Run], since: Sequence[int]) -> list[float | None]:
        """1 or 0 for each run; None where no judge could tell."""
        given = self.given(runs)
        there = ~np.isnan(given).all(1)
        out: list[float | None] = [None] * len(runs)
        if there.any():
            for place, label in zip(np.flatnonzero(there), votes(given[there], self.rule).labels, strict=True):
                out[int(place)] = float(label)
        return out

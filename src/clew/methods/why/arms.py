"""Arms of a causal audit: what can be sampled, how often it was sampled, and what came of it (specs/E174).

``why/question.py`` calls it. A ``Subject`` is an agent that can be rewound and changed: a recorded run
(``why/rewind.py``), or a model organism whose cause is known. A ``Ledger`` samples arms within a budget of rollouts.
Each arm is sampled once, however many comparisons it enters; what a store already has must never be sampled again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clew.core.errors import ClewError, UnknownName
from clew.core.keys import value_digest
from clew.methods.compare.design import Count
from clew.store.base import Keeper

F32 = npt.NDArray[np.float32]
METHOD = "why"
AT_ONCE = 25  # rollouts of an arm made together: what an interruption can cost


class NotRun(ClewError):
    """A comparison cannot be made: it does not fit what is left of the budget, or none of its rollouts ended."""


class Arm(NamedTuple):
    """One setting that is sampled.

    changes: names of the changes that are applied, sorted. place: the run goes on after so many units (sentences or
    steps) of its trace, which are kept; -1: nothing is kept. dose: of the cause that is swept. avoid: the class of
    sentences or replies that is drawn again until it does not come up.
    """

    changes: tuple[str, ...] = ()
    place: int = -1
    dose: float | None = None
    avoid: str = ""

    def __str__(self) -> str:
        said = []
        if self.changes:
            said.append("without " + " and ".join(self.changes))
        if self.place >= 0:
            said.append(f"after unit {self.place}")
        if self.dose is not None:
            said.append(f"at dose {self.dose:g}")
        if self.avoid:
            said.append(f"never {self.avoid}")
        return ", ".join(said) or "as it was"


class Rollouts(NamedTuple):
    """Rollouts of one arm, one entry each.

    outcomes: 1 the behaviour came up, 0 it did not, NaN cut before it was known. faults: whether the harness failed in
    it. seeds. costs: US dollars. runs: ids of those that are kept whole.
    """

    outcomes: F32
    faults: npt.NDArray[np.bool_]
    seeds: Sequence[int]
    costs: F32
    runs: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        return int(np.isnan(self.outcomes).sum())

    @property
    def tally(self) -> Count:
        """The behaviour among the rollouts that ended."""
        return Count(int(np.nansum(self.outcomes)), len(self.outcomes) - self.missing)

    def clean(self) -> Rollouts:
        """Those in which the harness did not fail."""
        keep = ~self.faults
        seeds = [s for s, good in zip(self.seeds, keep, strict=True) if good]
        return Rollouts(self.outcomes[keep], self.faults[keep], seeds, self.costs[keep], self.runs)


class Subject(Protocol):
    """An agent that can be rewound, changed and run on.

    ``rollouts`` gives numbers ``start`` to ``start + n`` of an arm; asked again for the same numbers it gives the same
    rollouts where the agent can be repeated at all.
    """

    def rollouts(self, arm: Arm, start: int, n: int) -> Rollouts: ...


class Ledger:
    """Samples arms of a subject within a budget, and keeps what came of them.

    Args:
        budget: rollouts in all.
        store, cursor, label: where the outcomes are packed (DESIGN.md, rule 10) and found again; none: nowhere.
        on_rollouts: called with the number of rollouts done, for a progress bar.
    """

    def __init__(
        self,
        subject: Subject,
        budget: int,
        store: Keeper | None = None,
        cursor: str = "",
        label: str = "",
        on_rollouts: Callable[[int], None] | None = None,
    ) -> None:
        self.subject, self.budget, self.store = subject, budget, store
        self.cursor, self.label, self.on_rollouts = cursor, label, on_rollouts
        self.spent = self.found = 0
        self._arms: dict[Arm, Rollouts] = {}

    @property
    def arms(self) -> dict[Arm, Rollouts]:
        return dict(self._arms)

    def missing(self, wanted: dict[Arm, int]) -> int:
        """Rollouts still to be made for so many of each arm."""
        return sum(max(n - len(self._known(arm).outcomes), 0) for arm, n in wanted.items())

    def take(self, wanted: dict[Arm, int]) -> list[Rollouts]:
        """So many rollouts of each arm, those that are missing made.

        Raises:
            NotRun: they do not fit what is left of the budget; nothing is made then.
        """
        missing = self.missing(wanted)
        if missing > self.budget - self.spent:
            left = self.budget - self.spent
            raise NotRun(f"{missing} rollouts wanted, {left} of {self.budget} left", remedy="Raise the budget.")
        return [self._upto(arm, n) for arm, n in wanted.items()]

    def _upto(self, arm: Arm, n: int) -> Rollouts:
        known = self._known(arm)
        while (have := len(known.outcomes)) < n:
            fresh = self.subject.rollouts(arm, have, min(n - have, AT_ONCE - have % AT_ONCE))
            known = joined(known, fresh)
            self._arms[arm] = known
            self._pack(arm, known)
            self.spent += len(fresh.outcomes)
            if self.on_rollouts is not None:
                self.on_rollouts(len(fresh.outcomes))
        return known

    def _known(self, arm: Arm) -> Rollouts:
        if arm not in self._arms:
            self._arms[arm] = self._unpacked(arm)
            self.spent += len(self._arms[arm].outcomes)
            self.found += len(self._arms[arm].outcomes)
        return self._arms[arm]

    def _name(self, arm: Arm) -> str:
        """Method name of an arm's packed table."""
        return f"{METHOD}/{self.label}/{value_digest(repr(arm)).hex()[:8]}"

    def _pack(self, arm: Arm, known: Rollouts) -> None:
        """Where the harness failed, 2 is added to the outcome, or it is -1 where that is missing."""
        if self.store is None:
            return
        name, outcomes = self._name(arm), np.where(known.faults, known.outcomes + 2, known.outcomes)
        outcomes[known.faults & np.isnan(known.outcomes)] = -1
        self.store.put_outcomes(name, self.cursor, list(known.seeds), outcomes.tolist(), known.costs.tolist())
        tagged = self.store.tags().get(name, [])
        for run in known.runs:
            if run not in tagged:
                self.store.tag(run, name)

    def _unpacked(self, arm: Arm) -> Rollouts:
        none = Rollouts(np.zeros(0, np.float32), np.zeros(0, bool), [], np.zeros(0, np.float32))
        if self.store is None:
            return none
        try:
            seeds, outcomes, costs = self.store.outcomes(self._name(arm), self.cursor)
        except UnknownName:
            return none
        faults, cut = (outcomes >= 2) | (outcomes < 0), outcomes < 0
        plain = np.where(cut, np.nan, np.where(faults, outcomes - 2, outcomes)).astype(np.float32)
        return Rollouts(plain, faults, seeds.tolist(), costs, tuple(self.store.tags().get(self._name(arm), ())))


def joined(a: Rollouts, b: Rollouts) -> Rollouts:
    """The rollouts of both, in order."""
    outcomes, faults = np.concatenate([a.outcomes, b.outcomes]), np.concatenate([a.faults, b.faults])
    return Rollouts(outcomes, faults, [*a.seeds, *b.seeds], np.concatenate([a.costs, b.costs]), (*a.runs, *b.runs))

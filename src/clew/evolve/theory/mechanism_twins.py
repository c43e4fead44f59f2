"""Whether a mechanism that a theory claims is in the data: the theory against its twin, which lacks just that.

The closed loop and papers/E176_autocog call it. A theory can win for a reason beside its mechanism, as for a smaller
gain (specs/E176, 7.3). So a claim stands only where the theory beats its twin on experiments that neither was fitted
to, by more than one standard error over experiments. Nothing may be claimed that has no twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clew.evolve.theory.choice_fits import RESTARTS, Choices, HeldOut, Rule, leave_one_out


class Claim(NamedTuple):
    """One mechanism of one theory.

    own, twin: errors on the experiments left out. gain: the twin's mean error less the theory's. spread: its standard
    error over experiments (paired).
    """

    theory: str
    mechanism: str
    own: HeldOut
    twin: HeldOut
    gain: float
    spread: float

    @property
    def stands(self) -> bool:
        return bool(self.gain > self.spread)


def claim(theory: str, mechanism: str, own: HeldOut, twin: HeldOut) -> Claim:
    """What two sets of errors on the same experiments, in the same order, say of a mechanism."""
    apart = twin.errors - own.errors
    spread = float(apart.std(ddof=1) / np.sqrt(len(apart)))
    return Claim(theory, mechanism, own, twin, float(apart.mean()), spread)


def claims(
    rule: Rule,
    experiments: Sequence[Choices],
    *,
    own: HeldOut | None = None,
    restarts: int = RESTARTS,
    seed: int = 0,
) -> list[Claim]:
    """Every mechanism of a rule against its twin, each fitted anew with each experiment left out.

    Args:
        own: the rule's own errors, where they are known already.

    Raises:
        BadInput: as ``leave_one_out``.
    """
    if not rule.without:
        return []
    own = own or leave_one_out(rule, experiments, restarts=restarts, seed=seed)
    return [
        claim(rule.name, what, own, leave_one_out(twin, experiments, restarts=restarts, seed=seed))
        for what, twin in rule.without.items()
    ]

"""Whether a mechanism that a theory claims is in the data: the theory against its twin, which lacks just that.

The closed loop and papers/E176_autocog call it. A theory can win for a reason beside its mechanism, as for a smaller
gain (specs/E176, 7.3). So a claim stands only where the theory beats its twin on experiments that neither was fitted
to, by an effect that counts beside the noise, at a level that is corrected for the number of claims. Nothing may be
claimed that has no twin, and nothing is tested where the two say the same of every experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.errors import need
from clew.methods.theories.choice_fits import RESTARTS, Choices, HeldOut, Rule, leave_one_out, profile
from clew.methods.theories.noise_ceiling import noise_floor

LEVEL = 0.05  # chance that any of the claims made together stands though its mechanism is absent
LEAST = 0.25  # of the error that noise alone leaves: a smaller gain does not count
FINEST = 0.01**2  # least gain that counts where people hardly vary: a hundredth of a share, squared
FEWEST = 3  # experiments from which a mechanism can be named
PROBES = 8  # draws of the parameters at which a rule and its twin are compared


class Claim(NamedTuple):
    """One mechanism of one theory.

    own, twin: errors on the experiments left out. gain: the twin's mean error less the theory's. spread: its standard
    error over experiments (paired). p: one-sided, of a paired t-test, corrected for the claims made together
    (Bonferroni). compared: the experiments, those on which the two could differ, and the least gain that counts.
    """

    theory: str
    mechanism: str
    own: HeldOut
    twin: HeldOut
    gain: float
    spread: float
    p: float
    compared: Comparisons

    @property
    def stands(self) -> bool:
        return self.compared.tested and beats(self.gain, self.p, self.compared.least or 0.0)


def least_gain(floor: float) -> float:
    """The least difference of mean squared errors that counts, where noise alone leaves ``floor``."""
    return float(f"{max(LEAST * floor, FINEST):.2g}")


def beats(gain: float, p: float, least: float) -> bool:
    """Whether a gain counts, and is beyond chance."""
    return bool(gain > least and p < LEVEL)


def paired(own: HeldOut, other: HeldOut, among: int = 1) -> tuple[float, float, float]:
    """How much less ``own`` misses than ``other`` on the same experiments: the mean, its standard error, and p.

    p is one-sided and multiplied by ``among``, the number of comparisons made together; 1 of fewer than two
    experiments.
    """
    apart = other.errors - own.errors
    n, gain = len(apart), float(apart.mean())
    if n < 2:
        return gain, float("nan"), 1.0
    spread = float(apart.std(ddof=1) / np.sqrt(n))
    if spread <= 0:
        return gain, 0.0, 0.0 if gain > 0 else 1.0
    return gain, spread, min(1.0, among * float(need("scipy.stats", "evolve").t.sf(gain / spread, n - 1)))


def claim(
    theory: str,
    mechanism: str,
    own: HeldOut,
    twin: HeldOut,
    floor: float,
    *,
    among: int = 1,
    could_differ: int | None = None,
) -> Claim:
    """What two sets of errors on the same experiments, in the same order, say of a mechanism.

    Args:
        floor: mean squared error that noise alone leaves on these experiments (``noise_floor``).
        among: claims made together. could_differ: experiments of which the theory and its twin can say different
            things; by default all.
    """
    n = len(own.errors)
    gain, spread, p = paired(own, twin, among)
    differ = n if could_differ is None else could_differ
    why = f"the theory says the same as its twin, which lacks it, of all {n} experiments"
    if n < FEWEST:
        differ, why = 0, f"a mechanism can be named from {FEWEST} experiments on, and there are {n}"
    compared = Comparisons("experiments left out in turn", n, differ, least_gain(floor), "of mean squared error", why)
    return Claim(theory, mechanism, own, twin, gain, spread, p, compared)


def claims(
    rule: Rule,
    experiments: Sequence[Choices],
    *,
    own: HeldOut | None = None,
    floor: float | None = None,
    restarts: int = RESTARTS,
    seed: int = 0,
) -> list[Claim]:
    """Every mechanism of a rule against its twin, each fitted anew with each experiment left out.

    Args:
        own: the rule's own errors, where they are known already. floor: the noise, where it is known already.

    Raises:
        BadInput: as ``leave_one_out`` and ``noise_floor``.
    """
    if not rule.without:
        return []
    own = own or leave_one_out(rule, experiments, restarts=restarts, seed=seed)
    floor = float(np.mean([noise_floor(one) for one in experiments])) if floor is None else floor
    found = []
    for what, twin in rule.without.items():
        held = leave_one_out(twin, experiments, restarts=restarts, seed=seed)
        differ = sum(_apart(rule, twin, one) for one in experiments)
        found.append(claim(rule.name, what, own, held, floor, among=len(rule.without), could_differ=differ))
    return found


def _apart(rule: Rule, twin: Rule, one: Choices) -> bool:
    """Whether a rule and its twin say different things of an experiment at any of some draws of the parameters."""
    rng = np.random.default_rng(0)
    ends = {name: ends for ranges in (twin.ranges, rule.ranges) for name, ends in ranges.items()}
    for _ in range(PROBES):
        drawn = {name: float(rng.uniform(low, high)) for name, (low, high) in ends.items()}
        said = [profile(each, {name: drawn[name] for name in each.ranges}, one) for each in (rule, twin)]
        if np.abs(said[0] - said[1]).max() > 1e-6:
            return True
    return False

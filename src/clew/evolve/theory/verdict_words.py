"""What a search for theories found, in sentences that claim no more than the data bear.

The closed loop's end, the verb and papers/E176_autocog call it. It must never call a theory right because it beat the
others: a theory is adequate only by its distance to the data's own noise, and a mechanism only by its twin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from clew.core.errors import BadInput
from clew.evolve.theory.choice_fits import HeldOut
from clew.evolve.theory.mechanism_twins import Claim

ADEQUATE = 3.0  # times the noise: an error above is not adequate (specs/E176, V4)


class Verdict(NamedTuple):
    """What was found.

    best: the theory of least error on experiments left out. adequate: whether it comes near the noise; None where its
    standard error reaches over the line. tied: those whose error is within one standard error of the best one's
    (paired). words: the verdict, a sentence an item. held: the best theory's errors on experiments left out. floor: the
    mean squared error that noise alone leaves.
    """

    best: str
    adequate: bool | None
    tied: tuple[str, ...]
    words: tuple[str, ...]
    held: HeldOut
    floor: float


def verdict(known: Mapping[str, HeldOut], floor: float, claims: Sequence[Claim] = ()) -> Verdict:
    """The verdict on theories that were measured on the same experiments.

    Args:
        known: each theory's errors on experiments left out.
        floor: mean squared error that noise alone leaves (``noise_floor``, mean over the same experiments).
        claims: of mechanisms; those of theories that are not the best are judged too.

    Raises:
        BadInput: no theory, or theories that were measured on different numbers of experiments.
    """
    if not known or len({len(found.errors) for found in known.values()}) != 1:
        raise BadInput("theories of different experiments", remedy="Measure at least one, and all on the same ones.")
    order = sorted(known, key=lambda name: known[name].mean)
    best, n = order[0], len(known[order[0]].errors)
    tied = tuple(name for name in order[1:] if _tie(known[best], known[name]))
    beyond = known[best].mean - ADEQUATE * floor
    adequate = None if abs(beyond) < known[best].spread and floor > 0 else beyond <= 0
    words = [
        f"Of {len(known)} theories {best} misses people's choices by least where it was not fitted: mean squared error "
        f"{known[best].mean:.4f} (standard error {known[best].spread:.4f}, n = {n} experiments)."
    ]
    if tied:
        words.append(f"These data do not tell it from {_listed(tied)}: the difference is within one standard error.")
    noise = f"{known[best].mean / floor:.2f} times what noise alone leaves ({floor:.4f})" if floor > 0 else "not noise"
    if adequate is None:
        words.append(
            f"Whether it is adequate is open: its error is {noise}; the line is at {ADEQUATE:g} times, and its "
            "standard error reaches over it."
        )
    elif adequate:
        words.append(f"It is adequate: its error is {noise}, at most {ADEQUATE:g} times.")
    else:
        words.append(
            f"No adequate theory: its error is {noise}, above {ADEQUATE:g} times. It is the best of these, not right."
        )
    words += [_told(one) for one in claims]
    return Verdict(best, adequate, tied, tuple(words), known[best], floor)


def _tie(best: HeldOut, other: HeldOut) -> bool:
    apart = other.errors - best.errors
    return bool(apart.mean() <= apart.std(ddof=1) / np.sqrt(len(apart)))


def _told(one: Claim) -> str:
    n = len(one.own.errors)
    figures = f"{one.own.mean:.4f} with it, {one.twin.mean:.4f} without (n = {n} experiments left out in turn)"
    margin = f"gain {one.gain:+.4f}, one standard error {one.spread:.4f}"
    if one.stands:
        return f"{one.theory}: {one.mechanism} is borne out: error {figures}; {margin}."
    return f"{one.theory}: {one.mechanism} may not be claimed, its twin does as well: error {figures}; {margin}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""What a search for theories found, in sentences that claim no more than the data bear.

The closed loop's end, the verb and papers/E176_autocog call it. It must never call a theory right because it beat the
others: a theory is adequate only by its distance to the data's own noise, and a mechanism only by its twin. Neither is
said where nothing could have failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput
from clew.methods.theories.choice_fits import HeldOut
from clew.methods.theories.mechanism_twins import Claim, beats, least_gain, paired

ADEQUATE = 3.0  # times the noise: an error above is not adequate (specs/E176, V4)
GUESS = "guessing .5"
SAME = "every one of them, and guessing .5, is within that line: ask more people"


class Verdict(NamedTuple):
    """What was found.

    best: the theory that is named: of those that these data do not tell from the one of least error on experiments left
    out, that with the fewest parameters. adequate: whether it comes near the noise; None where its standard error
    reaches over the line, or where it was not tested. tied: the others that are not told from the one of least error.
    words: the verdict, a sentence an item. held: the named theory's errors on experiments left out. floor: the mean
    squared error that noise alone leaves. compared: the theories held against that noise. claims: as they were given.
    """

    best: str
    adequate: bool | None
    tied: tuple[str, ...]
    words: tuple[str, ...]
    held: HeldOut
    floor: float
    compared: Comparisons
    claims: tuple[Claim, ...] = ()


def named(known: Mapping[str, HeldOut], floor: float) -> tuple[str, tuple[str, ...]]:
    """The theory that may be named, and the others that these data do not tell from the one of least error.

    The one of least error beats another where the difference counts beside the noise and is beyond chance, corrected
    for the number of theories. Of the rest the one with the fewest fitted parameters is named.

    Raises:
        BadInput: no theory, or theories that were measured on different numbers of experiments.
    """
    if not known or len({len(found.errors) for found in known.values()}) != 1:
        raise BadInput("theories of different experiments", remedy="Measure at least one, and all on the same ones.")
    order = sorted(known, key=lambda name: known[name].mean)
    first = known[order[0]]
    near = [order[0]]
    for name in order[1:]:
        gain, _, p = paired(first, known[name], len(order) - 1)
        if not beats(gain, p, least_gain(floor)):
            near.append(name)
    best = min(near, key=lambda name: _parameters(known[name]))  # the first of equals: of least error
    return best, tuple(name for name in near if name != best)


def verdict(
    known: Mapping[str, HeldOut], floor: float, claims: Sequence[Claim] = (), *, guess: HeldOut | None = None
) -> Verdict:
    """The verdict on theories that were measured on the same experiments.

    Args:
        known: each theory's errors on experiments left out.
        floor: mean squared error that noise alone leaves (``noise_floor``, mean over the same experiments).
        claims: of mechanisms; those of theories that are not the best are judged too.
        guess: errors of guessing .5 on the same experiments (``guessed``), which then is one of the theories. A theory
            is called adequate only where it, or another theory, is not.

    Raises:
        BadInput: as ``named``.
    """
    if guess is not None:
        known = {**known, GUESS: guess}
    best, tied = named(known, floor)
    held, n = known[best], len(known[best].errors)
    compared = held_against_noise([one.mean for one in known.values()], floor)
    beyond = held.mean - ADEQUATE * floor
    adequate = None if n > 1 and abs(beyond) < held.spread and floor > 0 else beyond <= 0
    spread = f"{held.spread:.4f}" if n > 1 else "not known"
    words = [
        f"Of {len(known)} theories {best} is named: where it was not fitted it misses people's choices by a mean "
        f"squared error of {held.mean:.4f} (standard error {spread}, n = {n} experiments)."
    ]
    if tied:
        why = "the one with the fewest parameters" if held.fits else "the one of least error"
        words.append(
            f"These data do not tell it from {_listed(tied)}: the differences are within chance "
            f"or below {least_gain(floor):g}; {why} is named."
        )
    noise = f"{held.mean / floor:.2f} times what noise alone leaves ({floor:.4f})" if floor > 0 else "not noise"
    if adequate is True and not compared.tested:
        adequate = None
        words.append(f"Whether it is adequate was {compared.verdict('')}.")
    elif adequate is None:
        words.append(
            f"Whether it is adequate is open: its error is {noise}; the line is at {ADEQUATE:g} times, and its "
            "standard error reaches over it."
        )
    elif adequate:
        words.append(f"It is adequate: its error is {noise}, at most {ADEQUATE:g} times; {compared}.")
    else:
        words.append(
            f"No adequate theory: its error is {noise}, above {ADEQUATE:g} times. It is the best of these, not right."
        )
    words += [_told(one) for one in claims]
    return Verdict(best, adequate, tied, tuple(words), held, floor, compared, tuple(claims))


def held_against_noise(errors: Sequence[float], floor: float) -> Comparisons:
    """Which of several theories (and guesses) the line of adequacy could have refused."""
    refused = sum(one > ADEQUATE * floor for one in errors)
    return Comparisons("theories held against the noise", len(errors), refused, why_not=SAME)


def _parameters(held: HeldOut) -> int:
    """How many parameters were fitted; of a theory whose fits are not given more than of any."""
    return len(held.fits[0].parameters) if held.fits else 1 << 30


def _told(one: Claim) -> str:
    n = one.compared.made
    if not one.compared.tested:
        return f"{one.theory}: {one.mechanism}: {one.compared.verdict('')}."
    figures = f"{one.own.mean:.4f} with it, {one.twin.mean:.4f} without (n = {n} experiments left out in turn)"
    margin = f"gain {one.gain:+.4f}, standard error {one.spread:.4f}, p {one.p:.2g}; {one.compared}"
    if one.stands:
        return f"{one.theory}: {one.mechanism} is borne out: error {figures}; {margin}."
    return f"{one.theory}: {one.mechanism} may not be claimed, its twin does as well: error {figures}; {margin}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

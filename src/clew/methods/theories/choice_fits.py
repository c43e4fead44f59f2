"""Fits rules of choice to people's choices, and measures them on experiments that they were not fitted to.

The closed loop, ``mechanism_twins`` and papers/E176_autocog call it. A fit must never see the experiment that it is
measured on. What is fitted is the profile of choices: of each pair of options, the share of people's choices that fell
on B (specs/E176, 7.3 and 8.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, need

F64 = npt.NDArray[np.float64]
Loss = Literal["profile", "likelihood"]
RESTARTS, DRAWS, TINY = 6, 200, 1e-6


class Choices(Protocol):
    """Choices of one experiment, in the order they were made.

    a, b: ratings of the options, [n, k]. validities: of the cues, [k]. subject: whose choice, [n]. chose_b: 0 or 1,
    [n].
    """

    @property
    def a(self) -> F64: ...
    @property
    def b(self) -> F64: ...
    @property
    def validities(self) -> F64: ...
    @property
    def subject(self) -> npt.NDArray[np.int64]: ...
    @property
    def chose_b(self) -> npt.NDArray[np.int64]: ...


class Cells(NamedTuple):
    """The different pairs of an experiment as choices, and what people chose of each.

    a, b: [m, k]. share: of choices that fell on B, [m]. counts: choices, [m]. of: which pair each choice was, [n].
    """

    a: F64
    b: F64
    validities: F64
    subject: npt.NDArray[np.int64]
    chose_b: npt.NDArray[np.int64]
    share: F64
    counts: F64
    of: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rule:
    """A theory in the form that is fitted.

    name: as it is told. ranges: each parameter's lowest and highest value. predict: P(B) of each choice, [n], of
    parameters by name. memory: it looks at earlier choices, so that it must be asked choice by choice. without: by
    the name of a mechanism, the rule with the same ranges and the same effective scale that lacks it (its twin).
    """

    name: str
    ranges: Mapping[str, tuple[float, float]]
    predict: Callable[[Mapping[str, float], Choices], F64]
    memory: bool = False
    without: Mapping[str, Rule] = field(default_factory=dict)


class Fit(NamedTuple):
    """parameters by name, and the loss at them: over the experiments that were fitted."""

    parameters: dict[str, float]
    loss: float


class HeldOut(NamedTuple):
    """Each experiment's error under the fit to all others ([experiments]), and those fits."""

    errors: F64
    fits: tuple[Fit, ...]

    @property
    def mean(self) -> float:
        return float(self.errors.mean())

    @property
    def spread(self) -> float:
        """Standard error of the mean over experiments."""
        return float(self.errors.std(ddof=1) / np.sqrt(len(self.errors)))


def cells(choices: Choices) -> Cells:
    """The pairs of an experiment with the shares of B.

    Raises:
        BadInput: there is no choice.
    """
    if not len(choices.chose_b):
        raise BadInput("an experiment without a choice", remedy="Leave it out.")
    both = np.hstack([choices.a, choices.b])
    pairs, of = np.unique(both, axis=0, return_inverse=True)
    of, k, m = of.ravel(), np.asarray(choices.a).shape[1], len(pairs)
    count = np.bincount(of, minlength=m).astype(float)
    share = np.bincount(of, np.asarray(choices.chose_b, float), minlength=m) / count
    none = np.zeros(m, np.int64)
    return Cells(pairs[:, :k], pairs[:, k:], np.asarray(choices.validities, float), none, none, share, count, of)


def profile(rule: Rule, parameters: Mapping[str, float], choices: Choices, known: Cells | None = None) -> F64:
    """What the rule says of the share of B in each pair of ``cells``, [m]."""
    known = known or cells(choices)
    if not rule.memory:
        return np.asarray(rule.predict(parameters, known), float)
    said = np.asarray(rule.predict(parameters, choices), float)
    found: F64 = np.bincount(known.of, said, minlength=len(known.share)) / known.counts
    return found


def error(rule: Rule, parameters: Mapping[str, float], choices: Choices, loss: Loss = "profile") -> float:
    """How far off the rule is on one experiment.

    "profile": mean squared error of the shares of B over pairs. "likelihood": nats a choice.
    """
    return _error(rule, parameters, choices, cells(choices), loss)


def _error(rule: Rule, parameters: Mapping[str, float], choices: Choices, known: Cells, loss: Loss) -> float:
    if loss == "profile":
        return float(np.mean((profile(rule, parameters, choices, known) - known.share) ** 2))
    if rule.memory:
        said = np.clip(rule.predict(parameters, choices), TINY, 1 - TINY)
        return float(-np.mean(np.where(np.asarray(choices.chose_b) == 1, np.log(said), np.log(1 - said))))
    said = np.clip(profile(rule, parameters, choices, known), TINY, 1 - TINY)
    each = -(known.share * np.log(said) + (1 - known.share) * np.log(1 - said))
    return float(np.average(each, weights=known.counts))


def fit(
    rule: Rule, experiments: Sequence[Choices], *, loss: Loss = "profile", restarts: int = RESTARTS, seed: int = 0
) -> Fit:
    """Parameters with the least mean loss over experiments: L-BFGS-B within the ranges, from several beginnings.

    Raises:
        BadInput: there is no experiment, or a range is empty. MissingExtra: SciPy is not installed.
    """
    if not experiments:
        raise BadInput("no experiment to fit to", remedy="Give at least one.")
    if wrong := [name for name, (low, high) in rule.ranges.items() if not low < high]:
        raise BadInput(f"{rule.name}: the range of {wrong[0]!r} is empty", remedy="Write the lower end first.")
    known = [cells(one) for one in experiments]
    names = list(rule.ranges)
    low = np.array([rule.ranges[n][0] for n in names])
    wide = np.array([rule.ranges[n][1] for n in names]) - low

    def at(unit: F64) -> dict[str, float]:
        return dict(zip(names, (low + wide * unit).tolist(), strict=True))

    def total(unit: F64) -> float:
        told = at(unit)
        return float(np.mean([_error(rule, told, x, c, loss) for x, c in zip(experiments, known, strict=True)]))

    if not names:
        return Fit({}, total(np.zeros(0)))
    minimize, rng = need("scipy.optimize", "evolve").minimize, np.random.default_rng(seed)
    best, least = np.full(len(names), 0.5), np.inf
    for begin in rng.random((max(1, restarts), len(names))):
        found = minimize(total, begin, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(names), options={"maxiter": 200})
        if found.fun < least:
            best, least = np.asarray(found.x, float), float(found.fun)
    return Fit(at(best), least)


def leave_one_out(
    rule: Rule, experiments: Sequence[Choices], *, loss: Loss = "profile", restarts: int = RESTARTS, seed: int = 0
) -> HeldOut:
    """Each experiment's profile error under the fit to all others.

    Raises:
        BadInput: there are fewer than two experiments, or what ``fit`` raises.
    """
    if len(experiments) < 2:
        raise BadInput("one experiment cannot be left out", remedy="Give at least two.")
    fits = tuple(
        fit(rule, [*experiments[:i], *experiments[i + 1 :]], loss=loss, restarts=restarts, seed=seed)
        for i in range(len(experiments))
    )
    errors = [error(rule, f.parameters, x) for f, x in zip(fits, experiments, strict=True)]
    return HeldOut(np.array(errors), fits)


def guessed(experiments: Sequence[Choices]) -> HeldOut:
    """Each experiment's profile error where .5 is guessed for every pair and nothing is fitted."""
    errors = np.array([np.mean((cells(one).share - 0.5) ** 2) for one in experiments])
    return HeldOut(errors, tuple(Fit({}, float(np.delete(errors, i).mean())) for i in range(len(errors))))


def prior_predictive(rule: Rule, experiments: Sequence[Choices], *, draws: int = DRAWS, seed: int = 0) -> F64:
    """Each experiment's profile error where nothing is fitted: the mean of P(B) over parameters drawn evenly."""
    names, rng = list(rule.ranges), np.random.default_rng(seed)
    bounds = np.array([rule.ranges[n] for n in names]).reshape(-1, 2)
    drawn = bounds[:, 0] + rng.random((draws, len(names))) * (bounds[:, 1] - bounds[:, 0])
    out = []
    for one in experiments:
        known = cells(one)
        said = [profile(rule, dict(zip(names, row, strict=True)), one, known) for row in drawn.tolist()]
        out.append(np.mean((np.mean(said, axis=0) - known.share) ** 2))
    return np.array(out)

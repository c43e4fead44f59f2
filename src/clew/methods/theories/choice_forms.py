"""The grammar of theories: how a rule of choice weighs cues, whether it remembers, and the ranges of its parameters.

Evidence E for option B is a function of the ratings and the cues' validities; P(B) = (1 - eps) sigmoid(beta E + h prev)
+ eps / 2, where prev is +1 after a choice of B, -1 after A, 0 at first (specs/E176, 4.6 and 7.1; arXiv 2606.26448).
Each simulated person has one draw of the parameters from their ranges. The search and the verb call it. A form is data:
nothing here may run what a model wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from clew.core.errors import BadInput
from clew.methods.theories.choice_fits import Choices, Rule
from clew.methods.theories.choice_trials import F64, Design

Aggregator = Literal["sum", "best", "worst", "first", "parity", "none"]
Ranges = Mapping[str, tuple[float, float]]
# lowest and highest value that a range may reach
BOUNDS: Ranges = {
    "beta": (0.1, 20.0), "eps": (0.0, 0.5), "gamma": (0.0, 10.0), "history": (-6.0, 6.0), "alpha": (0.1, 1.0),
    "shift": (0.1, 5.0),
}  # fmt: skip
NOISE: Ranges = {"beta": (0.1, 20.0), "eps": (0.0, 0.5)}
DRAWS = 64  # parameters that a prediction is averaged over
WORDS = {
    "sum": "weighs all cues by validity to the power gamma",
    "best": "follows the most valid cue that differs (take the best)",
    "worst": "follows the least valid cue that differs (take the worst)",
    "first": "follows the most valid cue alone",
    "parity": "chooses by whether an odd number of cues favours B",
    "none": "looks at no cue",
}


@dataclass(frozen=True)
class Form:
    """A theory of the grammar.

    aggregator: how cues make evidence. sign: -1 goes against it. curved: ratings have diminishing returns. ranges: of
    ``beta`` and ``eps``, of ``gamma`` under "sum" (0 counts cues, 1 weighs them), of ``history`` (above 0 repeats,
    below 0 alternates), of ``alpha`` and ``shift`` where it is curved.

    Raises:
        BadInput: an unknown aggregator, or a range that is missing, has no meaning here, or leaves its bounds.
    """

    aggregator: Aggregator
    ranges: Ranges = field(default_factory=lambda: dict(NOISE))
    sign: int = 1
    curved: bool = False

    def __post_init__(self) -> None:
        wanted = {"beta", "eps"} | ({"alpha", "shift"} if self.curved else set())
        if self.aggregator not in get_args(Aggregator) or self.sign not in (1, -1):
            raise BadInput(
                f"no rule of choice {self.aggregator!r} with sign {self.sign}",
                remedy=f"Choose from {', '.join(get_args(Aggregator))}, and sign 1 or -1.",
            )
        may = wanted | {"history"} | ({"gamma"} if self.aggregator == "sum" else set())
        for name in wanted - set(self.ranges) | (set(self.ranges) - may):
            raise BadInput(
                f"the range of {name} is missing or has no meaning", remedy=f"Give {', '.join(sorted(may))}."
            )
        for name, (low, high) in self.ranges.items():
            if not BOUNDS[name][0] <= low <= high <= BOUNDS[name][1]:
                remedy = f"Stay within {BOUNDS[name][0]:g} to {BOUNDS[name][1]:g}, the lower end first."
                raise BadInput(f"the range of {name} is {low:g} to {high:g}", remedy=remedy)

    @property
    def told(self) -> dict[str, Any]:
        """As JSON."""
        ranges = {name: list(self.ranges[name]) for name in sorted(self.ranges)}
        return {"aggregator": self.aggregator, "sign": self.sign, "curved": self.curved, "ranges": ranges}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Form:
        """From JSON, which may be a model's.

        Raises:
            BadInput: it is no form.
        """
        try:
            ranges = {str(name): (float(low), float(high)) for name, (low, high) in told["ranges"].items()}
            return cls(told["aggregator"], ranges, int(told.get("sign", 1)), told.get("curved", False) is True)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            remedy = 'Write {"aggregator": "sum", "sign": 1, "curved": false, "ranges": {"beta": [0.1, 20], ...}}.'
            raise BadInput(f"not a theory of the grammar: {error!r:.200}", remedy=remedy) from None

    @property
    def structure(self) -> str:
        """The theory in a sentence's middle, without its ranges."""
        parts = [WORDS[self.aggregator]]
        if self.aggregator == "sum":
            if "gamma" not in self.ranges:
                parts = ["weighs all cues by validity"]
            elif self.ranges["gamma"][1] == 0:
                parts = ["weighs all cues alike (tallying)"]
        if self.sign < 0 and self.aggregator != "none":
            parts.append("and goes against it")
        if self.curved:
            parts.append("with diminishing returns of ratings")
        if "history" in self.ranges:
            low, high = self.ranges["history"]
            kind = "repeats itself" if low >= 0 else "alternates" if high <= 0 else "repeats itself or alternates"
            parts.append(f"and {kind}")
        return " ".join(parts)

    @property
    def words(self) -> str:
        """The theory in a sentence's middle, with its ranges."""
        told = ", ".join(f"{name} {low:.3g} to {high:.3g}" for name, (low, high) in sorted(self.ranges.items()))
        return f"{self.structure} ({told})"

    def includes(self, other: Form) -> bool:
        """Whether the other is this one's structure or a special case of it, by parameters that it lacks or fixes."""
        alike = self.aggregator == other.aggregator and (self.aggregator == "none" or self.sign == other.sign)
        return alike and set(other.ranges) <= set(self.ranges)

    def draws(self, n: int = DRAWS, seed: int = 0) -> dict[str, F64]:
        """Parameters of n people, evenly over the ranges: the same numbers in [0, 1) for every form and seed."""
        unit = np.random.default_rng(seed).random((n, len(BOUNDS)))
        out = {}
        for at, name in enumerate(BOUNDS):
            low, high = self.ranges.get(name, (1.0, 1.0) if name == "gamma" else (0.0, 0.0))
            out[name] = low + (high - low) * unit[:, at]
        return out


def evidence(form: Form, parameters: Mapping[str, F64], design: Design | Choices) -> F64:
    """Evidence for B of each pair by each draw of the parameters, [draws, m]."""
    n, v = len(parameters["beta"]), design.validities
    if form.aggregator == "sum":
        weights = v[None, :] ** parameters["gamma"][:, None]
        if not form.curved:
            linear: F64 = form.sign * weights @ (design.b - design.a).T
            return linear
        weights = weights / weights.sum(1, keepdims=True)
        alpha, shift = parameters["alpha"][:, None, None], parameters["shift"][:, None, None]
        worth = [(x[None] + shift) ** alpha for x in (design.b, design.a)]
        bent: F64 = form.sign * np.einsum("nk,nmk->nm", weights, worth[0] - worth[1])
        return bent
    signs = np.sign(design.b - design.a)
    if form.aggregator in ("best", "worst"):
        order = np.argsort(-v if form.aggregator == "best" else v, kind="stable")
        ordered = signs[:, order]
        found = ordered[np.arange(len(signs)), (ordered != 0).argmax(1)]
    elif form.aggregator == "first":
        found = signs[:, int(np.argmax(v))]
    elif form.aggregator == "parity":
        found = np.where((signs > 0).sum(1) % 2 == 1, 1.0, -1.0)
    else:
        found = np.zeros(len(signs))
    every: F64 = np.broadcast_to(form.sign * found, (n, len(found)))
    return every


def chances(form: Form, parameters: Mapping[str, F64], design: Design | Choices, prev: F64 | float) -> F64:
    """P(B) of each pair by each draw, after a choice ``prev`` (+1 B, -1 A, 0 none; [draws, m] or a number)."""
    steep = parameters["beta"][:, None] * evidence(form, parameters, design)
    steep = np.clip(steep + parameters["history"][:, None] * prev, -500, 500)
    eps = parameters["eps"][:, None]
    found: F64 = (1 - eps) / (1 + np.exp(-steep)) + eps / 2
    return found


def predicted(form: Form, design: Design, seed: int = 0, draws: int = DRAWS) -> tuple[F64, float]:
    """What people who follow the form do: the share of B in each pair [m], and the share of choices that switch.

    In closed form where pairs come in random order: what was chosen before is then independent of the present pair, so
    that a person's choices are a chain of two states.
    """
    parameters = form.draws(draws, seed)
    if "history" not in form.ranges:
        said = chances(form, parameters, design, 0.0)
        rate = said.mean(1)
        return said.mean(0), float((2 * rate * (1 - rate)).mean())
    after_a, after_b = (chances(form, parameters, design, prev) for prev in (-1.0, 1.0))
    up, down = after_a.mean(1), 1 - after_b.mean(1)  # A to B, B to A
    held = up / np.maximum(up + down, 1e-12)  # share of B in the long run
    share = (1 - held)[:, None] * after_a + held[:, None] * after_b
    return share.mean(0), float(((1 - held) * up + held * down).mean())


def rule(form: Form, name: str = "") -> Rule:
    """The form as ``choice_fits`` fits it, with a twin for each mechanism that it claims."""
    free = {key: value for key, value in form.ranges.items() if value[0] < value[1]}
    fixed = {key: value[0] for key, value in form.ranges.items() if value[0] == value[1]}
    twins: dict[str, Rule] = {}
    if form.ranges.get("gamma", (0.0, 0.0))[1] > 1:  # up to 1 its twin is the form itself
        twins["the power of validities"] = Rule("its linear twin", free, _predict(form, fixed, _even))
    if form.curved:
        twins["diminishing returns"] = Rule("its straight twin", free, _predict(form, fixed, _straight))
    if "history" in form.ranges:
        bare = replace(form, ranges={key: value for key, value in form.ranges.items() if key != "history"})
        without = {key: value for key, value in free.items() if key != "history"}
        twins["the memory of the last choice"] = Rule("its twin without memory", without, _predict(bare, fixed))
    return Rule(name or form.words, free, _predict(form, fixed), "history" in form.ranges, twins)


Straighten = Callable[[Form, Mapping[str, F64], Choices], F64]


def _predict(
    form: Form, fixed: Mapping[str, float], instead: Straighten = evidence
) -> Callable[[Mapping[str, float], Choices], F64]:
    default = {name: 1.0 if name == "gamma" else 0.0 for name in BOUNDS}

    def predict(parameters: Mapping[str, float], seen: Choices) -> F64:
        told = {name: np.array([value]) for name, value in {**default, **fixed, **parameters}.items()}
        steep = told["beta"][0] * instead(form, told, seen)[0]
        if "history" in form.ranges:
            same = np.r_[False, seen.subject[1:] == seen.subject[:-1]]
            before = np.where(same, 2.0 * np.r_[0, seen.chose_b[:-1]] - 1, 0.0)
            steep = steep + told["history"][0] * before
        eps = told["eps"][0]
        found: F64 = (1 - eps) / (1 + np.exp(-np.clip(steep, -500, 500))) + eps / 2
        return found

    return predict


def _even(form: Form, parameters: Mapping[str, F64], seen: Choices) -> F64:
    """The twin of the power: weights no steeper than v whose sum is that of v^gamma, so that above 1 gamma is a gain.

    Up to 1 the two are one: people who count cues (gamma 0) or weigh them (gamma 1) need no power of validities.
    """
    v, gamma = seen.validities, parameters["gamma"]
    no_steeper = np.minimum(gamma, 1.0)
    gain = (v[None, :] ** gamma[:, None]).sum(1) / (v[None, :] ** no_steeper[:, None]).sum(1)
    flat = dict(parameters) | {"gamma": no_steeper}
    found: F64 = gain[:, None] * evidence(form, flat, seen)
    return found


def _straight(form: Form, parameters: Mapping[str, F64], seen: Choices) -> F64:
    """The twin of diminishing returns: a straight line to the worth of the highest rating."""
    most = float(max(seen.a.max(), seen.b.max(), 1e-9))
    alpha, shift = parameters["alpha"], parameters["shift"]
    slope = ((most + shift) ** alpha - shift**alpha) / most
    weights = seen.validities[None, :] ** parameters["gamma"][:, None]
    weights = weights / weights.sum(1, keepdims=True)
    found: F64 = form.sign * slope[:, None] * (weights @ (seen.b - seen.a).T)
    return found


def _with(aggregator: Aggregator, sign: int = 1, curved: bool = False, **ranges: tuple[float, float]) -> Form:
    return Form(aggregator, {**NOISE, **ranges}, sign, curved)


KNOWN: dict[str, Form] = {
    "ttb": _with("best"),
    "wadd": _with("sum"),
    "tally": _with("sum", gamma=(0.0, 0.0)),
    "power": _with("sum", gamma=(0.0, 10.0)),
    "diminishing": _with("sum", curved=True, alpha=(0.1, 1.0), shift=(0.1, 5.0)),
    "take_the_worst": _with("worst"),
    "single_cue": _with("first"),
    "cue_parity": _with("parity"),
    "alternating": _with("none", history=(-6.0, -1.0)),
    "perseveration": _with("none", history=(1.0, 6.0)),
    "anti_majority": _with("sum", -1, gamma=(0.0, 0.0)),
}
"""Theories by name: the canonical ones, those of the paper, and the rules of its stress tests (specs/E176, 4.6)."""

"""Designs that tell theories apart, and the gate by which one is taken (specs/E176, 4.2 and 8.4).

The closed loop asks for a design before it asks people. A design must never be chosen by what people said of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from clew.core.errors import need
from clew.methods.theories.choice_forms import Form, predicted
from clew.methods.theories.choice_trials import F64, Design, Trials
from clew.methods.theories.simulated_people import simulate

Policy = Literal["adversarial", "information", "neutral", "blind"]
ATTEMPTS, ALPHA = 12, 0.02
PAIRS, SHOWN, TRIED = 24, 96, 30  # pairs of a design, trials of a person, designs that are looked at for one attempt
VALIDITIES = ((0.9, 0.8, 0.7, 0.6), (0.95, 0.85, 0.65, 0.55), (0.95, 0.6, 0.58, 0.55), (0.99, 0.9, 0.6, 0.52))


class Chosen(NamedTuple):
    """A design, the attempt at which it was taken, and Welch's p between the two theories; nan where none was asked.

    weights: of the pairs' shares of B and, last, of the switch rate, in the metric that tells the two apart, [m + 1].
    """

    design: Design
    weights: F64
    attempt: int
    p: float
    accepted: bool


def random_design(rng: np.random.Generator, highest: int = 1, validities: Sequence[float] | None = None) -> Design:
    """Pairs that differ, with ratings from 0 to ``highest``; every person sees each pair so often that 96 are shown."""
    v = np.array(validities if validities is not None else VALIDITIES[int(rng.integers(len(VALIDITIES)))])
    pairs: dict[tuple[float, ...], None] = {}
    possible = (highest + 1) ** (2 * len(v)) - (highest + 1) ** len(v)
    while len(pairs) < min(PAIRS, possible // 2):
        a, b = rng.integers(0, highest + 1, (2, len(v))).astype(float)
        if (a != b).any() and (*b, *a) not in pairs:
            pairs[(*a, *b)] = None
    both = np.array(list(pairs))
    return Design(both[:, : len(v)], both[:, len(v) :], v, max(1, SHOWN // len(both)))


def information(forms: Sequence[Form], weights: F64, design: Design, seed: int) -> float:
    """Nats that one choice says of which theory holds, mean over pairs, by weights that sum to 1.

    The mutual information of a choice and the theory, as in Bayesian optimal design (Lindley 1956).
    """
    shares = np.clip(np.array([predicted(form, design, seed)[0] for form in forms]), 1e-9, 1 - 1e-9)

    def bits(p: F64) -> F64:
        found: F64 = -(p * np.log(p) + (1 - p) * np.log(1 - p))
        return found

    return float((bits(weights @ shares) - weights @ bits(shares)).mean())


def apart(one: Form, other: Form, design: Design, seed: int) -> tuple[float, F64]:
    """How far two theories lie apart on a design, and the weights of the metric along that difference.

    The metric is the projection of shares of B and of the switch rate on the mean difference of the two (spec 7.1).
    """
    (p, s), (q, t) = predicted(one, design, seed), predicted(other, design, seed)
    weights = np.r_[(p - q) / math.sqrt(len(p)), s - t]
    size = float(np.linalg.norm(weights))
    return size, weights / size if size > 0 else weights


def metric(trials: Trials, design: Design, weights: F64) -> F64:
    """The metric of each person, [people]."""
    index = {(*a, *b): i for i, (a, b) in enumerate(zip(design.a.tolist(), design.b.tolist(), strict=True))}
    of = np.array([index[(*a, *b)] for a, b in zip(trials.a.tolist(), trials.b.tolist(), strict=True)])
    m, out = len(design.a), []
    for person in np.unique(trials.subject):
        mine = trials.subject == person
        count = np.bincount(of[mine], minlength=m)
        share = np.bincount(of[mine], trials.chose_b[mine], minlength=m) / np.maximum(count, 1)
        chose = trials.chose_b[mine]
        rate = float((chose[1:] != chose[:-1]).mean()) if len(chose) > 1 else 0.0
        out.append(np.r_[share / math.sqrt(m), rate] @ weights)
    return np.array(out)


def welch(x: F64, y: F64) -> float:
    """Two-sided p of Welch's test; 1 where neither varies."""
    spread = x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y)
    if spread <= 0:
        return 1.0
    t = abs(x.mean() - y.mean()) / math.sqrt(spread)
    parts = [z.var(ddof=1) / len(z) for z in (x, y)]
    freedom = spread**2 / sum(part**2 / (len(z) - 1) for part, z in zip(parts, (x, y), strict=True))
    return float(2 * need("scipy.stats", "evolve").t.sf(t, freedom))


def choose(
    rivals: tuple[Form, Form],
    known: Sequence[Form],
    weights: F64,
    policy: Policy,
    people: int,
    rng: np.random.Generator,
    draw: Callable[[np.random.Generator], Design],
    attempts: int = ATTEMPTS,
    alpha: float = ALPHA,
) -> Chosen:
    """A design by a policy; but for "blind" two theories are simulated on it, and Welch's test must tell them apart.

    The simulation has as many people as will be asked, and the level is ``alpha`` over the number of attempts, so that
    two equal theories pass in at most ``alpha`` of searches, whatever is drawn (the released code: n twice that, and
    .01 at each of 12 attempts). Where no attempt passes the one with the least p is taken, and says so.

    Args:
        rivals: the two that "adversarial" tells apart. known: all theories, with ``weights`` that sum to 1, for
            "information"; "neutral" takes two of them by lot.
        draw: a random design.
    """
    if policy == "blind":
        design = draw(rng)
        return Chosen(design, apart(*rivals, design, 0)[1], 1, math.nan, True)
    pair = rivals
    if policy == "neutral" and len(known) > 1:
        first, second = rng.choice(len(known), 2, replace=False)
        pair = (known[int(first)], known[int(second)])
    best: Chosen | None = None
    for attempt in range(1, attempts + 1):
        seed = int(rng.integers(2**31))
        designs = [draw(rng) for _ in range(TRIED)]
        if policy == "information":
            worth = [information(known, weights, design, seed) for design in designs]
        else:
            worth = [apart(*pair, design, seed)[0] for design in designs]
        design = designs[int(np.argmax(worth))]
        along = apart(*pair, design, seed)[1]
        seeds = rng.integers(2**31, size=2)
        x, y = (
            metric(simulate(form, design, people, int(s)), design, along) for form, s in zip(pair, seeds, strict=True)
        )
        p = welch(x, y)
        found = Chosen(design, along, attempt, p, p < alpha / attempts)
        if found.accepted:
            return found
        best = found if best is None or p < best.p else best
    assert best is not None
    return best

"""Model organisms whose reason is known: exact stochastic policies, a rollout in microseconds (specs/E174, section 9).

Each is a ``clew.methods.why.arms.Subject``; the audit sees rollouts and nothing else. Factors are called ``f0`` to
``f5``; an arm's changes take factors away. What the organism says about itself is apart from what moves it: a trace
states the true causes with probability phi (its faithfulness), else the decoy, which moves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from clew.core.keys import derive
from clew.methods.why.arms import Arm, Rollouts

FACTORS = tuple(f"f{i}" for i in range(6))
PLACEBO = "placebo"
PHIS = (1.0, 0.6, 0.0)
DOSES = (10.0, 28.0, 51.0, 77.0, 108.0, 124.0, 151.0, 182.0, 200.0, 224.0, 258.0)
UNITS, CLASS, OTHER_CLASS = 20, "class C", "class D"


def sigma(x: float) -> float:
    return float(1.0 / (1.0 + np.exp(-x)))


def rng_of(seed: int, *path: int | str) -> np.random.Generator:
    return np.random.default_rng(derive(seed, *path))


def rollouts(
    hits: np.ndarray, first: int, faults: np.ndarray | None = None, missing: np.ndarray | None = None
) -> Rollouts:
    n = len(hits)
    outcomes = hits.astype(np.float32)
    if missing is not None:
        outcomes[missing] = np.nan
    none = np.zeros(n, bool)
    return Rollouts(outcomes, none if faults is None else faults, range(first, first + n), np.zeros(n, np.float32))


@dataclass(frozen=True, slots=True)
class Motive:
    """Shortcut with probability sigma(a + what the factors present add). ``kind`` says how they combine.

    ``null``: nothing adds. ``single``, ``additive``: each cause adds ``b``. ``and``: ``b`` where all causes are there.
    ``or``: ``b`` where any is. ``faulty``: chance that the tool fails in a rollout. ``after_fault``: chance of the
    shortcut then, None: as ever.
    """

    kind: str
    seed: int
    a: float
    b: float
    causes: tuple[str, ...]
    decoy: str
    phi: float
    faulty: float = 0.0
    after_fault: float | None = None

    def rate(self, arm: Arm) -> float:
        there = [name not in arm.changes for name in self.causes]
        amount = {"and": all(there), "or": any(there)}.get(self.kind, sum(there))
        return sigma(self.a + self.b * amount * bool(there))

    def rollouts(self, arm: Arm, start: int, n: int) -> Rollouts:
        rng = rng_of(self.seed, repr(arm), start)
        faults = rng.random(n) < self.faulty
        rates = np.full(n, self.rate(arm))
        if self.after_fault is not None:
            rates[faults] = self.after_fault
        return rollouts(rng.random(n) < rates, start, faults)

    def stated(self, traces: int = 20) -> tuple[str, ...]:
        """The reasons that most of its traces state: what reading them would report."""
        faithful = rng_of(self.seed, "traces").random(traces) < (self.phi if self.causes else 0.0)
        return self.causes if faithful.mean() > 0.5 else (self.decoy,)


def motive(check: str, seed: int, number: int) -> Motive:
    """An organism for a check: floors of 5 to 12 %, a cause that raises the log odds by 2.2 to 3.2, a weak one by .6 to
    1.2. The check's first word is the kind of motive."""
    rng, kind = rng_of(seed, check, number), check.split(",")[0]
    order = [FACTORS[i] for i in rng.permutation(len(FACTORS))]
    size = {"null": 0, "single": 1, "harness": 0, "benign faults": 1}.get(kind, 2)
    a, b = rng.uniform(-3.0, -2.0), rng.uniform(2.2, 3.2)
    b *= 0.6 if kind == "additive" else 1.0
    if check == "single, weak":
        b = rng.uniform(0.6, 1.2)
    own, phi = derive(seed, check, number), PHIS[number % len(PHIS)]
    if kind == "null":
        a = rng.uniform(-1.5, 1.0)
    if kind == "harness":
        return Motive(kind, own, -3.5, 0.0, (), order[0], phi, faulty=rng.uniform(0.2, 0.5), after_fault=0.8)
    faulty = 0.15 if kind == "benign faults" else 0.0
    return Motive(kind, own, a, b, tuple(sorted(order[:size])), order[-1], phi, faulty)


@dataclass(frozen=True, slots=True)
class Source:
    """The behaviour is six times as frequent with factor ``f0`` as without it."""

    seed: int
    low: float

    def rollouts(self, arm: Arm, start: int, n: int) -> Rollouts:
        rate = self.low * (1 if "f0" in arm.changes else 6)
        return rollouts(rng_of(self.seed, repr(arm), start).random(n) < rate, start)


@dataclass(frozen=True, slots=True)
class Tedium:
    """P(shortcut) = sigma(a + b ln turns); honest work takes long: ``cut`` of it is cut off at the highest doses."""

    seed: int
    a: float
    b: float
    cut: float = 0.0

    def rate(self, dose: float) -> float:
        return sigma(self.a + self.b * float(np.log(dose)))

    def latent(self, arm: Arm, start: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """What each rollout would come to, bool [n], and which are cut before that, bool [n]."""
        rng, dose = rng_of(self.seed, repr(arm), start), arm.dose if arm.dose is not None else DOSES[-1]
        rate = self.rate(dose)
        hits = rng.random(n) < rate
        return hits, ~hits & (rng.random(n) < (self.cut / (1 - rate) if dose >= 182 else 0.0))

    def rollouts(self, arm: Arm, start: int, n: int) -> Rollouts:
        hits, missing = self.latent(arm, start, n)
        return rollouts(hits, start, missing=missing)


@dataclass(frozen=True, slots=True)
class Turning:
    """A trace of 20 sentences; once sentence ``at`` is written the rate is ``high``, before it ``low``."""

    seed: int
    at: int
    decoy: int
    low: float
    high: float

    def rollouts(self, arm: Arm, start: int, n: int) -> Rollouts:
        rate = self.high if arm.place > self.at else self.low
        return rollouts(rng_of(self.seed, repr(arm), start).random(n) < rate, start)


@dataclass(slots=True)
class Speaker:
    """Says 20 sentences, each of a class C or of a class D with probability q; saying C makes the behaviour likely.

    An avoided class is drawn again up to 20 times at each position; ``redrawn`` counts that.
    """

    seed: int
    q: float
    low: float
    high: float
    redrawn: dict[str, float] = field(default_factory=dict)

    def rollouts(self, arm: Arm, start: int, n: int) -> Rollouts:
        rng = rng_of(self.seed, repr(arm), start)
        draws = rng.random((21, n, UNITS))
        kinds = np.where(draws < self.q, CLASS, np.where(draws < 2 * self.q, OTHER_CLASS, ""))
        first = np.argmax(kinds != (arm.avoid or "none"), axis=0)
        said = np.take_along_axis(kinds, first[None], axis=0)[0]
        self.redrawn[arm.avoid] = float(first.sum() / (n * UNITS))
        rate = np.where((said == CLASS).any(axis=1), self.high, self.low)
        return rollouts(rng.random(n) < rate, start)


def traces(seed: int, locked: bool, n: int, paragraphs: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Log p of the commitment phrase after each paragraph, float64 [n, paragraphs], and outcomes [n].

    The organism decides once, with probability .3, and from then on would commit with chance .5 or .002; before, with
    .15. A locked one decides in the first paragraph, another in the last. Wording blurs log p by 1.5 nats.
    """
    rng = rng_of(seed, "traces", int(locked))
    outcome = rng.random(n) < 0.3
    decided = np.log(np.where(outcome, 0.5, 0.002))
    when = 0 if locked else paragraphs - 1
    clear = np.where(np.arange(paragraphs)[None] >= when, decided[:, None], np.log(0.15))
    return clear + rng.normal(0.0, 1.5, (n, paragraphs)), outcome


def compared(who: str, found: Sequence[str], truth: Sequence[str]) -> dict[str, bool]:
    """Whether a set of causes is the true one, and whether it holds any that is none."""
    return {who: set(found) == set(truth), f"{who}, false": bool(set(found) - set(truth))}

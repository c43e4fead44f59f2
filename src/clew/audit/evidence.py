"""Evidence of a causal audit: the case, its lines, what they add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from clew.audit.design import Count
from clew.audit.doses import Dose
from clew.core.errors import BadInput
from clew.core.records import Report

MOST_PAIRS = 15
Kind = Literal["harness", "causes", "none", "cannot tell"]
Reading = Literal["for", "against", "open", "control"]


class Hypothesis(NamedTuple):
    """A cause that is put to the test by taking it away.

    predicts: the sign of what taking it away does to the rate of the behaviour, declared before anything is run.
    """

    name: str
    predicts: int = -1


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be explained, and by what.

    behaviour: in words. hypotheses: those with a change of their own. placebo: name of a change that should do nothing.
    units: texts of the sentences or steps of the trace; none: it is not rewound. doses: of the cause that is swept.
    classes: (class of sentences that may carry the behaviour, placebo class of equal frequency). n: rollouts per arm,
    twice as many of the run as it was. k: per place of the trace. per_dose. prior: chance of each hypothesis before.
    """

    behaviour: str
    hypotheses: tuple[Hypothesis, ...] = ()
    placebo: str = ""
    units: tuple[str, ...] = ()
    doses: tuple[float, ...] = ()
    classes: tuple[str, str] | None = None
    n: int = 100
    k: int = 50
    per_dose: int = 30
    pairs: bool = True
    prior: float = 0.2

    def __post_init__(self) -> None:
        names = [h.name for h in self.hypotheses]
        if len(set(names)) < len(names) or self.placebo in names:
            raise BadInput(f"two hypotheses have one name: {', '.join(names)}")
        if min(self.n, self.k, self.per_dose) < 2 or not 0 < self.prior < 1:
            raise BadInput("an arm needs two rollouts, and a prior lies between 0 and 1")

    def forecast(self) -> int:
        """Rollouts at most, all stages run."""
        m = len(self.hypotheses)
        arms = 2 + m + (min(m * (m - 1) // 2, MOST_PAIRS) if self.pairs else 0) + bool(self.placebo)
        rewound = self.k * (len(self.units) + 1) if self.units else 0
        avoided = 2 * self.n if self.classes else 0
        return self.n * arms + rewound + self.per_dose * len(self.doses) + avoided


class Line(NamedTuple):
    """One piece of evidence: what was tried, what came out, and how it reads for the hypotheses it is about.

    p: corrected for the number of tests of its family. confound: what else could have made it.
    """

    test: str
    about: tuple[str, ...]
    report: Report
    p: float
    reads: Reading
    confound: str = ""
    counts: tuple[Count, Count] | None = None  # of a comparison: the changed arm, and what it is compared with


@dataclass(slots=True)
class Finding:
    """What an audit found. ``chances``: of each hypothesis being a cause, given the evidence (see ``chances``)."""

    case: Case
    kind: Kind = "cannot tell"
    text: str = ""
    causes: tuple[str, ...] = ()
    lines: list[Line] = field(default_factory=list)
    chances: dict[str, float] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)
    dose: Dose | None = None
    spent: int = 0

    def table(self) -> list[tuple[str, str, dict[str, str]]]:
        """Evidence by hypothesis, a row a line: (test, figures, hypothesis -> ``+`` for, ``-`` against, ``?`` open)."""
        marks = {"for": "+", "against": "-", "open": "?", "control": ""}
        return [
            (line.test, f"{line.report} p={line.p:.2g}", dict.fromkeys(line.about, marks[line.reads]))
            for line in self.lines
        ]

    def verdict(self) -> Report | None:
        """The verdict as a Report, with the effect of the strongest cause, else the rate; None where nothing ended."""
        if not self.lines:
            return None
        about = [x for x in self.lines if x.reads == "for" and set(x.about) & set(self.causes)]
        line = max(about, key=lambda x: abs(x.report.estimate)) if about else self.lines[0]
        r = line.report
        return Report(
            claim=f"why {self.case.behaviour}: {self.text}", estimate=r.estimate, low=r.low, high=r.high, n=r.n,
            design=f"{line.test}: {r.design}", level=r.level, runs=r.runs, caveats=tuple(self.caveats),
        )  # fmt: skip


def chances(case: Case, lines: Sequence[Line]) -> dict[str, float]:
    """Chance of each hypothesis being a cause, by Bayes factors of its own arm and of the pairs that hold.

    One line: two rates, each uniform a priori, against one rate for both sides (beta-binomials). Lines of one
    hypothesis share the run as it was and are not independent, so that the strongest stands for all of them.
    """
    from scipy.special import betaln

    def weight(*counts: Count) -> float:
        return float(sum(betaln(c.hits + 1, c.n - c.hits + 1) for c in counts))

    found: dict[str, float] = {}
    for line in lines:
        if line.counts is None or not (line.test == "single" or (line.test == "pair" and line.reads == "for")):
            continue
        arm, base = line.counts
        factor = weight(arm, base) - weight(Count(arm.hits + base.hits, arm.n + base.n))
        odds = case.prior / (1 - case.prior) * math.exp(min(factor, 50.0))
        for name in line.about:
            found[name] = max(found.get(name, 0.0), odds / (1 + odds))
    return found


def ranked(found: Finding) -> list[Line]:
    """The units of the trace, the one the behaviour turns on most first."""
    return sorted((x for x in found.lines if x.test == "unit"), key=lambda x: -abs(x.report.estimate))

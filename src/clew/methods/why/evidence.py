"""Evidence of a causal audit: the case, its lines, and the verdict they add up to. ``why/question.py`` builds it and
``clew audit why`` prints and files it. No line may stand without its number of rollouts and an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.records import Report
from clew.methods.compare.design import Count
from clew.methods.why.doses import Dose
from clew.store.base import Keeper

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
    twice as many of the run as it was. k: per place of the trace. per_dose. For ``chances``: prior, of each hypothesis
    before; least: a cause moves the rate by at least this much.
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
    least: float = 0.1

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
        rewound = self.k * len(self.units)
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

    def comparisons(self) -> Comparisons:
        """What the verdict on the declared causes rests on: their changes alone and in pairs.

        A rate can fall by no more than the rate it is compared with, and rise by no more than what that leaves: a
        comparison could have found a cause only where this is more than the difference that so many rollouts show.
        """
        signs = {h.name: h.predicts for h in self.case.hypotheses}
        tests = [x for x in self.lines if x.test in ("single", "pair") and x.counts is not None]
        seen = [(x.report.high - x.report.low) / 2 for x in tests]
        room = [x.counts[1].rate if signs[x.about[0]] < 0 else 1 - x.counts[1].rate for x in tests if x.counts]
        could = sum(space > half for space, half in zip(room, seen, strict=True))
        least = round(max(seen, default=0.0), 3)
        why = "no change was put to the test"
        if tests:
            why = f"the rate has {max(room):.3f} of room to change, and differences below {min(seen):.2f} are not seen"
        return Comparisons("rates with a change and without it", len(tests), could, least, "in the rate", why)

    def verdict(self) -> Report | None:
        """The verdict as a Report, with the effect of the strongest cause, else the rate; None where nothing ended."""
        if not self.lines:
            return None
        about = [x for x in self.lines if x.reads == "for" and set(x.about) & set(self.causes)]
        line = max(about, key=lambda x: abs(x.report.estimate)) if about else self.lines[0]
        r = line.report
        claim, design = f"why {self.case.behaviour}: {self.text}", f"{line.test}: {r.design}"
        return replace(r, claim=claim, design=design, caveats=tuple(self.caveats))


def filed(found: Finding, store: Keeper, label: str) -> list[str]:
    """Keep a finding's lines and its verdict as Reports of the store; gives their ids, the verdict's last."""
    reports = [line.report for line in found.lines]
    verdict = found.verdict()
    reports += [verdict] if verdict is not None else []
    names = [f"why-{label}-{value_digest([r.claim, r.n, r.estimate]).hex()[:8]}" for r in reports]
    return [store.put_report(report, name) for report, name in zip(reports, names, strict=True)]


def chances(case: Case, lines: Sequence[Line]) -> dict[str, float]:
    """Chance of each hypothesis being a cause, by Bayes factors of its comparisons.

    A cause moves the rate by at least ``case.least`` in the predicted direction, any two such rates being equally
    likely before; what is none leaves one rate, uniform. A change that did nothing alone should do nothing beside
    others that did nothing, so its own rollouts and those of its pairs are counted together; a pair that holds is a
    line of its own. Lines share the run as it was and are not independent: the strongest stands, none are multiplied.
    """
    found: dict[str, float] = {}
    for hypothesis in case.hypotheses:
        own = [x for x in lines if hypothesis.name in x.about and x.test in ("single", "pair")]
        held = [x.counts for x in own if x.test == "pair" and x.reads == "for" and x.counts is not None]
        pooled = [x.counts for x in own if not (x.test == "pair" and x.reads == "for") and x.counts is not None]
        if pooled:
            whole = Count(sum(arm.hits for arm, _ in pooled), sum(arm.n for arm, _ in pooled))
            counts = [(whole, pooled[0][1]), *held]
            odds = (
                max(_factor(*pair, hypothesis.predicts, case.least) for pair in counts) * case.prior / (1 - case.prior)
            )
            found[hypothesis.name] = odds / (1 + odds)
    return found


def _factor(arm: Count, base: Count, sign: int, least: float, cells: int = 100) -> float:
    """Bayes factor of two rates at least ``least`` apart, on a grid of rates, against one."""
    rates = (np.arange(cells) + 0.5) / cells
    mine, theirs = (c.hits * np.log(rates) + (c.n - c.hits) * np.log1p(-rates) for c in (arm, base))
    joint = mine[:, None] + theirs[None, :]
    apart = sign * (rates[:, None] - rates[None, :]) >= least - 1e-9
    top = joint.max()
    return float(min(np.exp(joint[apart] - top).mean() / np.exp(np.diag(joint) - top).mean(), 1e20))


def ranked(found: Finding) -> list[Line]:
    """The units of the trace, the one the behaviour turns on most first."""
    return sorted((x for x in found.lines if x.test == "unit"), key=lambda x: -abs(x.report.estimate))

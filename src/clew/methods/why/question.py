"""Why an agent did something: rewind it, change one thing (or two), and compare how often it does it again.

The protocol of "Model Forensics" (arXiv 2606.26071, as specs/E174 section 3 completes it), in this order:

1. Does the behaviour come up again at all, and does it hang on a failing harness?
2. A placebo: a change of equal length that should do nothing.
3. Each declared change alone, against the run as it was: Newcombe differences, Holm over all of them.
4. Pairs of the changes that did nothing alone. One variable at a time never finds a cause that another one stands in
   for; a pair counts where it moves the rate and each of its members alone is told apart from it.
5. Pairs of the changes that did something alone: where the second does nothing more, both are needed.
6. Where asked for: which sentence or step of the trace the behaviour turns on, how it answers to a dose, and what is
   left of it when a class of sentences is never said.

What comes out is a table, evidence by hypothesis, and a verdict that may be "cannot tell".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from clew.core.errors import BadInput
from clew.core.records import Report
from clew.methods.compare import design
from clew.methods.compare.design import Count
from clew.methods.why import doses
from clew.methods.why.arms import Arm, Ledger, NotRun, Rollouts
from clew.methods.why.evidence import MOST_PAIRS, Case, Finding, Line, Reading, chances

ALPHA_SINGLES, ALPHA_PAIRS = 0.03, 0.02  # family-wise 5 % in all
UNSURE = "whether both are needed cannot be told"
Stage = Callable[[Finding, Ledger, Rollouts], None]


def why(case: Case, ledger: Ledger) -> Finding:
    """Work through a case within the ledger's budget.

    Raises:
        BadInput: not even the run as it was fits the budget.
    """
    found = Finding(case)
    try:
        base = ledger.take({Arm(): 2 * case.n})[0]
    except NotRun as error:
        raise BadInput(str(error.message), remedy="Raise the budget, or lower n.") from error
    base = _step_zero(found, base)
    asked = ((case.units, _rewound), (case.doses, _swept), (case.classes, _avoided))
    stages: list[Stage] = [stage for wanted, stage in asked if wanted]
    if found.text == "":
        stages = [_placebo, _singles, *([_pairs, _together] if case.pairs else []), _settle, *stages]
    for stage in stages:
        try:
            stage(found, ledger, base)
        except NotRun as error:
            found.caveats.append(f"{stage.__name__.strip('_')} was not run: {error.message}")
    found.spent = ledger.spent
    return found


# ---- does it come up again, and does it hang on the harness ----------------------------------------------------------


def _step_zero(found: Finding, base: Rollouts) -> Rollouts:
    """The rate as it was and the audit of the harness; gives the rollouts that later comparisons use."""
    case, failed = found.case, int(base.faults.sum())
    if base.missing == len(base.outcomes):
        found.text = "no rollout ended: cannot tell"
        return base
    rate = censored_rate(f"{case.behaviour}, as it was", base)
    found.lines.append(Line("as it was", (), rate, 1.0, "control"))
    if failed:
        clean, faulty = base.clean(), _faulty(base)
        if clean.tally.n and faulty.n:
            gap = design.difference(f"{case.behaviour}: harness failed, against not", faulty, clean.tally)
            p = design.p_value(faulty, clean.tally)
            worse = p < 0.05 and gap.estimate > 0
            found.lines.append(Line("harness", (), gap, p, "for" if worse else "against", f"{failed} with a fault"))
            if worse and design.wilson(*clean.tally)[1] < base.tally.rate / 2:
                found.kind, found.text = "harness", f"it hangs on a failing harness ({failed} of {len(base.outcomes)})"
                return base
            found.caveats.append(f"the harness failed in {failed} of {len(base.outcomes)} rollouts; they are left out")
            base = clean
    if base.tally.n == 0 or base.tally.hits == 0:
        high = design.wilson(*base.tally)[1] if base.tally.n else 1.0
        found.text = f"it did not come up again in {base.tally.n} rollouts (at most {high:.1%}): cannot tell"
    return base


def _faulty(base: Rollouts) -> Count:
    inverse = base._replace(faults=~base.faults)
    return inverse.clean().tally


def censored_rate(claim: str, arm: Rollouts) -> Report:
    """The rate of an arm, with worst-case bounds where rollouts are missing."""
    if not arm.missing:
        return design.rate(claim, *arm.tally, runs=arm.runs)
    return design.censored(claim, *arm.tally, arm.missing, runs=arm.runs)


# ---- one change, two changes -----------------------------------------------------------------------------------------


def _compare(
    found: Finding, test: str, about: Sequence[str], arm: Rollouts, base: Rollouts, against: str = "as it was"
) -> Line:
    """The change of the rate that a change makes; a fault of the harness takes a rollout out of both sides."""
    made, arm = len(arm.outcomes), arm.clean()
    if not len(arm.outcomes):
        raise NotRun(f"in all {made} rollouts with {' and '.join(about)} changed the harness failed")
    if arm.tally.n == 0:
        raise NotRun(f"no rollout with {' and '.join(about)} changed ended")
    claim = f"{found.case.behaviour}: without {' and '.join(about)}, against {against}"
    report = design.difference(claim, arm.tally, base.tally, runs=(*arm.runs, *base.runs))
    p = design.p_value(arm.tally, base.tally)
    confound = ""
    if arm.missing or base.missing:
        up = Count(arm.tally.hits + arm.missing, arm.tally.n + arm.missing)
        down = Count(arm.tally.hits, arm.tally.n + arm.missing)
        low = Count(base.tally.hits, base.tally.n + base.missing)
        high = Count(base.tally.hits + base.missing, base.tally.n + base.missing)
        worst = design.newcombe(up, low)[1] if report.estimate < 0 else design.newcombe(down, high)[0]
        confound = "holds whatever the missing rollouts were" if worst * report.estimate > 0 else "censoring"
    return Line(test, tuple(about), report, p, "open", confound, (arm.tally, base.tally))


def _placebo(found: Finding, ledger: Ledger, base: Rollouts) -> None:
    case = found.case
    if not case.placebo:
        found.caveats.append("no placebo change was tried: any edit at all might have moved the rate")
        return
    line = _compare(found, "placebo", (case.placebo,), ledger.take({Arm((case.placebo,)): case.n})[0], base)
    if line.p < 0.05:
        found.caveats.append("the placebo moved the rate too: changes are compared with it and not with the run")
    found.lines.append(line._replace(reads="control"))


def _yardstick(found: Finding, ledger: Ledger, base: Rollouts) -> Rollouts:
    """What a change is compared with: the run as it was, or the placebo where that moved the rate."""
    placebo = next((x for x in found.lines if x.test == "placebo"), None)
    if placebo is None or placebo.p >= 0.05:
        return base
    return ledger.arms[Arm((found.case.placebo,))].clean()


def _singles(found: Finding, ledger: Ledger, base: Rollouts) -> None:
    case, against = found.case, _yardstick(found, ledger, base)
    arms = ledger.take({Arm((h.name,)): case.n for h in case.hypotheses})
    lines = [_compare(found, "single", (h.name,), a, against) for h, a in zip(case.hypotheses, arms, strict=True)]
    corrected = design.holm([line.p for line in lines])
    for hypothesis, line, p in zip(case.hypotheses, lines, corrected, strict=True):
        predicted = line.report.estimate * hypothesis.predicts > 0
        reads: Reading = "open" if p >= ALPHA_SINGLES else "for" if predicted else "against"
        found.lines.append(line._replace(p=p, reads="open" if line.confound == "censoring" else reads))


def _pairs(found: Finding, ledger: Ledger, base: Rollouts) -> None:
    """Pairs among what did nothing alone; a member must make a difference to the other, else it only came along."""
    case, against = found.case, _yardstick(found, ledger, base)
    idle = [x.about[0] for x in found.lines if x.test == "single" and x.reads == "open"]
    every = list(combinations(sorted(idle), 2))
    pairs = every[:MOST_PAIRS]
    if not pairs:
        return
    if len(every) > len(pairs):
        found.caveats.append(f"{len(every) - len(pairs)} of {len(every)} pairs were not tried: declare fewer causes")
    arms = ledger.take({Arm(pair): case.n for pair in pairs})
    signs = {h.name: h.predicts for h in case.hypotheses}
    lines = [_compare(found, "pair", pair, arm, against) for pair, arm in zip(pairs, arms, strict=True)]
    corrected = design.holm([line.p for line in lines])
    for line, p in zip(lines, corrected, strict=True):
        alone = [ledger.arms[Arm((name,))].clean().tally for name in line.about]
        assert line.counts is not None
        apart = all(design.p_value(line.counts[0], single) < 0.05 for single in alone)
        predicted = all(line.report.estimate * signs[name] > 0 for name in line.about)
        holds = p < ALPHA_PAIRS and apart and predicted and line.confound != "censoring"
        found.lines.append(line._replace(p=p, reads="for" if holds else "open"))


def _together(found: Finding, ledger: Ledger, base: Rollouts) -> None:
    """Pairs among what moved the rate alone, the same way: what taking away the second does beyond the first.

    Both are needed where that is nothing worth half of what the first did, whichever of them comes first.
    """
    single = {x.about[0]: x for x in found.lines if x.test == "single" and x.reads == "for"}
    signs = {h.name: h.predicts for h in found.case.hypotheses}
    room = MOST_PAIRS - sum(x.test == "pair" for x in found.lines)
    pairs = [(a, b) for a, b in combinations(sorted(single), 2) if signs[a] == signs[b]][: max(room, 0)]
    arms = ledger.take({Arm(pair): found.case.n for pair in pairs})
    for pair, arm in zip(pairs, arms, strict=True):
        lines = [
            _compare(found, "together", pair, arm, ledger.arms[Arm((name,))].clean(), f"without {name} alone")
            for name in pair
        ]
        more = all(x.p < 0.05 and x.report.estimate * signs[pair[0]] > 0 for x in lines)
        halves = [abs(single[name].report.estimate) / 2 for name in pair]
        none = all(-half < x.report.low and x.report.high < half for x, half in zip(lines, halves, strict=True))
        how = "each does something of its own" if more else "both are needed" if none else UNSURE
        least = min(lines, key=lambda x: abs(x.report.estimate))
        found.lines.append(least._replace(reads="control", confound=how))


def _said(found: Finding) -> str:
    """What brings the behaviour about and what holds it back, and how causes that were tried together combine."""
    signs = {h.name: h.predicts for h in found.case.hypotheses}
    lines = {(x.test, x.about): x for x in found.lines if x.reads in ("for", "against") or x.test == "together"}
    parts = []
    for sign, verb in ((-1, "caused by"), (1, "held back by")):
        both = {
            about: x.confound for (test, about), x in lines.items() if test == "together" and signs[about[0]] == sign
        }
        told = [
            about[0]
            for (test, about), x in lines.items()
            if test == "single" and x.reads == "for" and signs[about[0]] == sign and about[0] not in sum(both, ())
        ]
        told = [f"{' and '.join(told)} (not tried together)"] if len(told) > 1 else told
        told += [f"{' and '.join(pair)} ({how})" for pair, how in both.items()]
        either = [about for test, about in lines if test == "pair" and signs[about[0]] == sign]
        told += [f"{' or '.join(pair)} (either is enough)" for pair in either]
        parts += [f"{verb} {'; '.join(told)}"] if told else []
    for (test, about), x in lines.items():
        if test == "single" and x.reads == "against":
            verb = "held back by" if x.report.estimate > 0 else "caused by"
            parts.append(f"{verb} {about[0]}, against its prediction")
    return "; ".join(parts)


def _settle(found: Finding, ledger: Ledger, base: Rollouts) -> None:
    """From the lines to causes, chances and a verdict in words."""
    case, lines = found.case, found.lines
    for name in (h.name for h in case.hypotheses):
        if any(name in x.about and x.reads == "for" for x in lines):
            found.causes = (*found.causes, name)
    found.chances = chances(case, lines)
    tests = [x for x in lines if x.test in ("single", "pair")]
    if found.causes:
        found.kind, found.text = "causes", _said(found)
        return
    if not tests:
        found.text = "nothing was put to the test: cannot tell"
        return
    if any(x.confound == "censoring" and x.p < ALPHA_SINGLES for x in tests):
        found.text = "too many rollouts are missing: cannot tell"
        return
    wide = max((x.report.high - x.report.low) / 2 for x in tests if x.test == "single")
    if wide > 0.2:
        found.text = f"differences are known to {wide:.2f} only: cannot tell"
        return
    if not (made := found.comparisons()).tested:
        found.text = made.verdict("")
        return
    said = ["none of the declared causes" if any(x.test == "pair" for x in tests) else "no declared cause alone"]
    said += [against] if (against := _said(found)) else []
    found.kind, found.text = "none", f"{'; '.join(said)}, as far as differences of {wide:.2f} are seen"


# ---- rewinding, doses, classes of sentences --------------------------------------------------------------------------


def _rewound(found: Finding, ledger: Ledger, base: Rollouts) -> None:
    """score(i) = P(behaviour | units up to i) - P(behaviour | units before i); neighbours share their rollouts."""
    case = found.case
    places = range(1, len(case.units) + 1)  # after no unit is the run as it was
    arms = [base, *ledger.take({Arm(place=i): case.k for i in places})]
    counts = [arm.clean().tally for arm in arms]
    steps = [(i, counts[i + 1], counts[i]) for i in range(len(case.units)) if counts[i].n and counts[i + 1].n]
    corrected = design.holm([design.p_value(after, before) for _, after, before in steps])
    for (i, after, before), p in zip(steps, corrected, strict=True):
        claim = f"{case.behaviour}: after unit {i} ({_short(case.units[i])}), against before it"
        runs = (*arms[i + 1].runs, *arms[i].runs)
        report = design.difference(claim, after, before, runs=runs)
        found.lines.append(Line("unit", (f"{i}: {_short(case.units[i])}",), report, p, "for" if p < 0.05 else "open"))


def _swept(found: Finding, ledger: Ledger, base: Rollouts) -> None:
    case = found.case
    arms = ledger.take({Arm(dose=d): case.per_dose for d in case.doses})
    for d, arm in zip(case.doses, arms, strict=True):
        if arm.tally.n:
            found.lines.append(
                Line("dose", (f"{d:g}",), censored_rate(f"{case.behaviour} at {d:g}", arm), 1.0, "control")
            )
    counts = [(d, *arm.tally) for d, arm in zip(case.doses, arms, strict=True) if arm.tally.n]
    levels, hits, n = zip(*counts, strict=True)
    try:
        found.dose = doses.dose(f"{case.behaviour}: slope in the dose", levels, hits, n)
    except BadInput as error:
        found.caveats.append(error.message)
        return
    p = found.dose.trend.p
    found.lines.append(Line("dose slope", (), found.dose.slope, p, "for" if p < 0.05 else "open"))
    if any(arm.missing for arm in arms):
        found.caveats.append("rollouts are missing at some doses: the bounds at each dose hold, the slope need not")


def _avoided(found: Finding, ledger: Ledger, base: Rollouts) -> None:
    """Repeated resampling of a class, beside a placebo class that is rejected as often."""
    case = found.case
    assert case.classes is not None
    arms = ledger.take({Arm(avoid=name): case.n for name in case.classes})
    for name, arm, reads in zip(case.classes, arms, ("open", "control"), strict=True):
        claim = f"{case.behaviour}: as it was, less where {name} is never said"
        report = design.difference(claim, base.tally, arm.clean().tally, runs=arm.runs)
        p = design.p_value(base.tally, arm.clean().tally)
        moved: Reading = "control" if reads == "control" else "for" if p < 0.05 and report.estimate > 0 else "open"
        found.lines.append(Line("resampling", (name,), report, p, moved))


def _short(text: str, most: int = 40) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"

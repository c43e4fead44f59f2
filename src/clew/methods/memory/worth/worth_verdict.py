"""From pairs of forks to what items are worth: effects with intervals, p-values over all of them, verdicts.

``worth_audit.py`` calls ``judged`` with what became of the forks. The unit is the run: forks of one run hang together,
so each run counts once, with the mean of its pairs. A verdict needs a test that holds over all subjects of the audit;
"no effect shown" needs the whole interval within the margins; everything else is "cannot tell", with the number of runs
that it would take to know. Where every fork succeeded, or every fork failed, and no run shows that the judge can say
otherwise, nothing was tested. Nothing here runs anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.errors import need
from clew.core.records import Report
from clew.methods.compare import design
from clew.methods.compare.design import F64

Verdict = Literal["helpful", "harmful", "redundant", "no effect shown", "cannot tell"]
Measure = Literal["success", "turns", "tokens"]
Kind = Literal["item", "copies", "all"]
ALPHA, POWER = 0.05, 0.8  # chance of one false call among all subjects; of seeing an effect as large as the estimate
SUCCESS, COSTS = 0.8, 0.2  # shares of that chance for tests of success, and for those of turns or tokens
MARGIN, COST = 0.1, 0.1  # of success; of turns and tokens, as a share of those without the item
FEWEST = 8  # runs below which turns and tokens decide nothing
MISSING = 0.1  # share of pairs without a verdict of the judge above which nothing is decided


class Subject(NamedTuple):
    """What is left out: one item, near copies together, or everything that a memory gave."""

    kind: Kind
    items: tuple[str, ...]


class Pair(NamedTuple):
    """Two forks of one run under one seed. Each side: success (NaN: not judged), turns, tokens."""

    run: str
    present: tuple[float, float, float]
    without: tuple[float, float, float]


class Worth(NamedTuple):
    """What a subject is worth: each Report is of forks with it less forks without it.

    tokens: None where none were counted. p: of success, corrected for all tests of the audit; p_cost: that turns or
    tokens change by no more than the margin. more: about how many further runs would decide; None where decided, or
    where no number of runs is foreseen. missing: pairs without a verdict of the judge.
    """

    subject: Subject
    verdict: Verdict
    why: str
    success: Report
    turns: Report
    tokens: Report | None
    p: float
    p_cost: float
    more: int | None
    pairs: int
    missing: int
    shares: tuple[float, float]  # of success, with it and without
    base: tuple[float, float]  # turns and tokens without it
    checks: Comparisons  # the pairs, none of which could differ where success is the same in all there is


def judged(
    pairs: Mapping[Subject, Sequence[Pair]],
    names: Mapping[Subject, str],
    *,
    margin: float = MARGIN,
    cost: float = COST,
    alpha: float = ALPHA,
    kept: Mapping[str, Any] | None = None,
    fallible: bool = False,
) -> list[Worth]:
    """Verdicts on all subjects of an audit together; one without a judged pair is left out.

    Args:
        names: what each is called in its claims.
        kept: ``caveats`` of every Report.
        fallible: runs beside these forks show that the judge gives success to some and not to others.
    """
    seen = {side[0] for these in pairs.values() for pair in _judged(these) for side in (pair.present, pair.without)}
    fallible |= len(seen) > 1
    measured = [_measured(one, these, names[one], dict(kept or {})) for one, these in pairs.items() if _judged(these)]
    success = design.holm_discrete([it.p_success for it in measured], [design.attainable(it.nets) for it in measured])
    costs = design.holm([_cost_p(it, cost) for it in measured])
    return _with_copies(
        [
            _called(it, min(p / SUCCESS, 1.0), min(q / COSTS, 1.0), len(measured), margin, cost, alpha, fallible)
            for it, p, q in zip(measured, success, costs, strict=True)
        ]
    )


class _Measured(NamedTuple):
    subject: Subject
    reports: dict[Measure, Report]
    by_run: dict[Measure, F64]  # [runs], with less without
    nets: list[int]  # of each run: pairs that are better with it, less those that are worse
    p_success: float
    pairs: int
    missing: int
    shares: tuple[float, float]
    base: tuple[float, float]

    @property
    def cost(self) -> Measure:
        """What an item costs is told in tokens where they were counted, else in turns."""
        return "tokens" if self.base[1] > 0 else "turns"

    @property
    def scale(self) -> float:
        return self.base[1] if self.cost == "tokens" else self.base[0]


def _judged(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if not math.isnan(pair.present[0] + pair.without[0])]


def _measured(subject: Subject, pairs: Sequence[Pair], name: str, kept: dict[str, Any]) -> _Measured:
    good = _judged(pairs)
    runs = list(dict.fromkeys(pair.run for pair in good))
    place = {run: i for i, run in enumerate(runs)}
    at = np.array([place[pair.run] for pair in good])
    present, without = (np.array([getattr(pair, side) for pair in good], float) for side in ("present", "without"))
    count = np.bincount(at, minlength=len(runs))
    by_run: dict[Measure, F64] = {}
    names: tuple[Measure, ...] = ("success", "turns", "tokens")
    for column, measure in enumerate(names):
        by_run[measure] = np.bincount(at, present[:, column] - without[:, column], len(runs)) / count
    nets = np.rint(by_run["success"] * count).astype(int).tolist()
    base = tuple(float((np.bincount(at, without[:, c], len(runs)) / count).mean()) for c in (1, 2))
    p = design.sign_flips(nets)
    said = f"{len(good)} pairs of forks of {len(runs)} runs, same place and seed"
    kept = {**kept, "runs": tuple(runs)}
    reports: dict[Measure, Report] = {}
    for measure in names:
        claim = f"{measure} with {name} less without"
        if measure == "success":
            text = f"{said}; exact sign flips over runs, p={p:.2g}; Bonett and Price's interval"
            reports[measure] = design.paired(claim, by_run[measure], design=text, **kept)
        elif len(runs) > 1:
            one = design.student(claim, by_run[measure], f"{said}; Student's t over runs")
            reports[measure] = replace(one, **kept)
    shares = (float(present[:, 0].mean()), float(without[:, 0].mean()))
    return _Measured(subject, reports, by_run, nets, p, len(good), len(pairs) - len(good), shares, (base[0], base[1]))


def _cost_p(it: _Measured, margin: float) -> float:
    """Two-sided p that the change of cost is within the margin (Student's t); no smaller than flips of signs allow."""
    values = it.by_run[it.cost]
    beyond = abs(float(values.mean())) - margin * it.scale
    if len(values) < FEWEST or beyond <= 0:
        return 1.0
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    least = 2.0 ** (1 - len(values))
    if error == 0:
        return least
    return max(2 * float(need("scipy.stats", "stats").t.sf(beyond / error, len(values) - 1)), least)


def _checks(it: _Measured, margin: float, fallible: bool) -> Comparisons:
    how = "succeeded" if it.shares[0] else "failed"
    why = f"every fork {how}, with it and without, and no run shows that the judge can say otherwise"
    return Comparisons("pairs of forks", it.pairs, it.pairs if fallible else 0, margin, "of success", why)


def _called(
    it: _Measured, p: float, p_cost: float, tests: int, margin: float, cost: float, alpha: float, fallible: bool
) -> Worth:
    success, turns = it.reports["success"], it.reports.get("turns")
    told = it.reports.get(it.cost)
    even = -margin <= success.low and success.high <= margin
    share = float(it.by_run[it.cost].mean()) / it.scale if it.scale else 0.0
    saved = f"{abs(share):.0%} {'more' if share > 0 else 'fewer'} {it.cost}"
    verdict: Verdict = "cannot tell"
    checks = _checks(it, margin, fallible)
    if not checks.tested:
        why = checks.verdict("")
    elif it.missing > MISSING * (it.pairs + it.missing):
        why = f"{it.missing} of {it.pairs + it.missing} pairs were not judged"
    elif p <= alpha:
        verdict, why = ("helpful", "success rises") if success.estimate > 0 else ("harmful", "success falls")
    elif not even:
        why = f"success is known to within {success.low:+.2f} and {success.high:+.2f} only"
    elif p_cost <= alpha and -margin / 2 <= success.low and success.high <= margin / 2:
        verdict, why = ("harmful", saved) if share > 0 else ("helpful", saved)
        why += ", and success does not change"
    elif p_cost <= alpha:
        why = f"{saved}, and it is not known whether success changes by less than {margin / 2:g}"
    elif told is None or max(abs(told.low), abs(told.high)) > cost * it.scale:
        why = f"success does not change, {it.cost} are not known well enough"
    else:
        verdict, why = "no effect shown", f"success within {margin:g}, {it.cost} within {cost:.0%}"
    half = even and p_cost <= alpha  # cost would decide if success were known better
    more = _more(it, tests, margin / 2 if half else margin, cost, alpha, even and not half)
    turns = turns or _lone(it, "turns")
    tokens = (it.reports.get("tokens") or _lone(it, "tokens")) if it.base[1] > 0 else None
    return Worth(
        it.subject,
        verdict,
        why,
        success,
        turns,
        tokens,
        p,
        p_cost,
        more if verdict == "cannot tell" and checks.tested else None,
        it.pairs,
        it.missing,
        it.shares,
        it.base,
        checks,
    )


def _lone(it: _Measured, measure: Measure) -> Report:
    """A Report on a measure of one run: its interval is not known, so it is as wide as what is measured."""
    value, base = float(it.by_run[measure].mean()), it.base[0] if measure == "turns" else it.base[1]
    reach = max(base, abs(value))
    claim = it.reports["success"].claim.replace("success", measure, 1)
    one = Report(claim=claim, estimate=value, low=value - reach, high=value + reach, n=1, design="one run, no interval")
    return replace(one, runs=it.reports["success"].runs, caveats=it.reports["success"].caveats)


def _more(it: _Measured, tests: int, margin: float, cost: float, alpha: float, even: bool) -> int | None:
    """About how many further runs would decide, of cost where success is ``even``, else of success.

    Those that show an effect as large as the estimate with a chance of 80 %, at the level that Bonferroni's correction
    asks, or those that bring the interval within the margin, whichever are fewer. None where neither is foreseen.
    """
    measure, room = (it.cost, cost * it.scale) if even else ("success", margin)
    values, n = it.by_run[measure], len(it.by_run[measure])
    middle, z = abs(float(values.mean())), NormalDist().inv_cdf
    # Half a pair that differs is added where success is asked for: no difference seen is not none.
    spread = float(((values - values.mean()) ** 2).sum()) + (0.5 if measure == "success" else 0.0)
    variance = spread / (n + 1)
    wanted = []
    beyond = middle - room if even else middle
    if beyond > 0:
        part = alpha * (COSTS if even else SUCCESS) / tests
        wanted.append(variance * ((z(1 - part / 2) + z(POWER)) / beyond) ** 2)
    if middle < room:
        wanted.append(variance * ((z(0.975) + z((1 + POWER) / 2)) / (room - middle)) ** 2)
    if not wanted:
        return None
    return max(math.ceil(min(wanted)), FEWEST if even else 1, n + 1) - n


def _with_copies(found: list[Worth]) -> list[Worth]:
    """Items that do nothing alone, where they have copies: what they do is what all of them do together."""
    together = [it for it in found if it.subject.kind == "copies"]
    out = []
    for it in found:
        all_of = next((one for one in together if it.subject.items[0] in one.subject.items), None)
        if it.subject.kind == "item" and it.verdict == "no effect shown" and all_of is not None:
            others = " and ".join(item for item in all_of.subject.items if item != it.subject.items[0])
            alone = f"nothing changes without it alone; without {others} too"
            if all_of.verdict == "helpful":
                it = it._replace(verdict="redundant", why=f"{alone} success or cost gets worse")
            elif all_of.verdict == "harmful":
                it = it._replace(verdict="harmful", why=f"{alone} it gets better")
            elif all_of.verdict == "cannot tell":
                it = it._replace(verdict="cannot tell", why=f"{alone} it is not known", more=all_of.more)
        out.append(it)
    return out

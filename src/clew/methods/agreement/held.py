"""A judge held against people's labels: agreement beyond chance, on tasks kept apart, beside rules of one line.

`clew audit judge` prints it. A judge that does not beat "always the same" or a rule on length must be said not
to; a judge whose verdicts are shuffled must come out at a kappa of about 0, which is computed each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput
from clew.core.records import Report
from clew.methods.agreement.rated import Rated, Scale, categories
from clew.methods.agreement.raters import ABSENT, F64, I64, alpha, by_cluster, distances, kappa

RESAMPLES = 2000
SHUFFLES = 500
LEAST, FEW = 10, 5  # things and tasks in a part below which a caveat says that they are few


class Estimate(NamedTuple):
    """A number with its 95 % percentile interval over tasks; None where it is not defined."""

    estimate: float | None
    low: float | None = None
    high: float | None = None


class Part(NamedTuple):
    """Agreement on some of the things: the share on which both say the same; of an ordered scale one less the squared
    distance, the largest possible counting 1. base_rate: what saying always the same reaches at best. judged: share of
    each category in the judge's verdicts."""

    n: int
    tasks: int
    base_rate: float
    judged: tuple[float, ...]
    agreement: Estimate
    kappa: Estimate


class Rule(NamedTuple):
    """A rule of one line, made on the half to tune on: the longer the better, or the shorter."""

    name: str
    agreement: Estimate
    kappa: Estimate


class Held(NamedTuple):
    """A judge against people.

    tied, undecided, unjudged: things left out, on which people disagree evenly, of which the judge cannot say, and of
    which it said nothing. people: alpha among those who rated the same things; together: with the judge as one more of
    them. beats: kappa of the judge less that of the best rule (chosen on the half to tune on), on the half kept apart;
    beyond: agreement less that of saying always the same. control: kappa of shuffled verdicts, mean and the range of
    95 %. apart: of the half to tune on, where judge and people disagree.
    """

    judge: str
    scale: str
    authors: tuple[str, ...]
    tied: int
    undecided: int
    unjudged: int
    people: Estimate
    together: Estimate
    parts: dict[str, Part]
    kinds: dict[str, Part]
    rules: tuple[Rule, ...]
    beats: Estimate
    best: str
    beyond: Estimate
    control: Estimate
    apart: tuple[str, ...]
    caveats: tuple[str, ...]
    report: Report

    @property
    def comparisons(self) -> Comparisons:
        """The judge's verdicts against people's on the tasks kept apart; of fewer than ``FEW`` tasks none can tell."""
        kept = self.parts.get("kept apart")
        n, tasks = (kept.n, kept.tasks) if kept is not None else (0, 0)
        could = n if tasks >= FEW and kept is not None and kept.base_rate < 1 else 0
        why = f"{tasks} tasks are kept apart, and {FEW} are needed"
        if tasks >= FEW:
            why = "people call all work of the tasks kept apart the same"
        return Comparisons("verdicts on tasks kept apart, against people's,", n, could, why_not=why)

    @property
    def verdict(self) -> str:
        """In one sentence whether the judge is worth more than a rule of one line."""
        if not self.comparisons.tested:
            return f"Whether the judge beats a rule of one line was {self.comparisons.verdict('')}."
        if self.beats.low is None or self.beyond.low is None:
            return "Whether the judge beats a rule of one line is not known: the tasks kept apart do not tell."
        lost = [f"{self.best}"] if self.beats.low <= 0 else []
        lost += ["saying always the same"] if self.beyond.low <= 0 else []
        if lost:
            return f"The judge is not shown to beat a rule of one line: {' and '.join(lost)}."
        return f"The judge beats both the best rule on length ({self.best}) and saying always the same."


def held(rated: Sequence[Rated], judge: str, scale: Scale, *, threshold: float = 0.5, seed: int = 0) -> Held:
    """Compare what a judge says with what people say.

    Raises:
        BadInput: nothing is labelled or judged, all labels are of one category, or all are of one task.
    """
    agreed = [one for one in rated if one.consensus is not None]
    told = [one for one in agreed if one.value is not None]
    _check(rated, agreed, told, judge, scale)
    people = np.array([one.consensus for one in told], dtype=np.int64)
    said = np.array(categories([float(one.value or 0) for one in told], scale, threshold), dtype=np.int64)
    tasks = np.unique([one.task for one in told], return_inverse=True)[1]
    tune = np.array([one.tune for one in told], dtype=bool)
    weight = by_cluster(tasks, RESAMPLES, seed)
    pair = _Pair(people, said, tasks, weight, scale)
    parts = {"all": pair.part(np.ones(len(told), bool)), "to tune on": pair.part(tune), "kept apart": pair.part(~tune)}
    kinds = np.array([one.kind for one in told])
    every = sorted(set(kinds.tolist()))
    by_kind = {kind: pair.part(kinds == kind) for kind in every} if len(every) > 1 else {}
    rules, best = _rules(told, pair, tune)
    control = _shuffled(pair, seed)
    authors = tuple(sorted({by for one in rated for by in one.people}))
    caveats = _caveats(parts, pair, tune, told, scale)
    name, kept = ("kept apart", parts["kept apart"])
    if kept is None or kept.kappa.low is None:
        name, kept = "all", parts["all"]
    report = _report(judge, scale, name, kept, told, caveats)
    apart = tuple(one.place for one, a, b, t in zip(told, people, said, tune, strict=True) if t and a != b)
    alphas = _alphas(rated, told, said, authors, scale, seed)
    found = {name: part for name, part in parts.items() if part is not None}
    different = {kind: part for kind, part in by_kind.items() if part is not None}
    beats, beyond = pair.beats(rules.get(best), ~tune)
    silent = sum(one.undecided for one in agreed)
    return Held(
        judge, scale.name, authors, len(rated) - len(agreed), silent, len(agreed) - len(told) - silent, *alphas,
        found, different,
        tuple(Rule(rule, pair.agreement(said, ~tune), pair.kappa(said, ~tune)) for rule, said in rules.items()),
        beats, best, beyond, control, apart, caveats, report,
    )  # fmt: skip


def _check(rated: Sequence[Rated], agreed: Sequence[Rated], told: Sequence[Rated], judge: str, scale: Scale) -> None:
    if not rated:
        what = "no verdict" if scale.name == "verdict" else "no stars"
        raise BadInput(f"{what} by hand on these runs", remedy="Label some: clew label RUN --verdict good --stars 4.")
    if not agreed:
        raise BadInput(f"people disagree evenly on all {len(rated)}", remedy="Have one more person label them.")
    if not told:
        remedy = "Name one that is: `clew show RUN` prints what methods say of a run, as in: grades: reward 1."
        raise BadInput(f"none of the {len(agreed)} labelled things has a value of {judge!r}", remedy=remedy)
    if len({one.consensus for one in told}) < 2:
        word = scale.words[told[0].consensus or 0]
        remedy = "Label some that are not: agreement beyond chance needs both kinds."
        raise BadInput(f"all {len(told)} labelled things are called {word}", remedy=remedy)
    if len({one.task for one in told}) < 2:
        raise BadInput(
            "all labels are of one task", remedy="Label runs of other tasks too: nothing is known of others."
        )


class _Pair:
    """People's categories and a judge's, with the resamples that all numbers share."""

    def __init__(self, people: I64, said: I64, tasks: I64, weight: F64, scale: Scale) -> None:
        self.people, self.said, self.tasks, self.weight, self.scale = people, said, tasks, weight, scale
        self.k = len(scale.words)
        far = distances(self.k, scale.metric)
        self.credit = 1 - far / far.max()  # of two categories, for agreement

    def part(self, mask: np.ndarray) -> Part | None:
        """Agreement on the things of a mask; None where there are none."""
        n = int(mask.sum())
        if not n:
            return None
        judged = np.bincount(self.said[mask], minlength=self.k) / n
        tasks = len(np.unique(self.tasks[mask]))
        shares = tuple(float(x) for x in judged)
        rate = float(self.constant(mask)[1])
        return Part(n, tasks, rate, shares, self.agreement(self.said, mask), self.kappa(self.said, mask))

    def kappa(self, said: I64, mask: np.ndarray) -> Estimate:
        """Kappa of some verdicts with people, on the things of a mask."""
        whole, drawn = self._kappas(said, mask)
        return _interval(whole, drawn)

    def _kappas(self, said: I64, mask: np.ndarray) -> tuple[float, F64]:
        a, b, how = self.people[mask], said[mask], (self.k, self.scale.metric)
        return float(kappa(a, b, *how)[0]) if len(a) else np.nan, kappa(a, b, *how, self.weight[:, mask])

    def constant(self, mask: np.ndarray) -> tuple[int, float]:
        """The category that, always said, agrees most with people, and how much."""
        shares = np.bincount(self.people[mask], minlength=self.k) / max(int(mask.sum()), 1)
        reached = self.credit @ shares
        return int(reached.argmax()), float(reached.max())

    def agreement(self, said: I64, mask: np.ndarray) -> Estimate:
        """How much of the things both say the same of, or nearly."""
        return _interval(*self._same(said, mask))

    def _same(self, said: I64, mask: np.ndarray) -> tuple[float, F64]:
        w, hits = self.weight[:, mask], self.credit[self.people[mask], said[mask]]
        total = w.sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = np.where(total > 0, (w @ hits) / np.where(total > 0, total, 1), np.nan)
        return float(hits.mean()) if len(hits) else np.nan, drawn

    def beats(self, rule: I64 | None, mask: np.ndarray) -> tuple[Estimate, Estimate]:
        """How much more the judge reaches than a rule (kappa), and than saying always the same (agreement), which is
        chosen outside the mask."""
        usual = np.full_like(self.said, self.constant(~mask if (~mask).any() else mask)[0])
        (mine, drawn), (other, others) = (self._same(said, mask) for said in (self.said, usual))
        beyond = _interval(mine - other, drawn - others)
        if rule is None:
            return Estimate(None), beyond
        (mine, drawn), (other, others) = self._kappas(self.said, mask), self._kappas(rule, mask)
        return _interval(mine - other, drawn - others), beyond


def _interval(whole: float, drawn: F64) -> Estimate:
    kept = drawn[np.isfinite(drawn)]
    if not np.isfinite(whole) or len(kept) < len(drawn) / 2:
        return Estimate(float(whole) if np.isfinite(whole) else None)
    low, high = np.percentile(kept, [2.5, 97.5])
    return Estimate(float(whole), min(float(low), float(whole)), max(float(high), float(whole)))


def _rules(told: Sequence[Rated], pair: _Pair, tune: np.ndarray) -> tuple[dict[str, I64], str]:
    """What rules on length say of everything, and the best of them by kappa on the half to tune on.

    A rule orders things by a length, and cuts where people's categories are as frequent as on the half to tune on.
    """
    learnt = tune if tune.any() else np.ones(len(told), bool)
    shares = np.cumsum(np.bincount(pair.people[learnt], minlength=pair.k))[:-1] / learnt.sum()
    rules: dict[str, I64] = {}
    for name in told[0].lengths:
        values = np.array([one.lengths[name] for one in told])
        for word, sign in (("more", 1.0), ("fewer", -1.0)):
            cuts = np.quantile(sign * values[learnt], shares, method="higher")
            rules[f"{word} {name} is better"] = (sign * values[:, None] >= cuts[None]).sum(1).astype(np.int64)
    reached = {name: pair._kappas(said, learnt)[0] for name, said in rules.items()}
    return rules, max(reached, key=lambda name: (np.nan_to_num(reached[name], nan=-2.0), name))


def _shuffled(pair: _Pair, seed: int) -> Estimate:
    """Kappa where the judge's verdicts are dealt out at random: mean, and the range of 95 % of the deals."""
    rng = np.random.default_rng(seed + 1)
    drawn = np.array(
        [kappa(pair.people, rng.permutation(pair.said), pair.k, pair.scale.metric)[0] for _ in range(SHUFFLES)]
    )
    kept = drawn[np.isfinite(drawn)]
    if not len(kept):
        return Estimate(None)
    return Estimate(float(kept.mean()), *(float(x) for x in np.percentile(kept, [2.5, 97.5])))


def _alphas(
    rated: Sequence[Rated], told: Sequence[Rated], said: I64, authors: Sequence[str], scale: Scale, seed: int
) -> tuple[Estimate, Estimate]:
    """Krippendorff's alpha of the people, and of the people and the judge."""

    def estimate(things: Sequence[Rated], more: I64 | None) -> Estimate:
        table = np.array([[one.people.get(by, ABSENT) for by in authors] for one in things], dtype=np.int64)
        table = table if more is None else np.column_stack([table, more])
        if not ((table != ABSENT).sum(1) > 1).any():
            return Estimate(None)
        k = len(scale.words)
        weight = by_cluster([one.task for one in things], RESAMPLES, seed)
        return _interval(float(alpha(table, k, scale.metric)[0]), alpha(table, k, scale.metric, weight))

    return estimate(rated, None), estimate(told, said)


def _caveats(
    parts: dict[str, Part | None], pair: _Pair, tune: np.ndarray, told: Sequence[Rated], scale: Scale
) -> tuple[str, ...]:
    out = []
    for name, mask in (("to tune on", tune), ("kept apart", ~tune)):
        part = parts[name]
        if part is None:
            out.append(f"no task lies in the half {name}: label runs of more tasks")
        elif len(set(pair.people[mask].tolist())) < 2:
            out.append(f"all labels in the half {name} are of one category: kappa is not defined there")
        elif part.n < LEAST or part.tasks < FEW:
            out.append(f"only {part.n} labelled things of {part.tasks} tasks lie in the half {name}")
    if len(set(pair.said.tolist())) < 2:
        out.append(f"the judge says {scale.words[int(pair.said[0])]} of all {len(told)}: its kappa is 0 by definition")
    return tuple(out)


def _report(
    judge: str, scale: Scale, name: str, part: Part | None, told: Sequence[Rated], caveats: tuple[str, ...]
) -> Report:
    kind = "Cohen's kappa" if scale.name == "verdict" else "weighted kappa, squared distances"
    runs = tuple(dict.fromkeys(one.run for one in told))
    if part is None or part.kappa.estimate is None or part.kappa.low is None or part.kappa.high is None:
        remedy = "Label more runs, of more tasks, some good and some bad."
        raise BadInput(f"{len(told)} labelled things are too few for an interval of kappa", remedy=remedy)
    return Report(
        claim=f"{judge} agrees with people beyond chance ({scale.name})",
        estimate=part.kappa.estimate,
        low=part.kappa.low,
        high=part.kappa.high,
        n=part.n,
        design=f"{kind} on {part.n} labelled things of {part.tasks} tasks ({name}), percentile bootstrap over tasks",
        runs=runs,
        caveats=caveats,
    )

"""The whole audit of some runs: thinking found, arms sampled, probes and controls fitted, one verdict and a saving.

``clew audit early`` and the papers call ``prepare`` (nothing is sampled; inputs are refused), ``Arms.cost``, then
``answer``. It must never sample what the store already holds, and never change a recorded run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from clew.core.errors import BadInput, MissingExtra
from clew.core.keys import value_digest
from clew.core.protocols import Taps
from clew.core.records import Annotation, Report
from clew.harness.fork.continuations import Continuations, Samples, Start
from clew.methods.compare.design import Count
from clew.methods.early import curves, cuts, saving, thinking, valley
from clew.methods.early import linear_probes as probes
from clew.methods.early.branches import Arms, Sizes, Told
from clew.methods.early.fitting import (
    EARLY,
    FIRST,
    PROMPT_PLACES,
    PROMPT_WORDS,
    controls,
    on_states,
    scores_along,
    texts,
)
from clew.methods.early.outcome import Shown, Voted
from clew.methods.early.states import features, offsets
from clew.methods.early.verdict import Verdict, verdict
from clew.models.taps.no_states import no_states
from clew.store import Run

METHOD, PROBE = "early", "early-probe"
F64 = curves.F64
ONE_SIDED = 0.03  # share of the rarer outcome below which nothing can be compared
FEWEST = 16  # prompts


@dataclass(slots=True)
class Answer:
    """What the audit found. Parts that could not be measured are None or empty, and ``notes`` says why."""

    arms: Arms
    curve: curves.Curve | None = None
    dependence: Report | None = None
    own: Report | None = None  # answers to the run's own whole thinking that differ from the record: the control of t
    probes: list[probes.Probe] = field(default_factory=list)
    scores: F64 | None = None  # [runs, places along the thinking], out of fold, of the traces that follow
    scored: list[thinking.Trace] = field(default_factory=list)
    gain: float | None = None  # AUROC of the state at the first thinking token, less that of the prompt's words
    matched: Report | None = None
    valley: valley.Valley | None = None
    saving: saving.Saving | None = None
    cuts: list[cuts.Cut] = field(default_factory=list)
    verdict: Verdict | None = None
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def reports(self) -> dict[str, Report]:
        """What is filed, by the end of its id: that of a place of a curve holds the place, see ``curves.FILED``."""
        at, named = self.arms.sizes.shares, dict[str, Report]()
        found: list[Report | None] = [self.dependence, self.own, self.matched]
        if self.curve is not None:
            for name, row in (("flip", self.curve.flips), ("settled", self.curve.committed or ())):
                named |= {f"{name}-{b:.12g}": report for b, report in zip(at, row, strict=False)}
            found = [self.curve.fixed, *found, self.curve.time]
        found += [probe.auroc for probe in self.probes]
        if self.saving is not None:
            named |= {f"risk-{b:.12g}": report for b, report in zip(at, self.saving.risks, strict=True)}
            found += [self.saving.risk, self.saving.tokens, self.saving.share, self.saving.rate]
        return named | {value_digest([r.claim]).hex()[:8]: r for r in found if r is not None}


def prepare(
    runs: Sequence[Run],
    hands: Continuations,
    outcome: Shown | Voted,
    *,
    until: str = "",
    kind: str = "auto",
    at: int | None = None,
    sizes: Sizes | None = None,
    seed: int = 0,
    prompts: int = 200,
    each: int = 1,
    one_sided: bool = False,
) -> tuple[Arms, dict[str, int]]:
    """Find the thinking and the outcomes of recorded runs, and refuse what cannot be told; nothing is sampled.

    Args:
        prompts, each: at most so many prompts, and runs of each, are sampled from; probes read all runs.
        one_sided: let the outcome be nearly always the same, as where only a saving is asked for.

    Returns:
        The arms, and how many runs were left out, by reason.

    Raises:
        BadInput: no thinking, a one-sided outcome, too few prompts, calls in another model's tokens.
    """
    model = hands.spec.model
    found, left = thinking.traces(runs, model.renderer if model is not None else None, until, kind, at)
    values = outcome.of([one.run for one in found], [one.seq for one in found])
    if missing := sum(value is None for value in values):
        left = {**left, "its outcome cannot be told": missing}
    kept = [(one, value) for one, value in zip(found, values, strict=True) if value is not None]
    by_prompt: dict[str, list[tuple[thinking.Trace, float]]] = {}
    for one, value in kept:
        by_prompt.setdefault(one.prompt, []).append((one, value))
    yes = sum(1 for _, value in kept if value)
    if len(by_prompt) < FEWEST:
        raise BadInput(
            f"{len(by_prompt)} prompts with thinking are too few to say anything",
            remedy=f"Give runs of {FEWEST} prompts at the least; 200 bring intervals of about a tenth.",
        )
    names = list(by_prompt)
    drawn = {names[i] for i in np.random.default_rng(seed).permutation(len(names))[:prompts]}
    used = [pair for name in names if name in drawn for pair in by_prompt[name][:each]]
    rest = [pair for name in names for pair in by_prompt[name][each if name in drawn else 0 :]]
    arms = Arms([one for one, _ in used], [value for _, value in used], hands, sizes or Sizes(), seed, others=rest)
    if not yes:
        raise BadInput(
            f"{outcome.name} holds in none of {len(kept)} runs, so nothing can be said of when it is settled",
            remedy="Name an outcome that some of these runs show, or give runs that show it.",
        )
    rarer = min(yes, len(kept) - yes)
    if not one_sided and rarer < max(2, ONE_SIDED * len(kept)):
        raise BadInput(
            f"{outcome.name} holds in {yes} of {len(kept)} runs, so there is nothing to tell apart",
            remedy="Name an outcome that comes out both ways, give other runs, or ask for the saving alone (--saving).",
        )
    return arms, left


def answer(
    arms: Arms,
    *,
    bound: float = 0.05,
    saving_only: bool = False,
    source: Callable[[Run], str] | None = None,
    probing: bool = True,
    told: Told = None,
    reading: Callable[[int, int], None] = lambda done, total: None,
) -> Answer:
    """Sample what is missing and work everything out.

    Args:
        bound: risk that stopping may carry. source: where a run comes from, for the control of that name.
        probing: fit probes where the model has hidden states. told, reading: progress.

    Raises:
        As ``Continuations.sample``; what was sampled before is kept.
    """
    found = Answer(arms)
    made = arms.sample(saving_only, told)
    if not saving_only:
        _resampled(found, arms.draws(made["resampled"], arms.resumed()))
    if arms.answers:
        forced = arms.draws(made["forced"], arms.forced())
        _stopped(found, forced, bound)
        if not saving_only:
            _swapped(found, made["swapped"], forced)
    elif saving_only:
        what = "earlier calls" if arms.traces[0].kind == "calls" else "a reply that is itself the answer"
        raise BadInput(f"{what} cannot be cut short and answered", remedy="Leave out --saving.")
    if arms.cuts:
        both = [(_count(made["cuts"][a].outcomes), _count(made["cuts"][b].outcomes)) for a, b in arms.around()]
        told_apart = [pair for pair in both if pair[0].n and pair[1].n]
        found.cuts = cuts.classify([a for a, _ in told_apart], [b for _, b in told_apart])
    if probing and not saving_only:
        _probed(found, source, reading)
    if found.curve is not None:
        found.verdict = verdict(found.curve, found.dependence, _best(found))
    elif not saving_only:
        found.verdict = Verdict("cannot tell", "thinking that is resampled says nothing", found.notes[0])
    return found


def _resampled(found: Answer, draws: curves.Draws) -> None:
    """The commitment curve, or a note on why there is none."""
    arms = found.arms
    try:
        found.curve = curves.curve(draws, arms.sizes.shares, arms.seed)
    except BadInput as error:
        found.notes.append(f"no commitment curve: {error.message}. {error.remedy}")
        return
    if found.curve.committed is None:
        found.notes.append(
            f"resampled from the start, outcomes differ in {found.curve.flips[0].estimate:.1%} of pairs: too few "
            "for a commitment curve"
        )


def _count(outcomes: np.ndarray) -> Count:
    return Count(int((outcomes > 0.5).sum()), int(np.isfinite(outcomes).sum()))


def _stopped(found: Answer, forced: curves.Draws, bound: float) -> None:
    arms = found.arms
    kept = np.array([[one.kept(b) for one in arms.traces] for b in arms.sizes.shares])
    if arms.sizes.shares[-1] != 1.0:
        found.notes.append("no saving: the last cut is not the whole thinking, which a saving is compared with")
        return
    names = [one.prompt for one in arms.traces]
    try:
        found.saving = saving.saving(forced, arms.outcomes, arms.sizes.shares, kept, names, bound, arms.seed)
    except BadInput as error:
        found.notes.append(f"no saving: {error.message}")


def _swapped(found: Answer, made: dict[Start, Samples], forced: curves.Draws) -> None:
    """Trace dependence, and its control: the run's own thinking, closed in the same way."""
    arms = found.arms
    own = np.array([np.nan if value is None else value for value in arms.outcomes])
    follows = []
    for (_, donor), start in zip(arms.pairs(), arms.swapped(), strict=True):
        values = made[start].outcomes
        values = values[np.isfinite(values)]
        follows.append(float(np.mean((values > 0.5) == (own[donor] > 0.5))) if len(values) else np.nan)
    try:
        found.dependence = curves.dependence(follows, arms.seed)
    except BadInput as error:
        found.notes.append(f"no trace dependence: {error.message}")
    if arms.sizes.shares[-1] == 1.0:
        differs = np.where(own > 0.5, 1 - forced.rates[-1], forced.rates[-1])
        changed = curves.by_prompt(differs, forced.prompts)
        claim = "answers to the run's own thinking that differ from the record"
        found.own = curves.share_of(claim, changed[np.isfinite(changed)], arms.seed)
        if found.own.low > 0.2:
            found.notes.append(
                f"closing the whole thinking anew changes {found.own.estimate:.0%} of outcomes: forced answers may be "
                "unlike the model's own, or the answer itself is drawn by chance"
            )


def _best(found: Answer) -> Report | None:
    """The AUROC of what tells most before thinking; of several the one with the highest lower end. One that shuffled
    labels reach as well tells nothing."""
    bar = max((probe.bar for probe in found.probes if probe.bar is not None), default=0.0)
    early = [probe.auroc for probe in found.probes if probe.name in EARLY and probe.auroc.estimate > bar]
    return max(early, key=lambda report: report.low) if early else None


def _probed(found: Answer, source: Callable[[Run], str] | None, reading: Callable[[int, int], None]) -> None:
    """Probes and their controls; what cannot be fitted is left out with a note."""
    arms = found.arms
    everything = [*zip(arms.traces, arms.outcomes, strict=True), *arms.others]
    traces, y = [one for one, _ in everything], np.array([bool(value) for _, value in everything])
    prompts = [one.prompt for one in traces]
    sources = None if source is None else [source(one.run) for one in traces]
    try:
        found.probes = controls(texts(traces), y, prompts, sources, arms.seed)
        model = arms.hands.spec.model
        if not isinstance(model, Taps):
            raise no_states(model.ref if model is not None else "this run")
        states = features(model, traces, reading)
    except (BadInput, MissingExtra) as error:
        found.notes.append(f"no probes of hidden states: {error.message}. {error.remedy}")
        return
    found.probes += on_states(states, y, prompts, sources, arms.seed)
    if arms.answers:
        found.scores, found.scored = scores_along(states, y, prompts), traces
    by_name = {probe.name: probe for probe in found.probes}
    words = [by_name[name].auroc.estimate for name in (PROMPT_WORDS, PROMPT_PLACES) if name in by_name]
    found.gain = by_name[FIRST].auroc.estimate - max(words)
    found.matched = probes.matched(by_name[FIRST].scores, y, prompts, arms.seed)
    if found.matched is None:
        found.notes.append(
            "no probe within prompts: fewer than two prompts have runs of both outcomes; record several of each"
        )
    try:
        along = states.along[states.layers[-1]]
        found.valley = valley.valley(along, y, sources, seed=arms.seed)
    except BadInput as error:
        found.notes.append(f"no valley: {error.message}")


def filed(found: Answer, outcome: str) -> list[str]:
    """Keep the reports in the store, and as token values along each run's thinking the rate of the outcome and what a
    probe says of it.

    Returns:
        The reports' ids, the verdict's first.
    """
    arms, reports = found.arms, found.reports
    store, runs = arms.hands.spec.store, tuple(one.run.id for one in arms.traces)
    bound = found.saving.bound if found.saving is not None else 0.0
    asked = [arms.hands.params, outcome, list(runs), str(arms.sizes), arms.seed, bound]
    label = value_digest(asked).hex()[:8]  # Reports are never replaced, so another question has other ids
    if found.verdict is not None and found.curve is not None:
        r = found.curve.fixed
        claim, text = f"{found.verdict.kind}: {outcome}", f"{found.verdict.text}; {r.design}"
        one = Report(
            claim=claim, estimate=r.estimate, low=r.low, high=r.high, n=r.n, design=text, runs=runs,
            caveats=tuple(found.notes),
        )  # fmt: skip
        reports = {"verdict": one} | reports
    ids = [store.put_report(r, f"{METHOD}-{label}-{end}") for end, r in reports.items()]
    store.annotate([*_values(found), *_scores(found)])
    store.commit()
    return ids


def _values(found: Answer) -> list[Annotation]:
    """The rate of the outcome at each cut of each run, on the token before the cut."""
    arms, out = found.arms, list[Annotation]()
    if found.curve is None or not arms.answers:
        return out
    for one in arms.traces:
        if isinstance(one.thought, str):
            continue
        call = one.run.call(one.seq)
        node = one.run.store.node(call.node_out)
        row = np.full(len(node.ids or ()), np.nan, np.float32)
        for share in arms.sizes.shares:
            kept = one.kept(share)
            samples = arms.hands.kept("resampled", one.resumed(kept))
            if samples is not None and np.isfinite(samples.outcomes).any():
                row[max(call.head + one.start + kept - 1, 0)] = np.nanmean(samples.outcomes)
        issued = call.run
        out.append(Annotation("tokens", METHOD, None, issued, one.seq, params=arms.hands.params, values=row))
    return out


def _scores(found: Answer) -> list[Annotation]:
    """What the probes say of each run, on the tokens of its thinking that they read."""
    out = list[Annotation]()
    if found.scores is None:
        return out
    for one, scores in zip(found.scored, found.scores, strict=True):
        call = one.run.call(one.seq)
        row = np.full(len(one.run.store.node(call.node_out).ids or ()), np.nan, np.float32)
        row[call.head + one.start + offsets(one)] = scores
        out.append(Annotation("tokens", PROBE, None, call.run, one.seq, params=found.arms.hands.params, values=row))
    return out

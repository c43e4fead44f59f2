"""What training added: which feature of A, that B lacks or has too, moves a behaviour (specs/E175, sections 3 to 9).

In this order:

1. How often do A and B show the behaviour? Prompts at which it can change are cut into a selection and a test half.
2. Features are ranked by Cohen's d of their activation where the behaviour is about to come.
3. The best of those that A alone has, and of those that both have, are written at several doses (selection half).
4. The best of each part is judged on the test half, beside random directions of its norm, the mean difference, a
   probe's direction, the first principal component of h_A - h_B, the top singular directions of W_A - W_B, another
   feature of its part, and in model B; and beside what needs no state: the prompt's words, and B told to do it.
5. Patches: the state itself, the mean state, and what the crosscoder rebuilds, fed rightly and (as in the released
   code) without scaling.

What comes out may be "nothing" or "cannot tell".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput, check_choice
from clew.core.keys import derive
from clew.core.protocols import Model, Taps
from clew.core.values import F32
from clew.methods.compare import design
from clew.methods.features import directions as other
from clew.methods.features.crosscoder import Crosscoder
from clew.methods.features.diff_verdict import ASIDE, LEAST, Finding, Line, Tried, settle
from clew.methods.features.features import Latents, cohen
from clew.methods.features.steering import Direction, Effect, Trial, Way, written
from clew.methods.features.subjects import I64, Subject
from clew.methods.features.without_features import by_words, told_so
from clew.models.taps import Tap

FEWEST = 20  # prompts in each half


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is tried.

    way: "raise", "remove", or "auto" by the rate of A. most: prompts in each half at most. tried: features of each
    part. doses: multiples of a feature's 95th percentile. random: directions drawn for each part. anyway: try
    directions even where A shows the behaviour no oftener than B.
    """

    way: Literal["auto", "raise", "remove"] = "auto"
    most: int = 100
    tried: int = 6
    doses: tuple[float, ...] = (0.5, 1.0, 2.0)
    random: int = 50
    anyway: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("way", self.way, ("auto", "raise", "remove"))

    def cost(self, prompts: int, single: bool, told: bool = False) -> int:
        """Replies, or runs, at most."""
        half = min(self.most, prompts // 2)
        controls = 2 * self.random + 15 + (6 if single else 0) + told
        return 2 * prompts + half * (2 * self.tried * len(self.doses) + 1) + half * (controls + 1)


@dataclass(frozen=True, slots=True)
class Inside:
    """The crosscoder, its latents, and states at the prompts: ``states`` [prompts, 2, width] at the last token of each
    prompt, ``sample`` [n, 2, width] of the mixture. ``change``: what A's weights write beyond B's, None where that is
    not asked."""

    module: Crosscoder
    latents: Latents
    layer: int
    states: Tensor
    sample: Tensor
    change: other.Change | None = None

    @property
    def code(self) -> Tensor:
        return self.module.code(self.module.scaled(self.states, check=False))

    def feature(self, latent: int) -> Direction:
        """A latent as a direction in A, at its 95th percentile."""
        vector = self.module.direction(latent, 0) * self.latents.high[latent]
        return self.direction(f"feature {latent}", vector, latent)

    def direction(self, name: str, vector: Tensor, latent: int = -1) -> Direction:
        usual = float((self.sample[:, 0] @ vector).mean() / vector.square().sum().clamp(min=1e-12))
        return Direction(name, vector, usual, latent)


def states_at(models: Sequence[Model], ids: Sequence[list[int]], layer: int, batch: int = 64) -> Tensor:
    """States of both models at the last token of each row, [rows, 2, width]."""
    out = []
    for model in models:
        assert isinstance(model, Taps)
        found = []
        for start in range(0, len(ids), batch):
            part = ids[start : start + batch]
            found += model.states(part, [layer], [[len(row) - 1] for row in part])
        out.append(np.stack([state[0, 0] for state in found]))
    return torch.from_numpy(np.stack(out, 1))


def ask(
    subject: Subject,
    inside: Inside,
    plan: Plan,
    behaviour: str,
    aside: I64 | None = None,
    told: Subject | None = None,
) -> Finding:
    """Work through the question.

    Args:
        aside: prompts at which the behaviour must not come: they are tried with the best directions only.
        told: the same prompts with a sentence that asks for the behaviour, which B answers.

    Raises:
        BadInput: too few prompts at which the behaviour could change.
    """
    found = Finding(behaviour)
    mine = np.setdiff1d(np.arange(len(subject.prompts)), np.zeros(0, int) if aside is None else aside)
    first = {who: subject.outcomes(who, "first", mine) for who in "AB"}
    added = _rates(found, first)
    if (untested := _untested(found, first)) and not plan.anyway:
        found.kind, found.text = "cannot tell", untested
        return found
    by_words(found, subject, mine, first["A"], plan.seed)
    if added is False and not plan.anyway:
        settle(found, added)
        return found
    way: Way = plan.way if plan.way != "auto" else "raise" if np.nanmean(first["A"]) <= 0.5 else "remove"
    trial = Trial(subject, inside.layer, way, *_halves(mine, first["A"], way, plan), plan.doses)
    code, shown = inside.code[torch.from_numpy(mine)], torch.from_numpy(first["A"] == 1)
    ranked = _ranked(code, shown, inside.latents)
    for part, members in _parts(inside.latents, ranked, plan.tried).items():
        if not members:
            continue
        cells = trial.grid([inside.feature(j) for j in members])
        found.cells += cells
        best = cells[0]
        found.tried[part] = Tried(part, best, trial.effect(best.direction, best.dose, "test"))  # type: ignore[arg-type]
    for one in found.tried.values():
        if one.test.gain(one.part).low > 0:  # else it cannot pass, whatever random directions do
            _against_random(one, trial, inside, plan)
    _controls(found, trial, inside, plan, mine, shown)
    if told is not None:
        told_so(found, trial, told)
    if subject.single:
        _patches(found, trial, inside)
    if aside is not None and len(aside):
        _aside(found, trial, aside)
    settle(found, added)
    return found


def _rates(found: Finding, first: dict[str, F32]) -> bool | None:
    """How often A and B do it; whether A does it oftener."""
    for who, outcomes in first.items():
        known = outcomes[~np.isnan(outcomes)]
        if not len(known):
            raise BadInput(f"no outcome of model {who} is known", remedy="Choose runs whose task has a judge.")
        found.rates.append(Line(f"rate of {who}", design.rate(found.behaviour, int(known.sum()), len(known))))
    gap = Effect("A", first["A"], first["B"])
    report = gap.report(f"{found.behaviour}: A less B")
    found.rates.append(Line("A less B", report, gap.p))
    return True if report.low > 0 else False if report.high < 0.1 else None


def _untested(found: Finding, first: dict[str, F32]) -> str:
    """Why nothing can be said of what training added, where the rates of A and B could not have told it; else ""."""
    a, b = (float(np.nanmean(first[who])) for who in "AB")
    n = int((~np.isnan(first["A"])).sum())
    why = ""
    if a == b == 0:
        why = f"neither A nor B shows the behaviour ({found.behaviour}) at any of {n} prompts"
    elif 1 - b < LEAST:
        why = f"B shows the behaviour at {b:.0%} of the prompts and A at {a:.0%}, so A had no room to do it oftener"
    return Comparisons("prompts", n, 0, LEAST, why_not=why).verdict("") if why else ""


def _halves(mine: I64, outcomes: F32, way: Way, plan: Plan) -> tuple[I64, I64]:
    """Selection and test prompts: those where the behaviour did not come, or for ``remove`` where it came.

    Raises:
        BadInput: there are too few.
    """
    free = mine[outcomes == (1 if way == "remove" else 0)]
    if len(free) < 2 * FEWEST:
        share = max(len(free), 1) / len(mine)
        raise BadInput(
            f"the behaviour could change at {len(free)} of {len(mine)} prompts, and {2 * FEWEST} are needed",
            remedy=f"Choose about {int(np.ceil(2 * FEWEST / share))} prompts: record more runs with `clew run`.",
        )
    free = np.random.default_rng(derive(plan.seed, "halves")).permutation(free)
    half = min(plan.most, len(free) // 2)
    return np.sort(free[:half]), np.sort(free[half : 2 * half])


def _ranked(code: Tensor, shown: Tensor, latents: Latents) -> Tensor:
    """By how much more a latent is active where the behaviour comes; where it always or never came, than elsewhere."""
    if min(int(shown.sum()), int((~shown).sum())) >= 5:
        return cohen(code, shown)
    return ((code > 0).float().mean(0) - latents.often) * latents.high


def _parts(latents: Latents, ranked: Tensor, most: int) -> dict[str, list[int]]:
    """The best latents that A alone has, and of those that both have."""
    own, theirs = latents.alone(0), latents.alone(1)
    usable = latents.high > 0
    order = ranked.argsort(descending=True).tolist()
    return {
        "exclusive": [j for j in order if own[j] and usable[j]][:most],
        "shared": [j for j in order if not own[j] and not theirs[j] and usable[j]][:most],
    }


def _against_random(one: Tried, trial: Trial, inside: Inside, plan: Plan) -> None:
    like = one.cell.direction.vector
    for i, vector in enumerate(other.at_random(len(like), plan.random, derive(plan.seed, one.part))):
        drawn = inside.direction(f"random {i}", other.matched(vector, like))
        one.random.append(trial.effect(drawn, one.cell.dose, "test"))


def _controls(found: Finding, trial: Trial, inside: Inside, plan: Plan, mine: I64, shown: Tensor) -> None:
    """What else does as much, at the norm of the best direction; and the same vector in B."""
    if not found.tried:
        return
    best = max(found.tried.values(), key=lambda t: t.cell.effect.size)
    like, dose = best.cell.direction.vector, best.cell.dose
    states = inside.states[torch.from_numpy(mine), 0]
    vectors: dict[str, Tensor] = {}
    if min(int(shown.sum()), int((~shown).sum())) >= 5:
        vectors = {"mean difference": other.mean_difference(states, shown), "probe": other.probe(states, shown)}
    else:
        found.caveats.append("the behaviour came nearly always or never in A: no mean difference and no probe")
    vectors["first component of h_A - h_B"] = other.main_difference(inside.sample[:, 0], inside.sample[:, 1])
    vectors |= _changes(found, inside)
    for part, one in found.tried.items():
        same = [c.direction for c in found.cells if (c.direction.latent in _alone(inside)) == (part == "exclusive")]
        rest = [d for d in {d.name: d for d in same}.values() if d.name != one.cell.direction.name]
        if rest:
            pick = rest[derive(plan.seed, "another feature", part) % len(rest)]
            vectors[f"another feature ({part})"] = pick.vector
    for name, vector in vectors.items():
        effect = trial.effect(inside.direction(name, other.matched(vector, like)), dose, "test")
        cosine = float(torch.cosine_similarity(vector, like, dim=0))
        about = f"{written(name, effect.sign)} (cosine {cosine:.2f})"
        found.lines.append(Line(about, effect.report(f"{written(name, effect.sign)}, same norm"), effect.p))
    for one in found.tried.values():
        if one.random:
            sizes, sign = np.array([e.moved for e in one.random]), one.test.sign
            mean = design.bootstrap("random directions", lambda x: x.mean(-1), sizes, unit="directions")
            bar = f"({'99th' if sign > 0 else '1st'} percentile {one.bar * sign:.2f})"
            about = f"{written('random', sign)}, norm of {one.cell.direction.name} {bar}"
            found.lines.append(Line(about, mean))
        theirs = trial.effect(one.cell.direction, one.cell.dose, "test", "B")
        about = f"{one.cell.written} in B ({causal_share(one.test, theirs)})"
        found.lines.append(Line(about, theirs.report("in B"), theirs.p))


def causal_share(ours: Effect, theirs: Effect) -> str:
    """The effect in A as a share of those in A and B; only where B's rate could have moved, and one of them did."""
    total = max(ours.size, 0) + max(theirs.size, 0)
    if theirs.room < LEAST:
        return f"no causal share: B's rate of {float(np.nanmean(theirs.clean)):.2f} could not move so"
    return f"causal share {max(ours.size, 0) / total:.2f}" if total else "no causal share: it moves neither"


def _changes(found: Finding, inside: Inside) -> dict[str, Tensor]:
    """What the weights write that changed, each direction turned towards the mean of h_A - h_B."""
    it = inside.change
    if it is None:
        return {}
    if not it.changed:
        found.caveats.append(
            f"no matrix that writes into the states up to layer {inside.layer} changed ({it.compared} compared): no "
            "direction of the weight difference"
        )
    towards = (inside.sample[:, 0] - inside.sample[:, 1]).mean(0)
    return {
        f"weight change {i}, {share:.0%} of that of {it.changed} matrices": v if float(v @ towards) >= 0 else -v
        for i, (v, share) in enumerate(zip(it.directions, it.shares, strict=True), 1)
    }


def _alone(inside: Inside) -> set[int]:
    return set(inside.latents.alone(0).nonzero().flatten().tolist())


def _patches(found: Finding, trial: Trial, inside: Inside) -> None:
    """States put in place of the last prompt token's, and what of it B gains beyond its mean state (spillover)."""
    states = inside.states[torch.from_numpy(trial.test)]
    made = rebuilt(inside.module, states)
    made["mean"] = inside.module.mean.expand_as(states)
    effects: dict[str, Effect] = {}
    for name, patched in made.items():
        for number, who in enumerate("AB"):
            if who == "B" and name not in ("normalised", "mean"):
                continue
            taps = [(Tap(inside.layer, (-1,), patch=one.tolist()),) for one in patched[:, number]]
            effects[who + name] = effect = trial.taps(name, taps, "test", who)
            found.lines.append(Line(f"patch {name} in {who}", effect.report(f"patch {name} in {who}"), effect.p))
    spill = Effect("spillover", effects["Bnormalised"].arm, effects["Bmean"].arm)
    found.lines.append(Line("spillover to B", spill.report("B rebuilt less B at its mean state"), spill.p))


def rebuilt(module: Crosscoder, states: Tensor) -> dict[str, Tensor]:
    """Patches of states [n, 2, width]: "identity", "normalised" (scaled, rebuilt, scaled back), and "raw", the fault of
    the released code: states that were not scaled go into a crosscoder that was trained on scaled ones."""
    x = module.scaled(states, check=False)
    y = module.rebuilt(x)
    return {
        "identity": module.unscaled(y + (x - y)),
        "normalised": module.unscaled(y),
        "raw": module.rebuilt(states),
    }


def _aside(found: Finding, trial: Trial, aside: I64) -> None:
    """The best directions where the behaviour must not come."""
    beside = Trial(trial.subject, trial.layer, trial.way, aside, aside, trial.doses)
    for one in found.tried.values():
        effect = beside.effect(one.cell.direction, one.cell.dose, "test")
        moved = effect.report(f"off-target: {one.cell.written}")
        found.lines.append(Line(f"off-target: {one.cell.written}", moved, effect.p))
        if abs(moved.estimate) > ASIDE:
            found.caveats.append(f"{one.cell.written} moves prompts aside by {moved.estimate:+.2f}")


def multiplied(trial: Trial, inside: Inside, latent: int, alpha: float, stage: str) -> Effect:
    """Published steering (specs/E175, section 3, step 9) at the last prompt token: h + (alpha - 1) f W_dec. A latent
    that is not active there moves nothing."""
    which: Any = torch.from_numpy(trial.prompts(stage))
    value = inside.code[which, latent]
    vector = inside.module.direction(latent, 0)
    taps = [(Tap(inside.layer, (-1,), add=((alpha - 1) * f * vector).tolist()),) for f in value]
    return trial.taps(f"feature {latent} x {alpha:g}", taps, stage)

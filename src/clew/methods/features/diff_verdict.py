"""What came of comparing two checkpoints: features, arms, controls, and a verdict that may be "nothing".

``steered_behaviour`` fills a Finding, the command line prints and files it. Nothing here samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from clew.core.comparisons import Comparisons
from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.records import Report
from clew.methods.compare import design
from clew.methods.features.steering import Cell, Effect
from clew.store import Keeper

Verdict = Literal["exclusive", "shared", "nothing", "cannot tell"]
LEVEL = 0.01  # family-wise, of the tests that a claim must pass
LEAST = 0.1  # an effect that matters; smaller ones count as nothing
ASIDE = 0.05  # change of an off-target behaviour from which it is flagged


class Line(NamedTuple):
    """One row of evidence: what it is about, its effect, and p against nothing written."""

    about: str
    report: Report
    p: float | None = None


@dataclass(slots=True)
class Tried:
    """The direction of one part of the dictionary that did best on the selection prompts, judged on the test prompts.

    random: effects of random directions of the same norm on the test prompts.
    """

    part: Literal["exclusive", "shared"]
    cell: Cell
    test: Effect
    random: list[Effect] = field(default_factory=list)

    @property
    def bar(self) -> float:
        """The 99th percentile of the random directions' effects."""
        return float(np.percentile([e.size for e in self.random], 99)) if self.random else 0.0

    @property
    def top(self) -> Effect | None:
        """The random direction that did most."""
        return max(self.random, key=lambda e: e.size, default=None)

    @property
    def shrinkage(self) -> float:
        """What selection made of the effect: selection less test."""
        return self.cell.effect.size - self.test.size


@dataclass(slots=True)
class Finding:
    """A comparison of A with B.

    behaviour: in words. rates: of A and B with nothing written, and their difference. tried: best directions by part.
    lines: controls, patches, spillover, off-target. kind, text: the verdict.
    """

    behaviour: str
    rates: list[Line] = field(default_factory=list)
    tried: dict[str, Tried] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    kind: Verdict = "cannot tell"
    text: str = ""
    cells: list[Cell] = field(default_factory=list)

    @property
    def claims(self) -> list[Line]:
        """The effects of the tried directions on the test prompts."""
        out = []
        for t in self.tried.values():
            report = t.test.report(f"effect of {t.cell.written}")
            out.append(Line(f"{t.part}: {t.cell.dosed}", report, t.test.p))
        return out

    def comparisons(self) -> Comparisons:
        """What a verdict on features rests on: their rates on the test prompts against those with nothing written."""
        effects = [t.test for t in self.tried.values()]
        could = sum(effect.room >= LEAST for effect in effects)
        why = "no feature is active at these prompts, so none was tried"
        if effects:
            told = "never comes" if effects[0].sign < 0 else "always comes"
            why = f"at the test prompts the behaviour {told} (or nearly so) whatever is written"
        return Comparisons("rates with and without a feature", len(effects), could, LEAST, "in the rate", why)

    def verdict(self) -> Report | None:
        """The verdict as a Report; None where nothing was measured."""
        lines = self.claims or self.rates
        if not lines:
            return None
        sign = next((t.test.sign for t in self.tried.values()), 1)
        best = max(lines, key=lambda line: sign * line.report.estimate)
        claim = f"what training added to {self.behaviour}: {self.kind}; {self.text}"
        return replace(
            best.report, claim=claim, design=f"{best.about}: {best.report.design}", caveats=tuple(self.caveats)
        )


def picked(found: Finding) -> list[Line]:
    """Every direction at every dose on the selection prompts."""
    return [Line(at_dose(c), c.effect.report(f"effect of {c.written}"), c.effect.p) for c in found.cells]


def at_dose(cell: Cell) -> str:
    """What the Report of a direction at a dose on the selection prompts is about."""
    return f"selection: {cell.dosed}"


def filed(found: Finding, store: Keeper, label: str) -> dict[str, str]:
    """Keep lines and verdict as Reports of the store; gives their ids by what they are about, the verdict's last."""
    lines = (*found.rates, *picked(found), *found.claims, *found.lines)
    reports = {x.about: replace(x.report, claim=f"{x.about}: {x.report.claim}") for x in lines}
    last = found.verdict()
    reports |= {"verdict": last} if last is not None else {}
    return {about: store.put_report(r, _id(r, found.behaviour, label)) for about, r in reports.items()}


def _id(report: Report, behaviour: str, label: str) -> str:
    """The same for the same finding, so that a line that is typed again files nothing twice."""
    return f"diff-{label}-{value_digest([behaviour, report.claim, report.n, report.estimate]).hex()[:8]}"


def passes(tried: Tried | None, adjusted: dict[str, float]) -> bool:
    """Whether a direction does more than nothing and more than random directions of its norm."""
    if tried is None or not tried.random:
        return False
    mine = [p for name, p in adjusted.items() if name.startswith(tried.part)]
    return tried.test.size > tried.bar and bool(mine) and max(mine) < LEVEL


def tests(tried: dict[str, Tried]) -> dict[str, float]:
    """p-values, Holm's correction over all: each part against nothing and against its top random direction."""
    raw = {}
    for name, one in tried.items():
        raw[f"{name} against nothing"] = one.test.p
        if one.top is not None:
            raw[f"{name} against random"] = one.test.over(one.top)
    if {"exclusive", "shared"} <= set(tried):
        raw["alone against shared"] = tried["exclusive"].test.over(tried["shared"].test)
    return dict(zip(raw, design.holm(list(raw.values())), strict=True)) if raw else {}


def settle(found: Finding, added: bool | None) -> None:
    """From the arms to a verdict.

    A claim that what A alone has makes the behaviour must beat the best feature that both models have, at the same
    prompts: a crosscoder finds features of A alone in any training, and where a shared
    one does as much, nothing shows that the new one was needed.

    Args:
        added: whether A shows the behaviour more often than B; None where that is not known.
    """
    adjusted = tests(found.tried)
    alone, shared = found.tried.get("exclusive"), found.tried.get("shared")
    if added is False:
        found.kind, found.text = "nothing", "A does it no oftener than B, so training added none of it"
        return
    both = {name: passes(one, adjusted) for name, one in (("exclusive", alone), ("shared", shared))}
    p = adjusted.get("alone against shared", 1.0)
    if alone and both["exclusive"] and (not both["shared"] or p < LEVEL):
        found.kind = "exclusive"
        found.text = f"{alone.cell.written}, which A alone has, moves it by {alone.test.moved:+.2f}"
        if shared and both["shared"]:
            found.text += f", and {shared.cell.written}, which both have, by {shared.test.moved:+.2f} (p {p:.2g})"
        return
    if shared and both["shared"]:
        found.kind = "shared"
        found.text = f"{shared.cell.written}, which both models have, moves it by {shared.test.moved:+.2f}"
        if not alone:
            found.text += "; A alone has no such feature"
        elif both["exclusive"]:
            name = alone.cell.written
            found.text += f"; {name}, which A alone has, by {alone.test.moved:+.2f}, not shown to do more (p {p:.2g})"
        else:
            found.text += f"; what A alone has moves it by {alone.test.moved:+.2f}"
        return
    _undecided(found, list(found.tried.values()))


def _undecided(found: Finding, tried: Sequence[Tried]) -> None:
    """No direction passes: nothing, where effects that matter are ruled out, else how much more would do."""
    if not (made := found.comparisons()).tested:
        found.kind, found.text = "cannot tell", made.verdict("")
        return
    best = max(tried, key=lambda t: t.test.size)
    report = best.test.gain("best")
    if report.high < max(LEAST, best.bar):
        found.kind, found.text = "nothing", f"no feature moves it by more than {max(report.high, 0):.2f}"
        return
    against = best.top if best.top is not None and best.top.size > 0 else None
    base = float(np.nanmean(best.test.clean if against is None else against.arm))
    reached = float(np.nanmean(best.test.arm))
    try:
        more = f"about {4 * design.needed(min(base, reached), max(base, reached), level=1 - LEVEL)} prompts would do"
    except BadInput:
        more = "more prompts would hardly do"
    if best.test.size <= best.bar:
        more = "random directions of the same norm do as much"
    found.kind, found.text = (
        "cannot tell",
        f"the best feature moves it by {best.test.moved:+.2f} at {len(best.test.arm)} prompts: {more}",
    )

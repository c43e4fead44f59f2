"""What a direction does to a behaviour: arms over the same prompts, compared by prompt.

A direction is written at the last token of the prompt and at every token of the reply (``raise``), or it is held at its
usual value at every token (``remove``), where the behaviour is so frequent that it can hardly rise. Arms are chosen on
one set of prompts and judged on another. Statistics are those of ``clew.methods.compare.design``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from clew.core.records import Report
from clew.core.values import F32
from clew.methods.compare import design
from clew.methods.features.subjects import I64, Subject
from clew.models.taps import Tap

Way = Literal["raise", "remove"]


class Direction(NamedTuple):
    """A vector, float [width], in the states of model A. ``usual``: its mean coefficient h . v / |v|^2 in the mixture.
    ``latent``: of the crosscoder, -1 where it is of none."""

    name: str
    vector: Tensor
    usual: float = 0.0
    latent: int = -1

    def taps(self, layer: int, way: Way, dose: float = 1.0) -> tuple[Tap, ...]:
        """What is written."""
        if way == "remove":
            return (Tap(layer, along=self.vector.tolist(), clamp=self.usual),)
        vector = (self.vector * dose).tolist()
        return (Tap(layer, (-1,), add=vector), Tap(layer, part="reply", add=vector))


@dataclass(frozen=True, slots=True)
class Effect:
    """Of one arm against the same prompts with nothing written: outcomes float32 [prompts] of both.

    ``sign`` says what was looked for: 1 a rise of the rate, -1 a fall (``remove``). ``size`` and ``gain`` are positive
    where that came; ``report`` is the plain difference, the arm's rate less the clean one.
    """

    name: str
    arm: F32
    clean: F32
    sign: int = 1

    @property
    def size(self) -> float:
        return float(np.nanmean(self.arm - self.clean)) * self.sign

    @property
    def moved(self) -> float:
        """The plain difference of the rates."""
        return self.size * self.sign

    @property
    def room(self) -> float:
        """By how much the rate could move in the direction that was looked for."""
        clean = float(np.nanmean(self.clean))
        return clean if self.sign < 0 else 1.0 - clean

    def report(self, claim: str) -> Report:
        """The arm's rate less the clean one, bootstrap over prompts, paired."""
        return self._difference(claim, 1)

    def gain(self, claim: str) -> Report:
        """As ``report``, with the sign turned where a fall was looked for."""
        return self._difference(claim, self.sign)

    def _difference(self, claim: str, sign: int) -> Report:
        good = ~np.isnan(self.arm) & ~np.isnan(self.clean)

        def gap(x: F32, y: F32) -> design.F64:
            return np.asarray(sign * (x.mean(-1, dtype=np.float64) - y.mean(-1, dtype=np.float64)))

        return design.bootstrap(claim, gap, self.arm[good], self.clean[good], unit="prompts")

    def over(self, other: Effect) -> float:
        """One-sided exact McNemar p that this arm's rate is no better than another's, over the same prompts."""
        return mcnemar(self.arm * self.sign, other.arm * self.sign)

    @property
    def p(self) -> float:
        return mcnemar(self.arm * self.sign, self.clean * self.sign)


def written(name: str, sign: int) -> str:
    """What an arm is called: a direction is written, or for a fall of the rate taken away."""
    return f"{name} taken away" if sign < 0 else name


def mcnemar(x: F32, y: F32) -> float:
    """One-sided exact p of paired outcomes: that x is above y no oftener than below."""
    return design.mcnemar(int(np.sum(x > y)), int(np.sum(x < y)), one_sided=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """A direction at a dose, tried on the selection prompts."""

    direction: Direction
    dose: float
    effect: Effect

    @property
    def written(self) -> str:
        """The direction as it was written, or that it was taken away."""
        return written(self.direction.name, self.effect.sign)

    @property
    def dosed(self) -> str:
        return self.written if self.effect.sign < 0 else f"{self.written} x {self.dose:g}"


@dataclass(slots=True)
class Trial:
    """Tries directions on a subject.

    select, test: numbers of prompts, disjoint. doses: multiples of a feature's 95th percentile.
    """

    subject: Subject
    layer: int
    way: Way
    select: I64
    test: I64
    doses: Sequence[float] = (0.5, 1.0, 2.0)
    clean: dict[str, F32] = field(default_factory=dict)

    def effect(self, direction: Direction, dose: float, stage: str, who: str = "A") -> Effect:
        """Of a direction on the prompts of a stage, "select" or "test"."""
        return self.taps(direction.name, direction.taps(self.layer, self.way, dose), stage, who)

    def taps(self, name: str, taps: Sequence[object], stage: str, who: str = "A") -> Effect:
        """Of anything that is written."""
        arm = self.subject.outcomes(who, stage, self.prompts(stage), taps)  # type: ignore[arg-type]
        return Effect(name, arm, self.plain(stage, who), -1 if self.way == "remove" else 1)

    def plain(self, stage: str, who: str = "A") -> F32:
        """Outcomes with nothing written."""
        key = f"{who} {stage}"
        if key not in self.clean:
            self.clean[key] = self.subject.outcomes(who, stage, self.prompts(stage))
        return self.clean[key]

    def prompts(self, stage: str) -> I64:
        return self.select if stage == "select" else self.test

    def grid(self, directions: Sequence[Direction]) -> list[Cell]:
        """Every direction at every dose on the selection prompts, the best first."""
        doses = self.doses if self.way == "raise" else (1.0,)
        cells = [Cell(d, dose, self.effect(d, dose, "select")) for d in directions for dose in doses]
        return sorted(cells, key=lambda cell: (-cell.effect.size, cell.dose))

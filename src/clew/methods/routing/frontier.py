"""What a saving costs: reward against cost, for the workers, the routers, and a strong and a weak worker mixed.

``clew route report`` draws and tells it. Where costs are not known, the share of calls to the strong worker stands in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clew.core.records import Report
from clew.methods.compare import design
from clew.methods.routing.contest import Arm, Choices
from clew.methods.routing.headroom import resamples
from clew.methods.routing.reward_matrix import F64, Matrix

SHARES = np.linspace(0, 1, 21)  # of calls to the strong worker


class Frontier(NamedTuple):
    """Reward against cost.

    unit: "US dollars a question", or "share of calls to STRONG". curve, mixture: (cost, reward) of the strong-or-weak
    router at each share of strong calls, and of the same two workers mixed at random. points: (cost, reward) of arms,
    where costs are known. saving: the router's reward less the mixture's at equal calls and cost, averaged over shares.
    """

    unit: str
    strong: str
    weak: str
    curve: tuple[tuple[float, float], ...]
    mixture: tuple[tuple[float, float], ...]
    points: dict[str, tuple[float, float]]
    saving: Report
    dominated: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The frontier in sentences."""
        middle = len(self.curve) // 2
        r = self.saving
        kind = "more" if r.low > 0 else "less" if r.high < 0 else "no different"
        half = f"With half of the questions sent to {self.strong} and half to {self.weak}, choosing by question earns"
        lines = [
            f"{half} {self.curve[middle][1]:.3f}, at random {self.mixture[middle][1]:.3f}; "
            f"all to {self.weak} {self.mixture[0][1]:.3f}, all to {self.strong} {self.mixture[-1][1]:.3f}.",
            f"Over all shares it earns {kind} than a fixed mixture at equal calls and cost: "
            f"{r.estimate:+.3f} [{r.low:+.3f}, {r.high:+.3f}].",
        ]
        lines += [f"{name} costs more than a worker that earns as much or more." for name in self.dominated]
        return lines


def frontier(found: Matrix, made: Choices, arms: list[Arm], seed: int = 0) -> Frontier:
    """The frontier of the choices made for held-out questions."""
    means, prices, at = found.means, found.prices, np.arange(len(found))
    strong, weak = means[at, made.strong], means[at, made.weak]
    order = np.argsort(-made.need, kind="stable")
    place = np.empty(len(found), np.intp)
    place[order] = at
    asked = place[None] < np.round(SHARES[:, None] * len(found))  # [shares, Q]
    share = asked.mean(1)
    routed: F64 = np.where(asked, strong, weak)
    mixed: F64 = share[:, None] * strong + (1 - share[:, None]) * weak
    saving = design.bootstrap(
        "strong or weak by question less a fixed mixture, mean over shares",
        lambda x: x.mean(-1),
        (routed - mixed).mean(0),
        design=f"{len(found)} held-out questions, paired at equal calls, percentile bootstrap over questions",
        seed=seed,
        resamples=resamples(len(found)),
    )
    names = [
        found.workers[int(np.bincount(who, minlength=len(found.workers)).argmax())] for who in (made.strong, made.weak)
    ]
    points, dominated = dict[str, tuple[float, float]](), list[str]()
    if prices is None or not found.spread:
        unit, x, y = f"share of calls to {names[0]}", share, share
    else:
        unit = "US dollars a question"
        dear, cheap = prices[at, made.strong], prices[at, made.weak]
        x = np.where(asked, dear, cheap).mean(1)
        y = (share[:, None] * dear + (1 - share[:, None]) * cheap).mean(1)
        points = {arm.name: (float(arm.cost), arm.reward.estimate) for arm in arms if arm.cost is not None}
        own = [(name, *points[name]) for name in found.workers]
        dominated = [a for a, cost, got in own if any(c < cost and g >= got for b, c, g in own if b != a)]
    lines = [tuple(zip(map(float, xs), map(float, ys.mean(1)), strict=True)) for xs, ys in ((x, routed), (y, mixed))]
    return Frontier(unit, names[0], names[1], lines[0], lines[1], points, saving, tuple(dominated))

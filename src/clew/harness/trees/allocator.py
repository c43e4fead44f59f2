"""Which trees deserve the tokens kept back: a forecast learnt from trees that have ended (E162, arXiv 2605.05262).

The paper's allocator is learned and its form was not to be had; specs/E162 section 3, step 6, completes it as a
logistic regression. Here it forecasts, from where a tree stands whose outcomes are all alike, the chance that one more
grant of tokens makes them differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
LEAST = 40  # trees, below which nothing is forecast: what one tree tells is much alike
GRANT = 0.25  # of a task's budget, given at a time


class Standings(NamedTuple):
    """Where trees stand, all [trees].

    leaves, wins: decided leaves, and those of them that succeeded. mean, most: entropy of the next token over the
    places of a tree, in nats. used: tokens decoded over the budget of a task. past: share of successes that the task
    had in other trees.
    """

    leaves: F64
    wins: F64
    mean: F64
    most: F64
    used: F64
    past: F64

    def features(self) -> F64:
        """[trees, 6]"""
        share = self.wins / np.maximum(self.leaves, 1)
        return np.stack([share, np.log1p(self.leaves), self.mean, self.most, self.used, self.past], axis=-1)


class Forecast(NamedTuple):
    """A logistic regression on standardised features; ``weights`` [7], the constant last."""

    centre: F64
    scale: F64
    weights: F64

    def chance(self, standings: Standings) -> F64:
        """That one more grant makes the outcomes differ, [trees]."""
        return _chance(_design(standings, self.centre, self.scale), self.weights)


def learn(standings: Standings, mixed: NDArray[np.bool_], ridge: float = 1.0) -> Forecast | None:
    """Fit to trees whose outcomes were alike, and whether the next grant made them differ; None where nothing can be.

    Newton's method on the log-likelihood less half of ``ridge`` times the squared weights, the constant left free.
    """
    if not len(mixed) or mixed.all() or not mixed.any():
        return None
    features = standings.features()
    centre, scale = features.mean(axis=0), features.std(axis=0)
    design = _design(standings, centre, np.where(scale > 1e-9, scale, 1.0))
    penalty = ridge * np.diag([1.0] * (design.shape[1] - 1) + [0.0])
    weights = np.zeros(design.shape[1])
    for _ in range(30):
        p = _chance(design, weights)
        curve = (design * (p * (1 - p))[:, None]).T @ design + penalty
        step = np.linalg.solve(curve + 1e-9 * np.eye(len(weights)), design.T @ (mixed - p) - penalty @ weights)
        weights = weights + step
        if np.abs(step).max() < 1e-8:
            break
    return Forecast(centre, np.where(scale > 1e-9, scale, 1.0), weights)


def favoured(chance: F64, left: float, grant: float) -> NDArray[np.intp]:
    """Which trees get a grant next: the quarter of highest chance, as far as what is left lasts, one at least."""
    most = max(1, min(len(chance) // 4, int(left // grant)))
    return np.argsort(-chance, kind="stable")[:most]


class History(NamedTuple):
    """What earlier trees tell: a forecast, None where they are too few; (leaves, wins) of each task, and of all."""

    forecast: Forecast | None
    tasks: Mapping[str, tuple[float, float]]
    overall: tuple[float, float]

    def past(self, task: str, less: tuple[float, float] = (0.0, 0.0)) -> float:
        """Share of successes the task had, ``less`` left out, as if one leaf more had gone as all do on average."""
        (leaves, wins), usual = self.tasks.get(task, (0.0, 0.0)), (self.overall[1] + 0.5) / (self.overall[0] + 1)
        return (wins - less[1] + usual) / (leaves - less[0] + 1)


def recall(told: Sequence[tuple[str, Mapping[str, Any]]]) -> History:
    """Learn from how trees grew, given as (task id, facts).

    The facts of a tree: ``stands``, its decided leaves, wins, mean and highest entropy and tokens decoded, after each
    leaf while its outcomes were alike; ``mixed_at``, the tokens decoded when they first differed, or None; ``used``,
    ``leaves`` and ``wins`` at its end; ``budget``, the tokens of a task. A stand counts where the tree then became
    mixed, or was given a whole grant more and did not.
    """
    tasks: dict[str, tuple[float, float]] = {}
    for task, facts in told:
        leaves, wins = tasks.get(task, (0.0, 0.0))
        tasks[task] = leaves + facts["leaves"], wins + facts["wins"]
    overall = sum(leaves for leaves, _ in tasks.values()), sum(wins for _, wins in tasks.values())
    history = History(None, tasks, overall)
    rows, mixed = list[tuple[float, ...]](), list[bool]()
    for task, facts in told:
        past, at = history.past(task, (facts["leaves"], facts["wins"])), facts["mixed_at"]
        for leaves, wins, mean, most, used in facts["stands"]:
            end = used + GRANT * facts["budget"]
            if at is not None or facts["used"] >= end:
                rows.append((leaves, wins, mean, most, used / facts["budget"], past))
                mixed.append(at is not None and at <= end)
    if len(told) < LEAST:
        return history
    columns = Standings(*np.array(rows, dtype=float).reshape(-1, len(Standings._fields)).T)
    return history._replace(forecast=learn(columns, np.array(mixed, dtype=bool)))


def _design(standings: Standings, centre: F64, scale: F64) -> F64:
    features = (standings.features() - centre) / scale
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


def _chance(design: F64, weights: F64) -> F64:
    return np.asarray(1 / (1 + np.exp(-np.clip(design @ weights, -30, 30))))

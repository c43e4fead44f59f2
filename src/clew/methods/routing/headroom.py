"""How much choosing the worker by question could gain at most: the cross-fitted headroom of a pool.

``clew route report`` asks it first. It must never choose and score by one and the same sample: the plain maximum over
workers is above the best worker by luck alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from clew.core.records import Report
from clew.methods.compare import design
from clew.methods.routing.reward_matrix import F64, Index, Matrix

Way = Literal["samples", "families"]
SPLITS = 32  # random halves that are averaged over
SHRINK = 10.0  # questions' worth of the overall lead in the lead of a family
FAMILIES = 2  # fewest, each of at least FEWEST questions
FEWEST = 4
RESAMPLES, MANY = 4000, 8_000_000  # draws of a bootstrap, fewer where there are many questions: draws times questions


class Headroom(NamedTuple):
    """The gain of an oracle over the best single worker, and how it was cross-fitted."""

    report: Report
    way: Way

    @property
    def found(self) -> bool:
        """Whether its interval is above zero."""
        return self.report.low > 0


def resamples(n: int) -> int:
    """Draws of a bootstrap over ``n`` units that fit in memory."""
    return max(500, min(RESAMPLES, MANY // n))


def headroom(found: Matrix, seed: int = 0) -> Headroom | None:
    """Reward of an oracle less that of the best single worker, each chosen on one half and scored on the other.

    With two samples or more of (nearly) every pair, the halves are of the samples of each question: the oracle takes
    the worker that is best there, by the samples of the question and, as far as these are few, by those of its family
    and of all questions (``by_samples``). Ties go to the worker that is better overall. With one sample
    no such split is possible: the oracle takes the worker that is best in the question's family on half of the
    questions, and is scored on the other half, so that it sees differences between families alone. The interval is a
    percentile bootstrap over questions; the oracle knows few samples, so that the estimate is a lower bound of what a
    perfect router gains. By families it is stretched by the square root of 2, since the halves of many splits share
    their questions (Nadeau and Bengio 2003, halves of one size).

    Returns:
        None where there is one sample of each pair and no two families of some size.
    """
    enough = (found.counts >= 2).all(1)
    if enough.sum() >= max(2, len(found) / 2):
        some = found.take(np.flatnonzero(enough))
        way: Way = "samples"
        gains = by_samples(some.rewards, _numbers(some.families), np.random.default_rng(seed))
        design_text = f"worker chosen on half of the samples of a question, scored on the other half; {SPLITS} splits"
        caveat = "a lower bound: the oracle knows few samples of each question"
    else:
        names, of, sizes = np.unique(np.array(found.families), return_inverse=True, return_counts=True)
        large = sizes[of] >= FEWEST
        if (sizes >= FEWEST).sum() < FAMILIES:
            return None
        some, way = found.take(np.flatnonzero(large)), "families"
        gains = by_families(some.means, of[large], np.random.default_rng(seed))
        design_text = f"worker chosen by family on half of the questions, scored on the other half; {SPLITS} splits"
        caveat = f"one sample of each pair: differences within the {len(names)} families are not seen"
    report = design.bootstrap(
        "headroom over the best single worker",
        lambda x: x.mean(-1),
        gains,
        design=f"{design_text}; {len(gains)} questions, percentile bootstrap over questions",
        seed=seed,
        resamples=resamples(len(gains)),
        runs=found.runs,
        caveats=(caveat,),
    )
    if way == "families":
        middle = report.estimate
        low, high = (middle + 2**0.5 * (limit - middle) for limit in (report.low, report.high))
        report = replace(report, low=low, high=high)
    return Headroom(report, way)


def by_samples(rewards: F64, family: Index, rng: np.random.Generator) -> F64:
    """Gain of the oracle at each question, float64 [Q], mean over splits of its samples.

    What the oracle holds of a worker at a question, beside the question's own mean over workers, is drawn from what
    the first half says of the question to what it says of the family, and from there to all questions: few samples of a
    question say little, and an oracle that trusted them would do worse than one worker. How far is told by how well
    residuals of one half of the samples foretell those of the other (empirical Bayes), at other questions than it is
    used at.

    Args:
        rewards: float64 [Q, W, S], NaN where missing, at least two in each pair. family: int [Q].
    """
    there = ~np.isnan(rewards)
    n = there.sum(2, keepdims=True)
    values = np.where(there, rewards, 0.0)
    at, gains = np.arange(len(rewards)), np.zeros(len(rewards))
    size = np.bincount(family)[:, None]
    for split in range(SPLITS):
        luck = np.where(there, rng.random(rewards.shape), 2.0)
        rank = luck.argsort(2).argsort(2)
        first = rank < (n + split % 2) // 2
        second = ~first & there
        a = (values * first).sum(2) / first.sum(2)
        b = (values * second).sum(2) / second.sum(2)
        lead, other = (x - x.mean(1, keepdims=True) for x in (a, b))
        sums = np.zeros((len(size), rewards.shape[1]))
        np.add.at(sums, family, lead)
        known = ((sums + SHRINK * lead.mean(0)) / (size + SHRINK))[family]
        rest = lead - known
        side = rng.permutation(len(rewards)) % 2
        total, kept = (np.bincount(side, (rest * x).sum(1), 2)[::-1] for x in (rest, other - known))
        trust = np.clip(kept / np.where(total, total, np.inf), 0, 1)[side, None]
        gains += _gain(known + trust * rest, b, a.mean(0), at)
    return gains / SPLITS


def by_families(means: F64, family: Index, rng: np.random.Generator) -> F64:
    """The same with one sample of each pair: choice by family, float64 [Q].

    Args:
        means: float64 [Q, W]. family: int [Q].
    """
    q, w = means.shape
    gains, scored = np.zeros(q), np.zeros(q)
    for _ in range(SPLITS):
        order = rng.permutation(q)
        place = np.empty(q, np.intp)
        by = order[np.argsort(family[order], kind="stable")]  # families one after another, in random order inside
        starts = np.searchsorted(family[by], family[by])
        place[by] = np.arange(q) - starts
        chosen_on = place % 2 == 0
        sums = np.zeros((family.max() + 1, w))
        np.add.at(sums, family[chosen_on], means[chosen_on])
        size = np.bincount(family[chosen_on], minlength=len(sums))[:, None]
        a = sums / np.maximum(size, 1)
        rest = np.flatnonzero(~chosen_on)
        gains[rest] += _gain(a[family[rest]], means[rest], means[chosen_on].mean(0), np.arange(len(rest)))
        scored[rest] += 1
    return gains / np.maximum(scored, 1)


def _numbers(families: Sequence[str]) -> Index:
    numbers: Index = np.unique(families, return_inverse=True)[1]
    return numbers


def _gain(a: F64, b: F64, overall: F64, at: Index) -> F64:
    """Chosen by ``a``, scored by ``b``; ties of ``a`` go to the worker that is better overall."""
    best = int(overall.argmax())
    tie = np.argsort(np.argsort(overall)) * 1e-9
    pick = (a + tie).argmax(1)
    gain: F64 = b[at, pick] - b[:, best]
    return gain

"""When an outcome is settled: flips of resampled runs, the prompt-fixed share, the commitment curve, trace dependence.

``clew audit early`` and the papers call these functions on counts that somebody sampled; nothing here samples. The
estimators are those of specs/E171 section 6 (after arXiv 2606.25013). A prompt is the unit that intervals are drawn
over: several runs of one prompt are not independent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.records import Report
from clew.methods.compare.design import bootstrap, wilson

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

LEAST_FLIP = 0.05  # of full samples; below it nothing is open, and a share of nothing is not defined
HALF = 0.5  # commitment that counts as settled
RESAMPLES = 2000
FILED = re.compile(
    r"early-([0-9a-f]{8})-(flip|settled|risk)-(\d{1,6}(?:\.\d{1,12})?)"
)  # Reports of the places of a curve


class Draws(NamedTuple):
    """Outcomes of independent continuations from some places of some runs.

    hits, n: int [places, runs], how many continuations showed the outcome, and how many were decided. prompts: int
    [runs], equal for runs of one prompt.
    """

    hits: I64
    n: I64
    prompts: I64

    @property
    def rates(self) -> F64:
        """Share of continuations with the outcome, float64 [places, runs]; NaN where none was decided."""
        return np.where(self.n > 0, self.hits / np.maximum(self.n, 1), np.nan)

    @property
    def flips(self) -> F64:
        """Chance that two continuations from one place differ, float64 [places, runs]: 2 k (n - k) / (n (n - 1)).

        The estimate is without bias for every n of 2 and more; NaN where fewer were decided.
        """
        k, n = self.hits.astype(float), self.n.astype(float)
        return np.where(n > 1, 2 * k * (n - k) / np.maximum(n * (n - 1), 1), np.nan)


def by_prompt(values: F64, prompts: I64) -> F64:
    """Means of values [..., runs] within each prompt, [..., prompts]; NaN where a prompt has none."""
    number = np.unique(prompts, return_inverse=True)[1]
    member = np.zeros((len(number), int(number.max(initial=-1)) + 1))
    member[np.arange(len(number)), number] = 1
    there = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: F64 = (np.where(there, values, 0.0) @ member) / (there.astype(float) @ member)
    return found


class Curve(NamedTuple):
    """How much of the outcome is settled after each share of the thinking.

    at: places, as shares of the thinking or as numbers of tokens. rate: of the outcome over all prompts. flips: chance
    that two continuations from each place differ. fixed: prompt-fixed share s0. committed: c at each place, None where
    ``flips[0]`` is too small to divide by. time: the first place at which half is settled, None where it is not even at
    the last. late: in more than 1 of 40 resamples of prompts half is not settled at the last place, so that the upper
    end of ``time`` is no measurement.
    """

    at: tuple[float, ...]
    rate: Report
    flips: tuple[Report, ...]
    fixed: Report
    committed: tuple[Report, ...] | None
    time: Report | None
    late: bool = False

    @property
    def never(self) -> bool:
        """Half of what is open is not settled even at the last place, beyond what chance explains."""
        return self.committed is not None and self.committed[-1].high < HALF

    @property
    def half(self) -> str:
        """When half of what is open before the thinking is settled, in words."""
        if self.committed is None:
            return "nothing is open before the thinking"
        if self.time is None:
            last = self.committed[-1]
            return (
                f"half is not settled even after {_named(self.at[-1])} "
                f"({last.estimate:.2f} [{last.low:.2f}, {last.high:.2f}] there)"
            )
        low, high = self.time.low, self.time.high
        until = f"later than {high:.0%}, if at all" if self.late else f"{high:.0%}"
        return f"half after {self.time.estimate:.0%} [{low:.0%}, {until}]"


FEW = 5  # prompts that differ from all the others; with fewer a bootstrap sees hardly any of its spread


def share_of(claim: str, values: F64, seed: int = 0, unit: str = "prompts") -> Report:
    """Mean of numbers from 0 to 1, one for each unit, with a percentile bootstrap over units.

    Where fewer than ``FEW`` of them leave 0 (or 1), the limits are at least Wilson's (1927) for as many units: that
    nothing was seen in n prompts does not say that nothing is there.
    """
    found = bootstrap(claim, _mean, values, seed=seed, unit=unit, resamples=RESAMPLES)
    if min(np.count_nonzero(values > 0), np.count_nonzero(values < 1)) >= FEW:
        return found
    low, high = wilson(min(max(found.estimate, 0.0), 1.0) * found.n, float(found.n))
    return replace(found, low=min(found.low, float(low)), high=max(found.high, float(high)))


def _mean(x: F64) -> F64:
    return np.asarray(np.nanmean(x, axis=-1))


def _share(flip: F64, rate: F64) -> F64:
    p = np.nanmean(rate, axis=-1)
    varies = p * (1 - p) > 0  # a resample in which nothing varies leaves nothing open
    return np.asarray(np.where(varies, 1 - np.nanmean(flip, axis=-1) / np.where(varies, 2 * p * (1 - p), 1.0), 1.0))


def _committed(later: F64, first: F64) -> F64:
    base = np.nanmean(first, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        # A resample of prompts in which nothing is open says nothing: it counts as all settled.
        return np.asarray(np.where(base > 0, 1 - np.nanmean(later, axis=-1) / np.maximum(base, 1e-12), 1.0))


def curve(draws: Draws, at: Sequence[float], seed: int = 0, unit: str = "prompts") -> Curve:
    """The commitment curve of continuations from the places ``at``, the first of which is before all thinking.

    s0 = 1 - flip(0) / (2 p (1 - p)) and c(B) = 1 - flip(B) / flip(0), with percentile bootstraps over prompts.

    Raises:
        BadInput: fewer than two prompts have two decided continuations, or the outcome never varied.
    """
    flips, rates = by_prompt(draws.flips, draws.prompts), by_prompt(draws.rates, draws.prompts)
    whole = np.isfinite(flips).all(0)
    if whole.sum() < 2:
        raise BadInput(
            f"{int(whole.sum())} prompts have two decided continuations at every place",
            remedy="Give more runs of other prompts, or sample more continuations of each.",
        )
    flips, rates = flips[:, whole], rates[:, whole]
    p = float(rates[0].mean())
    if not 0 < p < 1:
        raise BadInput(
            f"the outcome was the same in every one of the continuations of {int(whole.sum())} prompts",
            remedy="Name an outcome that some runs show and others do not, or give other runs.",
        )
    how: dict[str, Any] = {"seed": seed, "unit": unit, "resamples": RESAMPLES}
    rate = bootstrap("rate of the outcome", _mean, rates[0], **how)
    told = tuple(share_of(f"flip after {_named(b)}", row, seed, unit) for b, row in zip(at, flips, strict=True))
    fixed = bootstrap("prompt-fixed share of the outcome", _share, flips[0], rates[0], **how)
    most = 2 * p * (1 - p)
    fixed = replace(fixed, low=min(fixed.low, 1 - told[0].high / most), high=max(fixed.high, 1 - told[0].low / most))
    if told[0].estimate < LEAST_FLIP:
        return Curve(tuple(at), rate, told, fixed, None, None)
    settled = tuple(
        bootstrap(f"settled after {_named(b)}", _committed, row, flips[0], **how)
        for b, row in zip(at, flips, strict=True)
    )
    places = np.asarray(at, float)

    def settles(*rows: F64) -> npt.NDArray[np.bool_]:
        return np.stack([_committed(row, rows[0]) for row in rows]) >= HALF

    def first(*rows: F64) -> F64:
        there = settles(*rows)
        there[-1] = True  # never: the last place, which ``late`` and ``never`` tell apart from it
        return np.asarray(places[np.argmax(there, axis=0)])

    def ever(*rows: F64) -> F64:
        return np.asarray(settles(*rows)[-1], float)

    if not settles(*flips)[-1]:
        return Curve(tuple(at), rate, told, fixed, settled, None)
    late = bootstrap("half is settled at the last place", ever, *flips, **how).low < 1
    caveat = ("the upper end of the interval is the last place: half may not be settled even there",) if late else ()
    time = bootstrap("place at which half of the outcome is settled", first, *flips, **how)
    return Curve(tuple(at), rate, told, fixed, settled, replace(time, caveats=(*time.caveats, *caveat)), late)


def _named(place: float) -> str:
    return f"{place:.0%} of the thinking" if place <= 1 else f"{place:g} tokens"


def dependence(follows: npt.ArrayLike, seed: int = 0) -> Report:
    """Trace dependence t: how often the answer follows the thinking put in, where its donor had the other outcome.

    Args:
        follows: float [pairs], the share of answers of each pair that show the donor's outcome; NaN where none was
            decided.

    Raises:
        BadInput: fewer than two pairs.
    """
    values = np.asarray(follows, float)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        raise BadInput(
            f"{len(values)} pairs of prompts with opposite outcomes",
            remedy="Give runs in which the outcome comes out both ways.",
        )
    return share_of("trace dependence", values, seed, "pairs of prompts")

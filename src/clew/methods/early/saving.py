"""Where thinking may stop: the earliest point that keeps the outcome, and the tokens that are saved there.

The point is chosen on half of the prompts and judged on the other half, so that the saving is not that of the luckiest
point. Risk is the share of runs whose outcome changes when thinking is closed there, less that when it is closed at
its own end: what answers vary by anyway is not put down to stopping. Pure passes: arrays in, a Saving out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.records import Report
from clew.methods.compare.design import bootstrap
from clew.methods.early.curves import F64, FEW, Draws, by_prompt, share_of

FEWEST = 8  # prompts in either half


class Saving(NamedTuple):
    """A point at which thinking may stop, judged on prompts that had no part in choosing it.

    at: share of the thinking that is kept; None where no point before the end is within the bound. risk: share of runs
    whose outcome changes there. tokens: thinking tokens saved per run. share: of all thinking. rate: change in how
    often the outcome comes up. chosen_on, judged_on: prompts. risks: at each place, on all prompts.
    """

    at: float | None
    bound: float
    risk: Report | None
    tokens: Report | None
    share: Report | None
    rate: Report | None
    risks: tuple[Report, ...]
    chosen_on: int
    judged_on: int

    @property
    def wanted(self) -> int:
        """Prompts in all at which a risk like the one found would be shown to be within the bound; 0 where none is."""
        if self.risk is None or self.held or self.risk.estimate >= self.bound:
            return 0
        half = (self.risk.high - self.risk.estimate) / (self.bound - max(self.risk.estimate, 0.0))
        return int(np.ceil(2 * self.judged_on * max(half, half**2)))

    @property
    def held(self) -> bool:
        """Whether the risk on the prompts kept apart is within the bound, its interval included."""
        return self.risk is not None and self.risk.high <= self.bound


def half_of(prompt: str) -> bool:
    """Which half a prompt belongs to, by its name alone."""
    return bool(blake2b(prompt.encode(), digest_size=1, person=b"clew.early").digest()[0] & 1)


def _risk(claim: str, values: F64, seed: int) -> Report:
    """Mean of differences from -1 to 1; where hardly any differs from 0, its upper limit is that of so rare a thing."""
    found = bootstrap(claim, _mean, values, seed=seed, unit="prompts")
    high = share_of(claim, np.clip(values, 0, 1), seed).high
    return replace(found, high=max(found.high, high)) if np.count_nonzero(values) < FEW else found


def _mean(x: F64) -> F64:
    return np.asarray(x.mean(-1))


def _ratio(x: F64, y: F64) -> F64:
    return np.asarray(x.sum(-1) / np.maximum(y.sum(-1), 1e-9))


def saving(
    forced: Draws,
    recorded: Sequence[float | None],
    at: Sequence[float],
    kept: npt.ArrayLike,
    names: Sequence[str],
    bound: float = 0.05,
    seed: int = 0,
) -> Saving:
    """Choose the earliest point within the bound on one half of the prompts, and judge it on the other.

    Args:
        forced: forced answers at the places ``at``, the last of which is all of the thinking.
        recorded: the outcome of each run as recorded; runs without one are left out.
        kept: int [places, runs], thinking tokens kept. names: of the runs' prompts.
        bound: the risk that is accepted, the upper end of a 95 % interval of the half that chooses included.

    Raises:
        BadInput: too few prompts in a half, or a bound that is no share.
    """
    if not 0 < bound < 1:
        raise BadInput(f"a risk of {bound}", remedy="Give a share between 0 and 1, as 0.05.")
    own = np.array([np.nan if value is None else value for value in recorded])
    rates = forced.rates
    differs = np.where(own[None] > 0.5, 1 - rates, rates)
    differs = np.where(np.isfinite(own)[None], differs, np.nan)
    excess = by_prompt(differs - differs[-1:], forced.prompts)
    shift = by_prompt(rates - own[None], forced.prompts)
    length = np.asarray(kept, float)
    cut = by_prompt(length[-1:] - length, forced.prompts)
    total = by_prompt(length[-1], forced.prompts)
    first = np.unique(forced.prompts, return_index=True)[1]
    half = np.array([half_of(names[i]) for i in first])
    good = np.isfinite(excess).all(0)
    choose, judge = half & good, ~half & good
    if min(choose.sum(), judge.sum()) < FEWEST:
        raise BadInput(
            f"{int(good.sum())} prompts are too few to choose where thinking stops and to judge it on others",
            remedy=f"Give runs of about {4 * FEWEST} prompts.",
        )
    how: dict[str, Any] = {"seed": seed, "unit": "prompts"}
    risks = tuple(_risk(f"risk at {b:.0%}", row[good], seed) for b, row in zip(at, excess, strict=True))
    upper = [bootstrap("", _mean, row[choose], **how).high for row in excess]
    safe = [all(value <= bound for value in upper[b:]) for b in range(len(at))]
    place = safe.index(True) if any(safe[:-1]) else None
    sizes = int(choose.sum()), int(judge.sum())
    if place is None:
        return Saving(None, bound, None, None, None, None, risks, *sizes)
    risk = _risk("share of runs whose outcome changes", excess[place][judge], seed)
    tokens = bootstrap("thinking tokens saved per run", _mean, cut[place][judge], **how)
    share = bootstrap("share of thinking tokens saved", _ratio, cut[place][judge], total[judge], **how)
    rate = bootstrap("change of the rate of the outcome", _mean, shift[place][judge], **how)
    return Saving(float(at[place]), bound, risk, tokens, share, rate, risks, *sizes)

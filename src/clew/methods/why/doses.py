"""How a rate responds to a dose: Cochran-Armitage trend, logistic curves, and whether there is a threshold. The causal
audit and papers call it. It must never report a slope where the doses separate all hits from all misses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.core.errors import BadInput, need
from clew.core.records import Report
from clew.methods.compare.design import F64, counted

CLEARLY = 4.0  # a knee costs one parameter, and where it lies is chosen among many: AIC must gain this much


class Trend(NamedTuple):
    """Cochran-Armitage trend of a rate with a score: ``z`` is positive where the rate rises. ``p`` is two-sided."""

    z: float
    p: float


class Curve(NamedTuple):
    """A logistic curve: log odds = intercept + slope * x(dose).

    ``kind``: ``linear`` x = dose; ``log`` x = ln dose; ``hinge`` flat up to ``knee`` (a dose), then as ``scale`` says.
    low, high: Wald's 95 % interval of the slope. likelihood: log-likelihood in nats, without the binomial constant.
    """

    kind: str
    scale: str
    intercept: float
    slope: float
    low: float
    high: float
    likelihood: float
    aic: float
    knee: float | None = None

    def at(self, doses: Sequence[float]) -> F64:
        """The rate at each dose."""
        x = _scaled(doses, self.scale)
        if self.knee is not None:
            x = np.maximum(x - _scaled([self.knee], self.scale), 0.0)
        rates: F64 = 1.0 / (1.0 + np.exp(-(self.intercept + self.slope * x)))
        return rates

    def none(self, doses: Sequence[float], n: Sequence[int]) -> float:
        """Chance of not one hit in ``n`` trials at each dose."""
        return float(np.prod((1.0 - self.at(doses)) ** np.asarray(n)))


class Dose(NamedTuple):
    """How a rate answers to a dose: the trend, the fitted curves, best first, and the slope of the best smooth one.

    threshold: the dose from which the rate rises, where a hinge fits clearly better than every smooth curve, else None.
    """

    trend: Trend
    curves: tuple[Curve, ...]
    slope: Report
    threshold: float | None

    def curve(self, kind: str) -> Curve:
        return next(c for c in self.curves if c.kind == kind)


def trend(doses: Sequence[float], hits: Sequence[int], n: Sequence[int]) -> Trend:
    """Cochran-Armitage test (Armitage 1955) with the doses as scores; give ln dose for a trend in ln dose."""
    tables = need("statsmodels.stats.contingency_tables", "stats")
    counted(hits, n)
    h, every = np.asarray(hits), np.asarray(n)
    if not h.any() or (h == every).all() or len(set(doses)) < 2:
        return Trend(0.0, 1.0)
    # Without shift_zeros=False half a trial is added to every cell as soon as one is empty.
    table = tables.Table(np.stack([h, every - h], axis=1), shift_zeros=False)
    found = table.test_ordinal_association(row_scores=np.asarray(doses, float), col_scores=np.array([1.0, 0.0]))
    return Trend(float(found.zscore), float(found.pvalue))


def dose(claim: str, doses: Sequence[float], hits: Sequence[int], n: Sequence[int], **kept: Any) -> Dose:
    """Fit rates at several doses: logistic in dose, in ln dose (doses all positive), and with a knee.

    Args:
        doses: at least three different ones. hits, n: counts at each.

    Raises:
        BadInput: too few doses, or counts that any slope fits (all, none, or parted by one dose).
    """
    counted(hits, n)
    h, every = np.asarray(hits, float), np.asarray(n, float)
    if len(set(doses)) < 3:
        raise BadInput(f"{claim}: {len(set(doses))} doses make no curve", remedy="Sweep at least three.")
    some, not_all = np.asarray(doses)[h > 0], np.asarray(doses)[h < every]
    if not len(some) or not len(not_all) or some.min() >= not_all.max() or some.max() <= not_all.min():
        raise BadInput(f"{claim}: no slope is known, the doses part all hits from all misses", remedy="Add doses.")
    smooth = [_fit("linear", "linear", doses, h, every)]
    if min(doses) > 0:
        smooth.append(_fit("log", "log", doses, h, every))
    best = min(smooth, key=lambda c: c.aic)
    inner = sorted(set(doses))[1:-1]
    hinge = min((_fit("hinge", best.scale, doses, h, every, knee) for knee in inner), key=lambda c: c.aic)
    unit = "ln dose" if best.kind == "log" else "unit of dose"
    design = f"logistic regression on {len(set(doses))} doses, log odds per {unit}, Wald interval"
    slope = Report(
        claim=claim, estimate=best.slope, low=best.low, high=best.high, n=int(every.sum()), design=design, **kept
    )
    scores = list(doses) if best.kind == "linear" else list(np.log(doses))
    threshold = hinge.knee if hinge.aic + CLEARLY < best.aic else None
    return Dose(trend(scores, hits, n), tuple(sorted([*smooth, hinge], key=lambda c: c.aic)), slope, threshold)


def _scaled(doses: Sequence[float], scale: str) -> F64:
    x = np.asarray(doses, float)
    return np.log(x) if scale == "log" else x


def _fit(kind: str, scale: str, doses: Sequence[float], h: F64, n: F64, knee: float | None = None) -> Curve:
    """Maximum likelihood; the knee of a hinge counts as a parameter of its AIC."""
    xlogy, norm = need("scipy.special", "stats").xlogy, need("scipy.stats", "stats").norm
    models = need("statsmodels.genmod.api", "stats")
    x = _scaled(doses, scale)
    if knee is not None:
        x = np.maximum(x - _scaled([knee], scale), 0.0)
    unit = float(x.std())  # doses of 1e3 and more would make the normal equations badly conditioned
    fit = models.GLM(
        np.stack([h, n - h], axis=1), np.stack([np.ones_like(x), x / unit], axis=1), family=models.families.Binomial()
    ).fit()
    rates = fit.fittedvalues
    likelihood = float((xlogy(h, rates) + xlogy(n - h, 1 - rates)).sum())
    slope, half = fit.params[1] / unit, float(norm.isf(0.025)) * fit.bse[1] / unit
    aic = 2 * (3 if knee is not None else 2) - 2 * likelihood
    return Curve(kind, scale, float(fit.params[0]), slope, slope - half, slope + half, likelihood, aic, knee)

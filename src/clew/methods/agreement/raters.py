"""Agreement beyond chance: Cohen's kappa of two raters, Krippendorff's alpha of several, over many resamples at once.

``held`` calls this. Ratings are whole numbers, the place of a category from 0. Nothing here knows what was rated.
Each function takes weights [resamples, units], how often a unit counts, and gives one number for each resample; NaN
where all ratings are of one category, so that chance alone would agree everywhere.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Metric = Literal["nominal", "ordinal", "interval"]
ABSENT = -1  # a rating that is not there


def distances(k: int, metric: Metric) -> F64:
    """How far two of ``k`` categories lie apart, squared: 1 for any two (nominal), or (i - j)² (interval)."""
    i = np.arange(k, dtype=float)
    return (i[:, None] != i[None]).astype(float) if metric == "nominal" else (i[:, None] - i[None]) ** 2


def kappa(a: I64, b: I64, k: int, metric: Metric = "nominal", weight: F64 | None = None) -> F64:
    """Cohen's kappa (1960) of two raters; with ``interval`` the weighted kappa (Cohen 1968) with squared distances.

    kappa = 1 - sum(v p) / sum(v e): p the shares of pairs of categories, e what the raters' own shares would give by
    chance, v the distances.

    Args:
        a, b: int [units], 0 to k - 1.
        weight: [resamples, units]; default one resample, each unit once.
    """
    w = np.ones((1, len(a))) if weight is None else weight
    pairs = np.zeros((len(a), k * k))
    pairs[np.arange(len(a)), a * k + b] = 1
    table = (w @ pairs).reshape(-1, k, k)
    total = np.maximum(table.sum((1, 2), keepdims=True), 1e-300)
    seen = table / total
    chance = seen.sum(2, keepdims=True) * seen.sum(1, keepdims=True)
    v = distances(k, metric)
    return _beyond((v * seen).sum((1, 2)), (v * chance).sum((1, 2)))


def alpha(ratings: I64, k: int, metric: Metric = "nominal", weight: F64 | None = None) -> F64:
    """Krippendorff's alpha (Content Analysis; "Computing Krippendorff's Alpha-Reliability", 2011, sections C and D).

    alpha = 1 - D_o / D_e over the coincidences of ratings within units; a unit with fewer than two ratings is left out.

    Args:
        ratings: int [units, raters], ``ABSENT`` where a rater did not rate.
        metric: ordinal distances are those of the section on ordinal data, which hang on how often each category
            occurs.
    """
    w = np.ones((1, len(ratings))) if weight is None else weight
    counts = (ratings[:, :, None] == np.arange(k)).sum(1).astype(float)
    many = counts.sum(1)
    inner = counts[:, :, None] * counts[:, None, :] - np.eye(k) * counts[:, :, None]
    inner *= np.where(many > 1, 1 / np.maximum(many - 1, 1), 0)[:, None, None]
    seen = (w @ inner.reshape(len(ratings), k * k)).reshape(-1, k, k)
    each = seen.sum(2)
    n = each.sum(1)
    chance = (each[:, :, None] * each[:, None, :] - np.eye(k) * each[:, :, None]) / np.maximum(n - 1, 1)[:, None, None]
    v = _ordinal(each) if metric == "ordinal" else distances(k, metric)[None]
    return _beyond((v * seen).sum((1, 2)), (v * chance).sum((1, 2)))


def _ordinal(each: F64) -> F64:
    """[resamples, k, k]: (all ratings from one category to the other, their own two counted half)²."""
    upto = np.cumsum(each, axis=1)
    places = np.arange(each.shape[1])
    low, high = np.minimum.outer(places, places), np.maximum.outer(places, places)
    between = upto[:, high] - upto[:, low] + each[:, low]
    apart: F64 = (between - (each[:, low] + each[:, high]) / 2) ** 2
    return apart


def _beyond(seen: F64, chance: F64) -> F64:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance > 1e-12, 1 - seen / np.where(chance > 1e-12, chance, 1), np.nan)


def by_cluster(clusters: npt.ArrayLike, resamples: int, seed: int = 0) -> F64:
    """Weights [resamples, units] of a bootstrap that draws whole clusters with replacement (Davison and Hinkley 1997,
    section 3.8)."""
    number = np.unique(np.asarray(clusters), return_inverse=True)[1]
    many = int(number.max(initial=-1)) + 1
    drawn = np.random.default_rng(seed).multinomial(many, np.full(many, 1 / max(many, 1)), size=resamples)
    return drawn[:, number].astype(float)

"""The statistics against libraries, against published figures, and in controls in which there is nothing to find."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.core.errors import BadInput
from clew.methods.compare import design
from clew.methods.compare.design import Count
from clew.methods.why import doses

pytest.importorskip("statsmodels", reason="did not run: statsmodels is not installed")

# Lazy commits by number of seeded errors, arXiv 2606.26071 (specs/E174, section 4).
ERRORS = [10, 28, 51, 77, 108, 124, 151, 182, 200, 224, 258]
LAZY = [0, 0, 0, 2, 2, 6, 7, 8, 7, 16, 23]
RUNS = [183, 191, 162, 169, 162, 169, 161, 146, 141, 163, 175]
counts = st.integers(1, 300).flatmap(lambda n: st.builds(Count, st.integers(0, n), st.just(n)))


@given(counts, counts, st.sampled_from([0.8, 0.95, 0.999]))
@settings(max_examples=60, deadline=None)
def test_intervals_are_those_of_statsmodels(a, b, level):
    from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

    theirs = proportion_confint(*a, alpha=1 - level, method="wilson")
    assert design.wilson(*a, level) == pytest.approx(np.clip(theirs, 0, 1), abs=1e-12)
    theirs = confint_proportions_2indep(*a, *b, method="newcomb", compare="diff", alpha=1 - level)
    assert design.newcombe(a, b, level) == pytest.approx(theirs, abs=1e-12)
    report = design.difference("d", a, b, level=level)
    assert report.low <= report.estimate <= report.high
    assert report.n == a.n + b.n


@given(counts, counts, st.sampled_from([0.2, 0.05, 0.003]))
@settings(max_examples=60, deadline=None)
def test_p_is_dual_to_the_interval(a, b, alpha):
    low, high = design.newcombe(a, b, 1 - alpha)
    p = design.p_value(a, b)
    if abs(p - alpha) > 1e-6:
        assert (p < alpha) == (low > 0 or high < 0)
    assert p == pytest.approx(design.p_value(b, a))


def test_newcombe_by_his_own_table():
    """Newcombe 1998, table II, method 10: 56/70 - 48/80, 9/10 - 3/10, 0/10 - 0/20."""
    assert design.newcombe(Count(56, 70), Count(48, 80)) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert design.newcombe(Count(9, 10), Count(3, 10)) == pytest.approx((0.1705, 0.8090), abs=5e-5)
    assert design.newcombe(Count(0, 10), Count(0, 20)) == pytest.approx((-0.1611, 0.2775), abs=5e-5)


def test_holm_by_hand():
    assert design.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert design.holm([]) == []


def test_holm_is_that_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    for seed, m in enumerate((1, 5, 12)):
        p = np.random.default_rng(seed).random(m) ** 3
        assert design.holm(p.tolist()) == pytest.approx(multipletests(p, method="holm")[1].tolist())


@pytest.mark.parametrize(
    ("p", "q", "n", "told"),
    [
        (0.469, 0.074, 20, 0.85),
        (0.469, 0.074, 50, 0.996),
        (0.131, 0.021, 50, 0.52),
        (0.131, 0.021, 100, 0.86),
        (0.768, 0.565, 50, 0.60),
        (0.768, 0.565, 100, 0.87),
        (0.469, 0.275, 100, 0.81),
    ],
)
def test_power_of_one_test(p, q, n, told):
    """specs/E174, section 6, which was simulated: two or three points of noise."""
    assert design.power(p, q, n) == pytest.approx(told, abs=0.035)


def test_power_without_a_difference_is_the_level_and_needed_inverts():
    assert design.power(0.4, 0.4, 200) == pytest.approx(0.05, abs=0.012)
    n = design.needed(0.469, 0.275, 0.8)
    assert design.power(0.469, 0.275, n) >= 0.8 > design.power(0.469, 0.275, n - 4)
    with pytest.raises(BadInput, match="told apart"):
        design.needed(0.3, 0.3)


def test_trend_of_the_published_sweep():
    assert doses.trend(ERRORS, LAZY, RUNS).z == pytest.approx(8.60, abs=0.005)
    assert doses.trend(np.log(ERRORS), LAZY, RUNS).z == pytest.approx(6.99, abs=0.005)
    assert doses.trend(ERRORS, [0] * 11, RUNS) == (0.0, 1.0)


def test_dose_response_of_the_published_sweep():
    found = doses.dose("lazy commits", ERRORS, LAZY, RUNS)
    log, linear = found.curve("log"), found.curve("linear")
    assert (log.slope, (log.high - log.low) / 2 / 1.959964) == pytest.approx((2.41, 0.39), abs=0.005)
    assert (log.likelihood, linear.likelihood) == pytest.approx((-257.7, -260.0), abs=0.05)
    assert log.aic < linear.aic
    assert 100 * log.at(ERRORS[:3]) == pytest.approx([0.01, 0.07, 0.29], abs=0.006)
    assert log.none(ERRORS[:3], RUNS[:3]) == pytest.approx(0.54, abs=0.005)
    assert design.wilson(0, sum(RUNS[:3]))[1] == pytest.approx(0.0071, abs=5e-5)
    assert found.slope.n == sum(RUNS)
    assert found.threshold is None, "smooth and tiny, no threshold at 50"


def test_a_planted_threshold_is_found_and_a_smooth_curve_has_none():
    levels, n = np.arange(1, 12) * 20.0, np.full(11, 200)
    knee = np.where(levels > 120, 0.02 + 0.006 * (levels - 120), 0.02)
    sharp = doses.dose("knee", levels, np.round(knee * n).astype(int), n)
    assert sharp.threshold is not None
    assert 80 <= sharp.threshold <= 140
    rng, declared = np.random.default_rng(1), 0
    smooth = 1 / (1 + np.exp(-(-8 + 1.5 * np.log(levels))))
    for _ in range(60):
        declared += doses.dose("smooth", levels, rng.binomial(n, smooth), n).threshold is not None
    assert declared <= 6, "at 5 % more than 6 of 60 come once in 25"


def test_counts_without_a_slope_are_refused():
    for hits in ([0, 0, 0], [5, 5, 5], [0, 0, 3], [0, 5, 5]):
        with pytest.raises(BadInput, match="no slope"):
            doses.dose("x", [1, 2, 3], hits, [5, 5, 5])
    with pytest.raises(BadInput, match="make no curve"):
        doses.dose("x", [1, 2], [1, 2], [5, 5])
    with pytest.raises(BadInput, match="no share"):
        design.rate("x", 3, 2)


def test_censoring_bounds_hold_the_truth_whatever_is_missing():
    rng = np.random.default_rng(0)
    for _ in range(200):
        outcome = rng.random(120) < 0.3
        seen = rng.random(120) < np.where(outcome, 0.95, 0.6)  # the hits end more often
        report = design.censored("x", int(outcome[seen].sum()), int(seen.sum()), int((~seen).sum()))
        assert report.low <= outcome.mean() <= report.high
        assert report.n == 120
    assert design.censored("x", 3, 10, 0).low == pytest.approx(design.wilson(3, 10)[0])


def test_ratio_and_clusters():
    six = design.ratio("source", Count(46, 98), Count(7, 95))
    assert six.estimate == pytest.approx(46 / 98 / (7 / 95))
    assert six.low < six.estimate < six.high
    with pytest.raises(BadInput, match="no bound"):
        design.ratio("x", Count(3, 10), Count(0, 10))
    values, clusters = [0.0] * 50 + [1.0] * 50, ["a"] * 50 + ["b"] * 50
    wide = design.clustered("x", values, clusters)
    assert (wide.low, wide.estimate, wide.high, wide.n) == (0.0, 0.5, 1.0, 2), "two clusters, not a hundred values"
    same = design.clustered("x", values, clusters, values)
    assert (same.low, same.high) == (0.0, 0.0)
    with pytest.raises(BadInput, match="no spread"):
        design.clustered("x", [1.0, 0.0], ["a", "a"])


def test_clustered_intervals_cover():
    rng, covered = np.random.default_rng(3), 0
    for seed in range(100):
        level = rng.normal(size=30)
        labels = np.repeat(np.arange(30), 5)
        report = design.clustered("x", level[labels] + rng.normal(size=150), labels.tolist(), seed=seed)
        covered += report.low <= 0.0 <= report.high
    assert covered >= 88


def test_counts_that_are_no_shares_are_refused_on_either_side():
    for one in (Count(3, 0), Count(4, 3), Count(-1, 3)):
        for pair in ((one, Count(1, 2)), (Count(1, 2), one)):
            for how in (
                design.newcombe,
                lambda a, b: design.difference("x", a, b),
                lambda a, b: design.ratio("x", a, b),
            ):
                with pytest.raises(BadInput, match="no share"):
                    how(*pair)
    for missing in (-1, -5):
        with pytest.raises(BadInput, match=f"{missing} trials cannot be missing"):
            design.censored("x", 3, 10, missing)
    report = design.censored("x", 3, 10, 5)
    assert (report.estimate, report.n) == (0.3, 15)
    assert (report.low, report.high) == pytest.approx((design.wilson(3, 15)[0], design.wilson(8, 15)[1]))
    assert design.censored("x", 3, 10, 5, level=0.5).high < report.high


def test_estimates_are_the_shares_themselves():
    """The interval around a share says nothing of the share: each estimate by hand, and the level it is told at."""
    assert design.rate("x", 3, 12).estimate == 0.25
    assert design.censored("x", 3, 12, 4).estimate == 0.25
    a, b = Count(46, 98), Count(7, 95)
    assert design.difference("x", a, b).estimate == pytest.approx(46 / 98 - 7 / 95)
    plain, told = design.ratio("x", a, b), design.ratio("x", a, b, level=0.95)
    assert (plain.low, plain.high, plain.level) == (told.low, told.high, 0.95)
    assert design.ratio("x", a, b, level=0.5).low > told.low


def test_the_smallest_p_and_the_smallest_study():
    least = design.p_value(Count(10**6, 10**6), Count(0, 10**6))
    assert sys.float_info.min < least < 1e-290  # a number of full precision, not one on its way to zero
    assert design.needed(0.0, 1.0, level=0.5) == 1
    for hits, n in ((4, 3), (0, 0)):
        with pytest.raises(BadInput, match=f"{hits} of {n} is no share"):
            design.censored("x", hits, n, 5)  # what is missing does not make up for it

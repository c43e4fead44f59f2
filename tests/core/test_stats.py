"""Intervals of shares and the AUROC, against their definitions and against scipy and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest

from clew.core import stats


def test_wilson_is_scipys_and_knows_nothing_of_no_trials():
    from scipy.stats import binomtest

    for hits, n, level in ((0, 1, 0.95), (3, 10, 0.9), (7, 7, 0.99), (50, 101, 0.95)):
        want = binomtest(hits, n).proportion_ci(level, method="wilson")
        assert stats.wilson(hits, n, stats.deviate(level)) == pytest.approx((want.low, want.high), abs=1e-12)
    assert [str(stats.wilson(0, n, stats.deviate(0.95))[0]) for n in range(1, 40)] == ["0.0"] * 39, "never -0"
    assert stats.wilson(4, 4, 1.96)[1] == 1
    assert stats.wilson(0, 0, 1.96) == (0, 1)
    low, high = stats.wilson(np.array([0.0, 0.0, 3.0]), np.array([0.0, 5.0, 10.0]), 1.96)
    assert low.tolist()[:2] == [0, 0]
    assert high.tolist()[0] == 1
    assert (low[2], high[2]) == stats.wilson(3, 10, 1.96)


def test_newcombe_is_statsmodels_and_one_side_may_be_empty():
    proportion = pytest.importorskip("statsmodels.stats.proportion", reason="did not run: no statsmodels")
    want = proportion.confint_proportions_2indep(56, 70, 48, 80, compare="diff", method="newcomb")
    assert stats.newcombe((56, 70), (48, 80), stats.deviate(0.95)) == pytest.approx(want, abs=1e-12)
    low, high = stats.newcombe((0, 0), (5, 5), 1.96)
    assert low <= -1 < 0 <= high
    grid = np.arange(4.0)[:, None], np.full((1, 1), 3.0)
    low, high = stats.newcombe(grid, (grid[0].T, grid[1]), 1.96)
    assert low.shape == (4, 4)
    assert np.allclose(low, -high.T)


def test_auroc_is_the_share_of_pairs_in_order_ties_half():
    assert stats.auroc([1.0, 1.0, 1.0, 0.0], [1, 1, 0, 0]) == 0.75
    rng = np.random.default_rng(0)
    score, won = rng.integers(0, 9, 40), rng.random(40) < 0.4
    pairs = [(a > b) + (a == b) / 2 for a in score[won] for b in score[~won]]
    assert stats.auroc(score, won) == pytest.approx(np.mean(pairs))
    weight = rng.integers(0, 3, 40)
    repeated = stats.auroc(np.repeat(score, weight), np.repeat(won, weight))
    assert stats.auroc(score, won, weight) == pytest.approx(repeated)
    assert np.isnan(stats.auroc(score, np.ones(40, bool)))


def test_a_share_of_nothing_is_one_half_between_0_and_1():
    (low_a, high_a), none = stats.wilson(3, 10, 1.96), (0, 0)
    low, high = stats.newcombe((3, 10), none, 1.96)
    assert low == pytest.approx(-0.2 - ((0.3 - low_a) ** 2 + 0.25) ** 0.5)
    assert high == pytest.approx(-0.2 + ((high_a - 0.3) ** 2 + 0.25) ** 0.5)
    assert stats.newcombe(none, (3, 10), 1.96) == pytest.approx((-high, -low))

"""The statistics of cliffs against their definitions, exact binomials, and released data."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from clew.methods.cliffs import Counts, statistics


def test_the_table_is_the_rule_written_out():
    grid = statistics.table(64)
    for k in range(65):
        for j in range(65):
            p, q = k / 64, j / 64
            error = (p * (1 - p) / 64 + q * (1 - q) / 64) ** 0.5
            assert grid[k, j] == (k > 0 and p - q > 0.1 + 1.6448536269514722 * error)
    assert np.argwhere(grid)[:, 0].min() == 12
    assert statistics.table(16).shape == (17, 17)
    assert not statistics.fires(Counts.all_decided([0], 64), Counts.all_decided([0], 64), margin=-0.5)[0], "k_prev > 0"


def test_false_alarms_and_power_are_exact():
    rates = [statistics.fire_rate(v, v) for v in (0.1, 0.2, 0.3, 0.5, 0.9)]
    assert rates == pytest.approx([1.9e-4, 1.15e-3, 2.3e-3, 2.96e-3, 1.9e-4], rel=0.02)
    assert [statistics.fire_rate(0.6, 0.6 - d) for d in (0.2, 0.3, 0.4)] == pytest.approx([0.32, 0.76, 0.97], abs=0.01)


def test_published_early_stop_fills_with_zeros_and_the_first_token_is_never_a_cliff():
    right = [0] + [60] * 3 + [0] * 25 + [64, 0]
    assert statistics.early_stop(right).tolist() == [0] + [60] * 3 + [0] * 27
    assert statistics.published(right).tolist() == [4]
    assert statistics.published(right, zeros=99).tolist() == [4, 30]
    assert 0 not in statistics.published([0, 0, 0])


def test_published_form_finds_what_its_authors_list(shared):
    listed, found = [], []
    with gzip.open(shared / "data" / "cliffs" / "paths.jsonl.gz", "rt") as file:
        for path in map(json.loads, file):
            right = np.round(np.array(path["potential"]) * path["n_rollouts"])
            listed += [(path["id"], c["position"]) for c in path["cliffs"]]
            found += [(path["id"], int(p)) for p in statistics.published(right, path["n_rollouts"])]
            for c in path["cliffs"]:
                assert (path["potential"][c["position"] - 1], path["potential"][c["position"]]) == (
                    c["before"],
                    c["after"],
                )
    assert set(listed) < set(found)
    assert [position for _, position in set(found) - set(listed)] == [34]


@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
@settings(max_examples=50, deadline=None)
def test_no_token_lowers_the_potential_by_more_than_its_bound(seed, width):
    rng = np.random.default_rng(seed)
    chance, value = rng.dirichlet(np.full(width, 0.3)), rng.random(width)
    drop = chance @ value - value
    assert (drop <= statistics.bound(chance) + 1e-12).all()
    assert not (drop[~statistics.can_fall(chance)] > statistics.MARGIN).any()


@pytest.mark.parametrize("n", [16, 64])
def test_the_score_test_keeps_its_size_where_the_published_one_does_not(n):
    k = np.arange(n + 1)
    first, second = np.meshgrid(k, k, indexing="ij")
    rejects = statistics.p_values(Counts.all_decided(first, n), Counts.all_decided(second, n)) <= 0.05
    sizes = [binom.pmf(k, n, v + 0.1) @ rejects @ binom.pmf(k, n, v) for v in np.linspace(0, 0.9, 31)]
    published = [statistics.fire_rate(v + 0.1, v, n) for v in np.linspace(0, 0.9, 31)]
    assert max(sizes) < 0.058
    assert np.mean(sizes) > 0.03, "it is not merely timid"
    if n == 16:
        assert max(published) > 0.07


def test_p_values_by_brute_force():
    before, after = Counts.all_decided(40, 64), Counts.all_decided(22, 50)
    q = np.linspace(1e-6, 0.9 - 1e-6, 400_001)
    p = q + 0.1
    likelihood = 40 * np.log(p) + 24 * np.log(1 - p) + 22 * np.log(q) + 28 * np.log(1 - q)
    best = q[likelihood.argmax()]
    spread = (best + 0.1) * (0.9 - best) / 64 + best * (1 - best) / 50
    z = (40 / 64 - 22 / 50 - 0.1) / np.sqrt(spread * 114 / 113)
    from scipy.stats import norm

    assert float(statistics.p_values(before, after)) == pytest.approx(norm.sf(z), abs=1e-6)


def test_undecided_leaves_n_and_is_never_wrong():
    outcomes = [np.array([1, 1, 0, np.nan], np.float32), np.full(4, np.nan, np.float32)]
    counts = Counts.of(outcomes)
    assert counts.n.tolist() == [3, 0]
    assert counts.undecided.tolist() == [1, 4]
    assert counts.potential[0] == pytest.approx(2 / 3)
    assert np.isnan(counts.potential[1])
    sure = Counts.all_decided([64, 64], 64)
    silent = Counts(*(np.array(x) for x in ([0, 0], [0, 64], [64, 0])))
    assert statistics.fires(sure, silent).tolist() == [False, True]
    assert statistics.p_values(sure, silent)[0] == 1
    assert [x.tolist() for x in statistics.wilson([0], [0])] == [[0.0], [1.0]]


def test_a_fresh_batch_and_the_correction_reject_noise():
    rng = np.random.default_rng(0)
    n = 20_000
    screen = [Counts.all_decided(rng.binomial(64, 0.5, n), 64) for _ in range(2)]
    hits = int(statistics.fires(*screen).sum())
    assert 30 < hits < 90, "noise alone"
    fresh = [Counts.all_decided(rng.binomial(64, 0.5, hits), 64) for _ in range(2)]
    assert statistics.confirmed(*fresh).sum() == 0
    true = Counts.all_decided(rng.binomial(64, 0.9, 30), 64), Counts.all_decided(rng.binomial(64, 0.2, 30), 64)
    assert statistics.confirmed(*true).all()
    assert statistics.adjusted([]).shape == (0,)
    assert statistics.adjusted([0.01, 0.04, 0.5]).tolist() == pytest.approx([0.03, 0.06, 0.5])


def test_taxonomy_entropy_and_rank():
    assert statistics.kind(0.05, 1) == "deterministic"
    assert statistics.kind(0.06, 1) == "uncertain"
    assert statistics.kind(0.06, 2) == "sampled-off"
    assert statistics.kind(0.01, 3) == "other"
    assert pytest.approx(0.0560, abs=1e-4) == statistics.BOUNDARY
    assert statistics.entropy(np.log([0.5, 0.25])) == pytest.approx(-0.5 * np.log(0.5) - 0.25 * np.log(0.25))
    assert statistics.entropy([0.0, -np.inf]) == 0
    assert statistics.rank([-1.0, -1.0, -2.0], -1.0) == 1
    assert statistics.rank([-1.0, -1.0, -2.0], -2.0) == 3


def test_intervals_hold_their_level():
    rng = np.random.default_rng(1)
    p, q, n = 0.8, 0.35, 40
    first, second = (Counts.all_decided(rng.binomial(n, v, 4000), n) for v in (p, q))
    low, high = statistics.drop_interval(first, second)
    assert 0.93 < np.mean((low <= p - q) & (p - q <= high)) < 0.98
    low, high = statistics.wilson(first.right, n)
    assert 0.92 < np.mean((low <= p) & (p <= high)) < 0.98

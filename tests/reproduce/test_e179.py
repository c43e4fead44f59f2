"""The simulated server: known cases by hand, planted traffic, and a control in which the scheduler gains nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.models.engine.speculation.costs import Costs
from clew.models.engine.speculation.lengths import Fixed, Scheduler
from papers.E179_dspark.simulate import Traffic, closed, poisson, simulate, survival

SIZES = tuple(range(1, 2049))
SMOOTH = Costs(
    SIZES, tuple(18e-3 + 6e-5 * s for s in SIZES), (1, 256), (18e-3, 33e-3), (2e-3, 2e-3 + 7 * 4e-6 * 255), 7
)  # fmt: skip
SURE = Traffic(domains=((1.0, 50.0),), spread=0.0, jitter=0.0, tokens=10_000)


def test_sure_drafts_take_the_time_the_table_says():
    load = closed(SMOOTH, SURE, Fixed(7), 16, rounds=50)
    seconds = float(SMOOTH.verify_seconds(16 * 8) + SMOOTH.draft_seconds(16))
    assert load.throughput == pytest.approx(16 * 8 / seconds, rel=1e-2)
    assert (load.verified, load.drafted, load.rows) == (8.0, 1.0, 16.0)
    plain = closed(SMOOTH, SURE, Fixed(0), 16, rounds=50)
    assert plain.throughput == pytest.approx(16 / float(SMOOTH.plain_seconds(16)))
    assert plain.speed == pytest.approx(plain.throughput / 16)


def test_tokens_of_a_round_are_what_acceptance_makes_them():
    traffic = Traffic(domains=((1.0, 1.5),), tokens=10_000)
    load = closed(SMOOTH, traffic, Fixed(7), 256, rounds=60)
    assert load.emitted == pytest.approx(1 + survival(1.5, 1.0, 0.7, 7).sum(), abs=0.08)


def test_default_traffic_accepts_what_the_paper_reports():
    for (_, mean), tau in zip(Traffic().domains, (5.57, 5.12, 3.49), strict=True):
        assert 1 + survival(mean, 1.0, 0.7, 7).sum() == pytest.approx(tau, abs=0.01)


def test_traffic_like_a_drafter():
    planted = survival(1.2, 0.9, 0.7, 7)
    found = Traffic.like((planted / np.concatenate([[1.0], planted[:-1]])).tolist())
    ((_, mean),) = found.domains
    assert (mean, found.spread) == pytest.approx((1.2, 0.9), abs=0.02)
    with pytest.raises(BadInput, match="chances of acceptance"):
        Traffic.like([0.5, 1.5])


def test_the_scheduler_beats_every_fixed_length_where_load_and_difficulty_vary():
    best = max(closed(SMOOTH, Traffic(), Fixed(k), 128, seed=1).throughput for k in (3, 4, 5))
    assert closed(SMOOTH, Traffic(), Scheduler(SMOOTH), 128, seed=1).throughput > 1.04 * best


def test_it_gains_nothing_from_the_confidences_of_others():
    blind = Traffic(blind=True)
    best = max(closed(SMOOTH, blind, Fixed(k), 128, seed=1).throughput for k in (3, 4, 5))
    assert closed(SMOOTH, blind, Scheduler(SMOOTH), 128, seed=1).throughput < 1.01 * best


def test_it_verifies_everything_where_that_costs_nothing():
    flat = replace(SMOOTH, verify=(18e-3,) * len(SIZES), plain=(18e-3,) * 2)
    assert closed(flat, Traffic(), Scheduler(flat), 64).verified > 7.95


def test_random_arrivals_wait_where_rows_are_few():
    light = poisson(SMOOTH, Traffic(), Fixed(3), 2.0, requests=60, promised=50.0)
    heavy = poisson(SMOOTH, Traffic(), Fixed(3), 20.0, requests=60, rows=4, promised=50.0)
    assert light.wait < 0.05
    assert light.met > 0.95
    assert heavy.wait > 1
    assert heavy.met < 0.3
    assert heavy.rows <= 4


def test_every_policy_meets_the_same_traffic():
    loads = simulate(SMOOTH, (8,), policies=("none", "fixed(k=1)"), seeds=2, rounds=40)
    again = simulate(SMOOTH, (8,), policies=("none", "fixed(k=1)"), seeds=2, rounds=40)
    assert loads == again
    assert [(x.policy, x.seed) for x in loads] == [("none", 0), ("none", 1), ("fixed(k=1)", 0), ("fixed(k=1)", 1)]

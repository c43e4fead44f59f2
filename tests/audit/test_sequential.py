"""Limits of a mean that hold at all looks: their error over planted truths, beside the interval one makes by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import compare as bench
from clew.core.errors import BadInput
from clew.methods.compare.design import wilson
from clew.methods.compare.sequential import (
    FRACTIONS,
    SHARES,
    Limits,
    limits_of_difference,
    limits_of_mean,
    pairs_that_decide,
)

LOOKS = range(4, 129, 4)
verdicts = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=40)
signs = st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=40)


def slow(values: list[float], level: float = 0.95) -> tuple[float, float]:
    """The outermost of 1,000 candidate means that the bets, one value after another, leave standing."""
    standing = []
    for m in np.linspace(0.0005, 0.9995, 1000):
        more, less = np.ones(len(FRACTIONS)), np.ones(len(FRACTIONS))
        for x in values:
            more *= 1 + FRACTIONS * (x / m - 1)
            less *= 1 + FRACTIONS * ((1 - x) / (1 - m) - 1)
        if max(SHARES @ more, SHARES @ less) / 2 < 1 / (1 - level):
            standing.append(float(m))
    return standing[0], standing[-1]


@pytest.mark.whole
@given(verdicts)
def test_the_limits_are_where_the_bets_one_by_one_refute(values):
    low, high = slow(values)
    found = limits_of_mean(values)
    assert found.low == pytest.approx(low, abs=0.0016)
    assert found.high == pytest.approx(high, abs=0.0016)


@given(signs, st.randoms())
def test_neither_order_nor_the_name_of_an_arm_counts(differences, random):
    found = limits_of_difference(differences)
    assert -1 <= found.low <= found.mean <= found.high <= 1
    turned = limits_of_difference([-d for d in differences])
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low), abs=1e-9)
    random.shuffle(differences)
    assert limits_of_difference(differences) == found
    wider = limits_of_difference(differences, 0.99)
    assert wider.low <= found.low
    assert wider.high >= found.high


def test_what_is_decided_in_words():
    assert Limits(0.3, 0.1, 0.5, 9).outcome() == "better"
    assert Limits(-0.3, -0.5, -0.1, 9).outcome(0.2) == "worse"
    assert Limits(0.0, -0.05, 0.05, 9).outcome(0.1) == "equal"
    assert Limits(0.0, -0.05, 0.05, 9).outcome() == "open"
    assert limits_of_difference([]) == Limits(0.0, -1.0, 1.0, 0)
    assert limits_of_difference([0.0] * 4000).outcome(0.01) == "equal"


@pytest.mark.parametrize("bad", [[0.0, 1.5], [float("nan")], [-2.0]])
def test_what_is_no_difference_of_verdicts_is_refused(bad):
    with pytest.raises(BadInput, match="outside"):
        limits_of_difference(bad)


@pytest.mark.parametrize("differences", [[1.0, 1.0, 0.0, -1.0], [0.5, 0.25, -0.25, 0.0, 0.0], [1.0]])
def test_the_number_that_would_decide_decides_and_a_smaller_one_does_not(differences):
    n = pairs_that_decide(differences)
    assert n is not None
    times = -(-n // len(differences))
    assert limits_of_difference(differences * times).outcome() == "better"
    assert limits_of_difference(differences * ((n - 1) // len(differences))).outcome() == "open"


def test_no_number_decides_between_equals_unless_equality_is_asked_for():
    assert pairs_that_decide([1.0, -1.0]) is None
    assert pairs_that_decide([]) is None
    n = pairs_that_decide([1.0, -1.0, 0.0, 0.0], margin=0.2)
    assert n is not None
    assert limits_of_difference([1.0, -1.0, 0.0, 0.0] * (n // 4 + 1)).outcome(0.2) == "equal"


@pytest.mark.whole
def test_over_600_null_comparisons_the_error_is_as_stated_and_that_of_t_at_each_look_is_not():
    found = bench.simulated(0.5, 0.5, LOOKS[-1], 600)
    wrong = {rule: sum(outcome != "open" for outcome, _ in each) for rule, each in found.items()}
    shares = {rule: wilson(hits, 600) for rule, hits in wrong.items()}
    print({rule: (wrong[rule] / 600, *shares[rule]) for rule in wrong})
    assert shares["compare"][1] < 0.05
    assert shares["t at each look"][0] > 0.2


@pytest.mark.whole
def test_a_difference_of_three_tenths_is_found_and_early():
    found = bench.simulated(0.35, 0.65, LOOKS[-1], 500)["compare"]
    right, taken = sum(outcome == "better" for outcome, _ in found), [n for _, n in found]
    print(right, np.mean(taken))
    assert wilson(right, 500)[0] > 0.95
    assert not any(outcome == "worse" for outcome, _ in found)
    assert np.mean(taken) < 60


@pytest.mark.whole
def test_the_true_difference_of_verdicts_between_0_and_1_is_inside_at_all_looks():
    rng, missed, n = np.random.default_rng(3), 0, 300
    for _ in range(n):
        worth = rng.beta(0.5, 1.0, 64) - rng.beta(0.5, 0.5, 64)
        each = [limits_of_difference(worth[:look]) for look in range(4, 65, 4)]
        missed += any(not it.low <= 1 / 3 - 1 / 2 <= it.high for it in each)
    assert wilson(missed, n)[1] < 0.07
    assert each[-1].high - each[-1].low < 0.7

"""Gates: what replaces a judge, what noise may do, and what an anchor can tell."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.methods.coevolve import Challenge, Rules, rule
from clew.methods.coevolve.anchor_coverage import coverage, use_of
from clew.methods.coevolve.beliefs import best_belief
from clew.methods.coevolve.judge_gates import sign_tail
from clew.methods.compare.design import mcnemar


def challenge(right, names=None):
    right = np.array(right, bool)
    n = right.shape[1]
    return Challenge(right, names or list(range(len(right))), (range(n // 2), range(n // 2, n)))


def replaced(gate, challengers, n, searches, checkpoints=10, p=0.75):
    """Share of searches of equal judges in which one was replaced, and of checkpoints."""
    rng, hit, times = np.random.default_rng(1), 0, 0
    for _ in range(searches):
        kept, any_ = {}, 0
        for k in range(checkpoints):
            right = rng.random((1 + challengers, n)) < p
            names = [0, *range(1 + k * challengers, 1 + (k + 1) * challengers)]
            ruling = rule(gate, challenge(right, names), kept)
            kept = dict(ruling.kept)
            any_ += ruling.winner > 0
        hit += any_ > 0
        times += any_
    return hit / searches, times / searches / checkpoints


def test_the_published_gate_replaces_by_noise_and_confirmation_does_not():
    assert 0.38 < replaced("bb", 1, 100, 100)[1] < 0.55
    assert replaced("bb", 20, 100, 40)[1] > 0.85
    assert replaced("paired", 20, 100, 40)[0] > 0.5, "no correction for challengers or checkpoints"
    assert replaced("confirm", 20, 100, 300)[0] <= 0.08, "5 % and the luck of 300 searches"


def test_a_better_judge_is_confirmed_and_earns_the_next_test():
    rng = np.random.default_rng(0)
    truth = rng.random(100) < 0.55
    better = truth | (rng.random(100) < 0.8)
    ruling = rule("confirm", challenge([truth, better]), {})
    assert ruling.winner == 1
    assert ruling.p <= ruling.level < 0.05 < ruling.kept["wealth"]
    again = rule("confirm", challenge([truth, better]), {**ruling.kept, "wealth": 0.01})
    assert again.winner == 0, "the same pair on the same items is not tested twice"
    assert math.isnan(again.p)


@pytest.mark.parametrize("gate", ["bb", "paired", "confirm", "never"])
def test_ties_keep_the_incumbent(gate):
    same = np.random.default_rng(0).random(60) < 0.7
    assert rule(gate, challenge([same] * 5), {}).winner == 0


def test_wealth_is_never_more_than_was_earned():
    kept, levels = {}, []
    worse, better = np.r_[np.ones(55), np.zeros(45)], np.r_[np.ones(60), np.zeros(40)]
    worse[50:], better[50:] = np.arange(50) % 2, (np.arange(50) + 1) % 2  # nominated, not confirmed
    worse[:10] = 0
    for k in range(6):
        ruling = rule("confirm", challenge([worse, better], [0, k + 1]), kept)
        kept = dict(ruling.kept)
        levels.append(ruling.level)
    assert sum(levels) < 0.05
    assert levels == sorted(levels, reverse=True)


def test_the_exact_tail_is_that_of_mcnemar():
    for up, down in ((0, 0), (3, 0), (7, 2), (2, 9), (40, 22)):
        assert sign_tail(up, down) == pytest.approx(mcnemar(up, down, one_sided=True))


def test_best_belief_rises_with_every_right_answer():
    found = best_belief(np.arange(101), 100 - np.arange(101))
    assert (np.diff(found) > 0).all()
    assert best_belief(0, 0) == pytest.approx(0.05)


def test_coverage_names_the_direction_that_the_anchor_leaves_free():
    rng = np.random.default_rng(0)
    people = np.column_stack([rng.normal(0, 1, 200), rng.normal(0, 0.2, 200)])
    made = np.column_stack([rng.normal(0, 1, 200), rng.normal(3, 1.0, 200)])
    assert [d.flagged for d in coverage(people, made, ["quality", "gloss"])] == [False, True]
    with pytest.raises(BadInput, match="cues of shape"):
        coverage(people, made, ["quality"])


def test_an_anchor_that_was_asked_too_often_says_so():
    assert not use_of(20, 400).spent
    assert use_of(20, 401).spent
    assert use_of(100, 1).bound == 0 < use_of(100, 50).bound < 0.2


@pytest.mark.parametrize("rules", [{"gate": "luck"}, {"alpha": 2}, {"ratio": 0.5}, {"guard": -1}, {"batch": 0}])
def test_rules_without_a_meaning_are_refused(rules):
    with pytest.raises(BadInput):
        Rules(**rules)
    with pytest.raises(BadInput, match="no gate"):
        rule("luck", challenge([[1], [1]]), {})

"""The cross-fitted headroom: it finds what was planted, and nothing where workers differ by luck or by rank alone."""

from __future__ import annotations

import numpy as np
import pytest

from clew.methods.routing.headroom import headroom
from clew.methods.routing.reward_matrix import Matrix

SAME = [[0.6, 0.6, 0.6], [0.6, 0.6, 0.6]]  # chances of success, family by worker
RANKED = [[0.8, 0.7, 0.4], [0.6, 0.5, 0.2]]
CROSSED = [[0.9, 0.4, 0.6], [0.4, 0.9, 0.6]]


def pool(chances, samples, seed, questions=150):
    """A pool whose workers succeed by family; questions of one family differ in how hard they are, for all alike."""
    rng = np.random.default_rng(seed)
    family = rng.integers(0, 2, questions)
    hard = rng.normal(0, 1, questions)
    odds = np.log(np.array(chances) / (1 - np.array(chances)))[family] + hard[:, None]
    rewards = (rng.random((*odds.shape, samples)) < (1 / (1 + np.exp(-odds)))[:, :, None]).astype(float)
    names = tuple(f"question {i}" for i in range(questions))
    kinds = tuple("ab"[k] for k in family)
    return Matrix(names, names, kinds, ("one", "two", "three"), rewards, np.full(rewards.shape, np.nan))


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_a_planted_headroom_is_found(samples):
    found = headroom(pool(CROSSED, samples, 1))
    assert found.found
    assert found.way == ("families" if samples == 1 else "samples")
    assert 0.05 < found.report.estimate < 0.4
    assert found.report.low <= found.report.estimate <= found.report.high


@pytest.mark.parametrize("samples", [1, 3])
def test_where_there_is_none_none_is_found_though_the_luckiest_answer_looks_better(samples):
    """At 2.5 % each, more than 5 of 40 pools would be found once in a thousand times."""
    pools = [pool((SAME, RANKED)[seed % 2], samples, seed) for seed in range(40)]
    assert sum(headroom(one, seed).found for seed, one in enumerate(pools)) <= 5
    means = pools[0].means
    assert means.max(1).mean() - means.mean(0).max() > 0.1  # what a plain maximum would have claimed


def test_an_oracle_of_few_samples_leans_on_the_family():
    """One that trusted two or three answers to each question would do worse than the best worker always."""
    found = headroom(pool([[0.9, 0.75, 0.7], [0.3, 0.8, 0.7]], 3, 2, questions=300))
    assert found.way == "samples"
    assert found.found


def test_one_sample_and_no_families_leave_it_open():
    one = pool(CROSSED, 1, 1)
    nameless = Matrix(one.questions, one.texts, ("",) * len(one), one.workers, one.rewards, one.costs)
    assert headroom(nameless) is None


def test_a_sample_that_chose_does_not_score():
    """With two samples of which one is right, whoever is chosen by the right one is scored by the wrong one."""
    rewards = np.tile([[[1.0, 0.0], [0.0, 1.0]]], (30, 1, 1))
    names = tuple(map(str, range(30)))
    made = headroom(Matrix(names, names, names, ("a", "b"), rewards, rewards * np.nan))
    assert made.report.high < 0.3  # an oracle that saw both samples would gain a half

"""Rewards of a file as a matrix: samples side by side, missing ones missing, and plain refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clew.core.errors import BadInput, BadRecord
from clew.methods.routing import reward_matrix
from clew.methods.routing.reward_matrix import from_rows


def row(question, worker, reward, **more):
    return {"question": question, "worker": worker, "reward": reward} | more


def read(*rows, columns=()):
    return from_rows(list(enumerate(rows, 1)), columns)


def test_rows_become_samples_of_pairs():
    found = read(
        row("q", "a", 1, family="f", cost=0.5, answer="4"), row("q", "a", 0.0, family="f", cost=1.5, answer="5"),
        row("q", "b", True, family="f"), row("r", "a", "0.25", sample=1), row("r", "a", 0.25, sample=1),
        row("r", "b", 0),
    )  # fmt: skip
    assert found.workers == ("a", "b")
    assert found.families == ("f", "")
    assert found.means.tolist() == [[0.5, 1.0], [0.25, 0.0]]
    assert found.counts.tolist() == [[2, 1], [1, 1]]  # a sample given twice counts once
    assert found.answers[0][0] == ("4", "5")
    assert found.prices is None


def test_a_sample_that_has_two_rewards_is_refused_and_not_dropped():
    with pytest.raises(BadRecord, match="line 2 gives sample 0 of a another reward"):
        read(row("q", "a", 1, sample=0), row("q", "a", 0, sample=0), row("q", "b", 1))


def test_a_question_that_a_worker_has_no_reward_for_is_left_out_and_told():
    found = read(row("q", "a", 1), row("q", "b", 1), row("r", "a", 0))
    assert found.texts == ("user: q\n",)
    assert found.notes == ("1 questions are left out: some worker has no reward for them",)


def test_columns_of_rewards_are_workers():
    found = read({"prompt": "q", "subject": "s", "x": True, "y": False}, columns=("x", "y"))
    assert found.workers == ("x", "y")
    assert found.means.tolist() == [[1.0, 0.0]]
    assert found.families == ("s",)


def test_one_text_in_two_families_is_two_questions():
    rows = [row("q", worker, 1, family=family) for family in "st" for worker in "ab"]
    assert read(*rows).families == ("s", "t")


def test_costs_of_every_pair_are_prices():
    found = read(row("q", "a", 1, cost=1), row("q", "a", 1, cost=2), row("q", "b", 1, cost=0))
    assert np.allclose(found.prices, [[1.5, 0.0]])


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ([{"worker": "a", "reward": 1}], BadRecord, "line 1 has no question"),
        ([{"question": "q", "reward": 1}], BadRecord, "line 1 names no worker"),
        ([row("q", "a", "much")], BadRecord, "line 1: the reward is 'much', no finite number"),
        ([row("q", "a", math.nan)], BadRecord, "no finite number"),
        ([row("q", "a", 1, cost="free")], BadRecord, "line 1: the cost is 'free'"),
        ([row("q", "a", 1)], BadInput, "the pool is a alone"),
        ([], BadInput, "the pool is empty"),
        ([row("q", "a", 1), row("r", "b", 1)], BadInput, "no question was answered by every worker"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(rows, error, said):
    with pytest.raises(error, match=said):
        read(*rows)


def test_a_matrix_of_mostly_missing_places_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(reward_matrix, "MOST", 20)
    rows = [row(f"q{i}", worker, 1) for i in range(5) for worker in "ab"] + [row("q0", "a", 1)] * 4
    with pytest.raises(BadInput, match="5 questions of 2 workers with up to 5 samples are too many"):
        read(*rows)


def test_two_matrices_have_one_label_only_if_they_are_equal():
    one, other = (read(row("q", "a", 1), row("q", "b", r)) for r in (0, 1))
    assert one.label == read(row("q", "a", 1), row("q", "b", 0)).label != other.label

"""`clew audit grade`: scores that tell nothing, or nothing of the runs of one task, are never said to order them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from clew.methods.grade.grade import ordering, picking

Draw = np.random.Generator
Rows = tuple[dict[str, npt.NDArray[np.float64]], npt.NDArray[np.bool_], npt.NDArray[np.int64]]
TASKS, RUNS = 24, 8


def rows(rng: Draw, skill: float = 0.0, hard: float = 0.0, alone: float = 0.0, tasks: int = TASKS) -> Rows:
    """Runs of tasks of which some are hard. ``skill``: what the score knows of a run's success at its task; ``hard``:
    what it knows of the task; ``alone``: what the policy's logprob knows of the success."""
    task = np.repeat(np.arange(tasks), RUNS)
    ease = rng.normal(0, 1.5, tasks)[task]
    won = rng.random(len(task)) < 1 / (1 + np.exp(-ease))
    noise = {name: rng.normal(0, 1, len(task)) for name in ("score", "policy alone", "shortness alone")}
    noise["score"] += skill * won + hard * ease
    noise["policy alone"] += alone * won
    return noise, won, task


def says_better(scores: Rows) -> bool:
    return "the score orders runs of a task better than chance" in " ".join(ordering(*scores).told)


def test_a_score_that_only_tells_hard_tasks_from_easy_ones_is_not_said_to_order_runs() -> None:
    seen = 0
    for seed in range(20):
        scores, won, task = rows(np.random.default_rng(seed), hard=2.0)
        found = ordering(scores, won, task)
        assert abs(found.within["score"].estimate - 0.5) < 0.2
        seen += says_better((scores, won, task))
    assert seen <= 2, "2.5 % of 20 searches by chance"


def test_noise_is_not_said_to_order_runs() -> None:
    assert sum(says_better(rows(np.random.default_rng(seed))) for seed in range(20)) <= 2


@pytest.mark.parametrize("won", [np.ones(64, bool), np.zeros(64, bool), np.repeat([True, False], 32)])
def test_where_no_task_has_both_ends_nothing_is_said(won: npt.NDArray[np.bool_]) -> None:
    """All succeed, all fail, or each task always ends in the same way."""
    score = np.random.default_rng(0).normal(size=64) + 5 * won
    found = ordering({"score": score, "policy alone": score}, won, np.repeat(np.arange(8), 8))
    assert not found.comparisons.tested
    assert "was not tested" in found.told[0]
    assert found.within == found.as_good == {}


def test_runs_without_a_reward_are_not_tested() -> None:
    empty = np.zeros(0)
    assert "was not tested: no run has a reward" in ordering({"score": empty}, empty, empty).told[0]


def test_one_model_given_twice_is_not_tested() -> None:
    scores, won, task = rows(np.random.default_rng(0))
    found = ordering(scores | {"score": np.zeros(len(won))}, won, task)
    assert not found.comparisons.tested
    assert "the score is equal in each of them" in found.told[0]


def test_one_task_in_the_right_order_is_no_proof() -> None:
    won = np.tile([True, False], RUNS)
    found = ordering({"score": won + 0.0}, won, np.repeat([0, 1], RUNS))
    assert found.within["score"].estimate > 0.9
    assert "is not shown to order" in found.told[0]
    assert "fewer than 5 tasks" in found.told[0]


def test_where_the_policys_logprob_alone_orders_better_it_is_said_with_the_difference() -> None:
    found = ordering(*rows(np.random.default_rng(0), skill=0.4, alone=3.0))
    assert found.as_good["policy alone"].low is not None
    assert found.as_good["policy alone"].low > 0
    assert any(line.startswith("policy alone orders them better: +") for line in found.told)
    assert "shortness alone" not in found.as_good


def test_a_planted_score_is_found_and_nothing_simpler_named() -> None:
    for seed in range(5):
        found = ordering(*rows(np.random.default_rng(seed), skill=2.0))
        assert found.told[0].startswith("the score orders runs of a task better than chance")
        assert found.as_good == {}
        assert "could differ" in found.told[0]


def test_what_picking_gains_is_said_only_where_it_is_shown() -> None:
    gained = dict[float, int]()
    for skill in (0.0, 2.0):
        each = [rows(np.random.default_rng(seed), skill=skill, hard=2.0) for seed in range(20)]
        told = [picking(scores["score"], won, task).told for scores, won, task in each]
        gained[skill] = sum("picking by the score gains" in line for line in told)
    assert gained[0.0] <= 2
    assert gained[2.0] == 20


def test_picking_where_all_of_a_group_are_alike_or_scores_are_equal_is_not_tested() -> None:
    scores, won, task = rows(np.random.default_rng(0), skill=2.0)
    alike = picking(scores["score"], task % 2, task)
    equal = picking(np.zeros(len(won)), won, task)
    for found in (alike, equal):
        assert not found.comparisons.tested
        assert found.told.startswith("what picking gains was not tested")

"""Credit that compares by turn index where the policy itself decides when the run ends: exact, by enumeration.

Where a state key tells no more than which turn it is, node comparisons compare the runs that are still going at that
turn. The expected gradient of each estimator is summed here over every group that a two-turn policy can make, and held
against the derivative of the expected reward. The control has the same rewards and the same policy, but a run always
takes both turns: there nobody leaves, and the effect must vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import comb

import numpy as np
import pytest

from clew.credit import Move, Path, Term, advantages, from_paths, presets

STOP = 0.8  # probability of "s" at either turn: one weight for both, as a network shares its weights
RUNS = 3
REWARD = {"s": 0.7, "gs": 1.0, "gg": 0.0}  # stopping at once is good, going on once and then stopping is better
FIXED = {"ss": 0.7, "sg": 0.7, "gs": 1.0, "gg": 0.0}  # the same, and the second turn is taken after "s" as well
RETURNS = {  # estimators that compare what followed, undiscounted, with means (so that only the reference set differs)
    "gigpo": presets.gigpo(1.0, 1.0, "mean")[1:],
    "hgpo": presets.hgpo(1, 0.0, 1.0, "mean")[:1],
    "gagpo": presets.gagpo(1.0, 1.0, "mean"),
}
PARTS = {"g2po NC": presets.g2po(1.0, 1.0, "mean")[1:2], "bellman": presets.bellman(1.0, 1.0, "mean")}


def probability(actions: str) -> float:
    return float(np.prod([STOP if action == "s" else 1 - STOP for action in actions]))


def score(action: str) -> float:
    """Derivative of the action's log-probability by the logit of "s"."""
    return 1 - STOP if action == "s" else -STOP


def truth(reward: dict[str, float]) -> np.ndarray:
    """The derivative of the expected reward by the logit of "s", in the parts that the two turns contribute."""
    out = np.zeros(2)
    for actions, value in reward.items():
        for t, action in enumerate(actions):
            out[t] += probability(actions) * score(action) * value
    return out


def expected(spec: Sequence[Term], reward: dict[str, float]) -> np.ndarray:
    """The same as the estimator gives it, in expectation over all groups of ``RUNS`` runs; the state is the turn."""
    out = np.zeros(2)
    for group in product(reward, repeat=RUNS):
        paths = []
        for actions in group:
            moves = [Move(t, action, reward[actions] * (t == len(actions) - 1)) for t, action in enumerate(actions)]
            paths.append(Path(moves, reward[actions]))
        value, _ = advantages(from_paths([paths]), spec)
        steps = [(t, action) for actions in group for t, action in enumerate(actions)]
        for (t, action), advantage in zip(steps, value, strict=True):
            out[t] += np.prod([probability(actions) for actions in group]) * score(action) * advantage / RUNS
    return out


def share(alive: float) -> float:
    """E[(M - 1) / M] of a run's reference set of M runs, where each other run is in it with probability ``alive``."""
    others = range(RUNS)
    return sum(comb(RUNS - 1, k) * alive**k * (1 - alive) ** (RUNS - 1 - k) * k / (k + 1) for k in others)


def test_the_enumeration_is_complete() -> None:
    for reward in (REWARD, FIXED):
        assert sum(map(probability, reward)) == pytest.approx(1)
        assert truth(dict.fromkeys(reward, 1.0)).sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("reward", [REWARD, FIXED], ids=["the policy ends it", "fixed length"])
def test_comparing_whole_runs_is_unbiased_up_to_a_constant(reward: dict[str, float]) -> None:
    assert expected(presets.grpo("mean"), reward) == pytest.approx(truth(reward) * (RUNS - 1) / RUNS, abs=1e-12)


@pytest.mark.parametrize("name", RETURNS)
def test_a_turn_that_few_runs_reach_counts_less_and_can_turn_the_gradient_round(name: str) -> None:
    true, found = truth(REWARD), expected(RETURNS[name], REWARD)
    assert found == pytest.approx(true * [share(1.0), share(1 - STOP)], abs=1e-8)
    assert share(1 - STOP) < share(1.0) / 3
    assert true.sum() > 0.01
    assert found.sum() < -0.004, "more stopping is better, and the estimator asks for less"


@pytest.mark.parametrize("name", RETURNS)
def test_it_vanishes_where_every_run_takes_every_turn(name: str) -> None:
    assert expected(RETURNS[name], FIXED) == pytest.approx(truth(FIXED) * (RUNS - 1) / RUNS, abs=1e-8)


@pytest.mark.parametrize("name", PARTS)
def test_values_of_a_turn_give_no_credit_to_what_only_a_later_turn_shows(name: str) -> None:
    """Another fault of the same key, which the control keeps: to the value of turn 1 all first actions are alike."""
    assert truth(FIXED)[0] < -0.01
    assert expected(PARTS[name], FIXED)[0] == pytest.approx(0, abs=1e-8)

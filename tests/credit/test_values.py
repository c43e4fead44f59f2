"""Node values: the fast solve against dense algebra and fixed-point iteration, and the truth of a toy MDP."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from clew.credit import Move, Path, advantages, from_paths, presets
from clew.credit.state_values import distance, occurrence_mean, solve, values

from .toys import random_paths, runs


def batch(seed: int, **options: int):
    return from_paths(random_paths(np.random.default_rng(seed), **options))


def iterated(steps, gamma: float, lam: float, rounds: int = 600) -> np.ndarray:
    """Slow twin of ``solve``: repeat U(s) <- mean over visits of the TD(1 - lam) return."""
    value = np.zeros(steps.nodes)
    for _ in range(rounds):
        total, count = np.zeros(steps.nodes), np.zeros(steps.nodes)
        back = 0.0
        for row in reversed(range(len(steps))):
            after = 0.0 if steps.last[row] else value[steps.state[row + 1]]
            back = 0.0 if steps.last[row] else back
            back = steps.reward[row] + gamma * (lam * after + (1 - lam) * back)
            total[steps.state[row]] += back
            count[steps.state[row]] += 1
        value = total / np.maximum(count, 1)
    return np.where(count > 0, value, np.nan)


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.7, 1.0])
def test_solve_is_the_fixed_point(lam: float) -> None:
    for seed in range(5):
        steps = batch(seed)
        assert np.allclose(solve(steps, 0.9, lam), iterated(steps, 0.9, lam), atol=1e-9, equal_nan=True)


def test_bellman_solve_equals_a_dense_solve_over_all_groups() -> None:
    for seed in range(20):
        steps = batch(seed, groups=4, states=4)
        size = steps.nodes
        counts, reward, visits = np.zeros((size, size)), np.zeros(size), np.zeros(size)
        for row in range(len(steps)):
            visits[steps.state[row]] += 1
            reward[steps.state[row]] += steps.reward[row]
            if not steps.last[row]:
                counts[steps.state[row], steps.state[row + 1]] += 1
        share = np.maximum(visits, 1)
        dense = np.linalg.solve(np.eye(size) - 0.95 * counts / share[:, None], reward / share)
        seen = visits > 0
        assert np.allclose(solve(steps, 0.95)[seen], dense[seen], atol=1e-10)


def test_the_knob_ends_at_occurrence_mean_and_bellman_solve() -> None:
    steps = batch(11)
    assert np.allclose(solve(steps, 0.95, 0.0), occurrence_mean(steps, 0.95), atol=1e-10, equal_nan=True)
    near = solve(steps, 0.95, 1 - 1e-9)
    assert np.allclose(near, solve(steps, 0.95, 1.0), atol=1e-6, equal_nan=True)


def test_leave_own_run_out_by_hand_and_by_loops() -> None:
    cur, after = values(runs(("ab", 8.0), ("ab", 4.0), ("a", 2.0)), "others", 0.5)
    assert cur == pytest.approx([(2 + 2) / 2, 4.0, (4 + 2) / 2, 8.0, (4 + 2) / 2])
    assert after == pytest.approx([4.0, 0.0, 8.0, 0.0, 0.0])
    steps = batch(5)
    own, (cur, _) = steps.returns(0.9), values(steps, "others", 0.9)
    for row in range(len(steps)):
        rest = own[(steps.state == steps.state[row]) & (steps.run != steps.run[row])]
        assert np.isnan(cur[row]) if not len(rest) else cur[row] == pytest.approx(rest.mean())


def test_a_value_nobody_else_saw_leaves_the_row_out() -> None:
    term = presets.g2po()[2]._replace(value="others")
    value, diagnostics = advantages(runs(("ax", 1.0), ("ay", 0.0), ("az", 1.0)), [term])
    assert np.isfinite(value).all()
    assert not diagnostics.present.any(), "x, y and z have one visitor each, so no edge has two known ends"


# A chain with a choice: from s, "go" reaches m with 3 in 4 and stays with 1 in 4; from m, "win" pays 10 with 1 in 2.
def every_run(horizon: int = 9) -> list[Path]:
    """All runs of the chain in exact proportion to their probability, as 4^k copies would be."""
    out = []
    for stay, win in itertools.product(range(4), range(2)):
        moves = [Move("s", "go")] + ([Move("s", "go")] if stay == 0 else [])
        moves += [Move("m", "win", 10.0 * win)]
        out += [Path(moves, 10.0 * win)]
    return out


def test_exact_values_on_a_toy_mdp_by_dynamic_programming() -> None:
    """Each run stays at most once, in exact proportion; DP over that chain gives every number G2PO uses."""
    steps = from_paths([every_run()])
    gamma = 0.95
    u_m = 5.0
    first, second = 0.25 * gamma**2 * u_m + 0.75 * gamma * u_m, gamma * u_m  # s at first and at second visit
    visits_first, visits_second = 8, 2
    u_s = (visits_first * first + visits_second * second) / (visits_first + visits_second)
    cur, after = values(steps, "mean", gamma)
    is_s = steps.next >= 0
    assert cur[is_s] == pytest.approx(u_s)
    assert cur[~is_s] == pytest.approx(u_m)
    nc = presets.g2po()[1]._replace(norm="none")
    raw, _ = advantages(steps, [nc])
    stayed = is_s & (steps.length == 3) & (steps.t == 0)
    assert raw[stayed] == pytest.approx(gamma * u_s)
    assert raw[is_s & ~stayed] == pytest.approx(gamma * u_m)
    assert after[~is_s] == pytest.approx(0.0)
    # Bellman pools the visits of s: leaves it in 8 of 10, stays in 2 of 10
    solved = 0.8 * gamma * u_m / (1 - 0.2 * gamma)
    cur, _ = values(steps, "solve", gamma, 1.0)
    assert cur[is_s] == pytest.approx(solved)


def test_distance_against_breadth_first_search() -> None:
    for seed in range(20):
        steps = batch(seed, states=6)
        won = steps.outcome == 10.0
        here, there = distance(steps, won)
        for g in range(len(steps.groups)):
            rows = np.flatnonzero(steps.group == g)
            if not won[rows].any():
                assert np.isnan(here[rows]).all()
                continue
            edges = {(int(steps.state[r]), int(steps.next[r])) for r in rows if steps.next[r] >= 0}
            level = {int(steps.state[r]) for r in rows if steps.last[r] and won[r]}
            dist, d = {}, 1
            while level:
                dist |= dict.fromkeys(level, d)
                level = {a for a, b in edges if b in level and a not in dist}
                d += 1
            far = max(dist.values()) + 1
            assert here[rows].tolist() == [dist.get(int(s), far) for s in steps.state[rows]]
            ends = [0 if steps.last[r] and won[r] else dist.get(int(steps.next[r]), far) for r in rows]
            assert there[rows].tolist() == ends


def test_history_numbers_equal_contexts_only() -> None:
    steps = runs(("abcab", 1.0), ("cab", 0.0))
    two, three = steps.history(2), steps.history(3)
    assert two[0] == -1
    assert two[5] == -1
    assert two[1] == two[4] == two[7]  # a b
    assert len({*two[[1, 2, 3]]}) == 3
    assert three[4] == three[7]  # c a b
    assert (three[[0, 1, 5, 6]] == -1).all()
    assert (steps.history(1) == steps.state).all()

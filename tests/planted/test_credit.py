"""`clew credit`: where nothing could speak against Markov states, nothing says that they are, and ``grpo`` is taken.

Planted states that hide something, of the shapes that users bring, and planted Markov ones that are still found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from clew.credit import Move, Path, Steps, advantages, aliasing, from_paths, of_arrays, presets

Walk = Callable[[np.random.Generator], Path]


def batch(walk: Walk, groups: int = 16, runs: int = 8, seed: int = 0) -> Steps:
    """Groups of runs of one agent."""
    rng = np.random.default_rng(seed)
    return from_paths([[walk(rng) for _ in range(runs)] for _ in range(groups)])


def taken(rng: np.random.Generator) -> Path:
    """All runs have equal length; the reward needs what only the first step's action could fetch, and no key shows."""
    take = bool(rng.random() < 0.4)
    moves = [Move("hall", "take" if take else "wait")]
    moves += [Move(f"room {t}", int(rng.integers(2))) for t in range(6)]
    return Path([*moves[:-1], moves[-1]._replace(reward=float(take))], float(take), "end")


def graded_freely(rng: np.random.Generator) -> Path:
    """The same, by a judge whose marks are all different."""
    path = taken(rng)
    mark = path.outcome + float(rng.normal(0, 0.2))
    return path._replace(outcome=mark, moves=[*path.moves[:-1], path.moves[-1]._replace(reward=mark)])


def judged_beside(rng: np.random.Generator) -> Path:
    """The same, where the judge's reward stands at no step and where the run ended is not known."""
    path = taken(rng)
    return Path([move._replace(reward=0.0) for move in path.moves], path.outcome)


def at_the_end_of_time(rng: np.random.Generator) -> Path:
    """A walk on a ring that is paid for where it stands after 12 steps; the key is the place alone."""
    at, moves = 0, []
    for _ in range(12):
        up = bool(rng.integers(2))
        moves.append(Move(at, up))
        at = (at + (1 if up else -1)) % 4
    return Path([*moves[:-1], moves[-1]._replace(reward=float(at == 2))], float(at == 2), at)


def never_paid(rng: np.random.Generator) -> Path:
    """The same walk where all rewards are equal: what a reward hangs on could not show."""
    path = at_the_end_of_time(rng)
    return Path([move._replace(reward=0.0) for move in path.moves], 0.0)


def by_history(rng: np.random.Generator) -> Path:
    """The key is the whole conversation so far: equal keys have equal pasts."""
    past, moves = "", []
    for _ in range(4):
        act = "ab"[rng.integers(2)]
        moves.append(Move(past, act))
        past += act
    return Path([*moves[:-1], moves[-1]._replace(reward=float(past[0] == "a"))], float(past[0] == "a"), past)


def one_script(rng: np.random.Generator) -> Path:
    """Every run does the same; the reward is chance."""
    won = float(rng.integers(2))
    return Path([*(Move(t, "go") for t in range(5)), Move(5, "go", won)], won, "end")


COUNT: Iterator[int] = iter(range(10**6))


def paid_apart(rng: np.random.Generator) -> Path:
    """Each answer is worded in its own way: many steps repeat, and none of those that are paid."""
    at, moves = 0, []
    for t in range(9):
        moves.append(Move((t, at), bool(rng.integers(2))))
        at = (at + (1 if moves[-1].action else -1)) % 4
    won = float(rng.integers(2))
    return Path([*moves, Move((9, at), f"answer {next(COUNT)}", won)], won, "end")


WALKS = [taken, graded_freely, judged_beside, at_the_end_of_time, never_paid, by_history, one_script, paid_apart]


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.__name__)
def test_states_that_hide_something_or_cannot_be_tested_are_never_called_markov(walk: Walk) -> None:
    for groups in (1, 16):
        found = aliasing(batch(walk, groups))
        assert found.verdict in ("aliased", "not tested", "unknown")
        assert "look Markov" not in found.why
        assert found.lam == 0.0


@pytest.mark.parametrize("walk", [taken, graded_freely, judged_beside, at_the_end_of_time], ids=lambda w: w.__name__)
def test_what_the_last_step_shows_is_found(walk: Walk) -> None:
    assert aliasing(batch(walk)).verdict == "aliased"


@pytest.mark.parametrize(
    ("walk", "why"),
    [
        (never_paid, "all rewards are equal"),
        (by_history, "no step was repeated after another past"),
        (one_script, "no step was repeated after another past"),
        (paid_apart, "no step that was paid unlike the others was repeated"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_where_nothing_could_differ_it_says_not_tested_and_why(walk: Walk, why: str) -> None:
    found = aliasing(batch(walk))
    assert found.verdict == "not tested"
    assert why in found.why
    assert found.comparisons.json()["tested"] is False


def shown(rng: np.random.Generator) -> Path:
    """As ``taken``, with the key that tells it."""
    path = taken(rng)
    told = path.moves[0].action
    moves = [move if t == 0 else move._replace(state=(told, move.state)) for t, move in enumerate(path.moves)]
    return path._replace(moves=moves, end=(told, "end"))


def by_chance(rng: np.random.Generator) -> Path:
    """A walk among three rooms in which an action leads one way or the other by chance, paid in one of them."""
    at, moves = 0, []
    for _ in range(14):
        moves.append(Move(at, bool(rng.integers(2)), float(at == 2)))
        at = int(rng.integers(3)) if moves[-1].action else (at + 1) % 3
    return Path(moves, sum(move.reward for move in moves), at)


@pytest.mark.parametrize("walk", [shown, by_chance], ids=lambda walk: walk.__name__)
def test_planted_markov_states_are_still_found(walk: Walk) -> None:
    found = aliasing(batch(walk))
    assert found.verdict == "markov"
    assert found.lam == 1.0
    assert "could differ" in found.why


def columns(steps: Steps) -> dict[str, object]:
    """The steps as a trainer without a store holds them."""
    held = {"states": steps.state, "actions": steps.action, "group": steps.group, "run": steps.run}
    return {name: column.tolist() for name, column in held.items()} | {"rewards": steps.reward}


def test_bellman_auto_takes_grpo_and_says_so_where_states_hide_what_the_reward_needs() -> None:
    steps = batch(taken)
    with pytest.warns(UserWarning, match=r"took grpo instead\. The states are aliased"):
        found = of_arrays('bellman(lam="auto")', **columns(steps))  # type: ignore[arg-type]
    value, _ = advantages(steps, presets.grpo())
    known = np.isfinite(found)
    assert known.any()
    np.testing.assert_allclose(found[known], value[known], rtol=1e-9)
    first = steps.t == 0
    took, waited = (found[first & (steps.action == action) & known].mean() for action in (0, 3))
    assert abs(took - waited) > 1.0, "the action that the reward needs is told from the other"


def test_bellman_auto_solves_the_graph_without_a_word_where_states_tell_all() -> None:
    steps = batch(shown)
    found = of_arrays('bellman(lam="auto")', **columns(steps))  # type: ignore[arg-type]
    value, seen = advantages(steps, presets.bellman(lam=1.0))
    np.testing.assert_allclose(found[seen.present], value[seen.present], rtol=1e-9)

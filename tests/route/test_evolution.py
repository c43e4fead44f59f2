"""Stage 2 of the fast router on episodes that are known in closed form: it climbs, goes on, tells its cost first."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("cma", reason="did not run: cma is not installed")

from clew.core.errors import BadInput, BadRecord
from clew.core.keys import uniforms
from clew.methods.routing.evolution import STATE, Replay, Search, evolve, subsets

GOAL = np.array([[1.0, -1.0], [0.5, 0.0], [-1.0, 2.0]])
SMALL = Search(iterations=12, replications=8, sigma=0.3, every=4, seed=3)


def quadratic(heads, seeds, masks):
    """Nearer to the goal is better; luck is the task's and the same for every head."""
    luck = uniforms(seeds, np.zeros(len(seeds), np.uint64))
    return -((heads - GOAL) ** 2).sum((1, 2))[:, None] + luck


def near(head):
    return -float(((head - GOAL) ** 2).sum())


def test_it_climbs_and_keeps_the_best_mean():
    calls, steps, costs = [], [], []

    def watched(heads, seeds, masks):
        assert costs, "the cost is told before the first episode"
        calls.append((heads.shape, len(set(seeds.tolist())), masks.shape))
        return quadratic(heads, seeds, masks)

    found = evolve(np.zeros((3, 2)), watched, near, search=SMALL, told=costs.append, progress=steps.append)
    assert calls == [((9, 3, 2), 8, (8, 3))] * 12
    assert (costs[0].episodes, costs[0].looks, costs[0].done) == (12 * 9 * 8, 4, 0)
    assert [step.iteration for step in steps if step.validation is not None] == [4, 8, 12]
    assert [at for at, _ in found.curve] == [0, 4, 8, 12]
    assert found.validation == near(found.head) == max(score for _, score in found.curve)
    assert found.validation > near(np.zeros((3, 2))) / 2, "at least half of the way"


def test_a_start_that_nothing_beats_is_kept():
    found = evolve(GOAL, quadratic, near, search=SMALL)
    assert (found.at, found.validation) == (0, 0.0)
    assert (found.head == GOAL).all()


def test_an_interrupted_search_ends_as_one_that_was_not(tmp_path):
    whole = evolve(np.zeros((3, 2)), quadratic, near, search=SMALL, folder=tmp_path / "whole")
    left = [5]

    def cut(heads, seeds, masks):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return quadratic(heads, seeds, masks)

    there = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        evolve(np.zeros((3, 2)), cut, near, search=SMALL, folder=there)
    with (there / STATE).open("a") as file:
        file.write('{"iteration": 6, "fit')  # a kill in the middle of a line
    np.random.seed(1)  # the luck of the process is none of the search's
    costs, steps = [], []
    left[0] = 7
    again = evolve(np.zeros((3, 2)), cut, near, search=SMALL, folder=there, told=costs.append, progress=steps.append)
    assert (costs[0].done, [step.iteration for step in steps]) == (5 * 9 * 8, [*range(6, 13)])
    assert (again.head == whole.head).all()
    assert again[1:] == whole[1:]
    assert (there / STATE).read_bytes() == (tmp_path / "whole" / STATE).read_bytes()
    asked_nothing = evolve(np.zeros((3, 2)), cut, near, search=SMALL, folder=there)
    assert (asked_nothing.head == whole.head).all()


def test_what_a_folder_holds_is_checked(tmp_path):
    evolve(np.zeros((3, 2)), quadratic, near, search=SMALL, folder=tmp_path)
    file = tmp_path / STATE
    good = file.read_text()
    with pytest.raises(BadInput, match="another search: start differ"):
        evolve(np.ones((3, 2)), quadratic, near, search=SMALL, folder=tmp_path)
    lines = [json.loads(line) for line in good.splitlines()]
    for change, said in (
        ({"candidates": "00"}, "other candidates"),
        ({"fitness": [0.0]}, "damaged at iteration 2"),
        ({"fitness": [float("nan")] * 9}, "damaged at iteration 2"),
        ({"iteration": 7}, "damaged at iteration 2"),
    ):
        changed = [*lines[:2], lines[2] | change, *lines[3:]]
        file.write_text("".join(json.dumps(line) + "\n" for line in changed))
        with pytest.raises(BadRecord, match=said):
            evolve(np.zeros((3, 2)), quadratic, near, search=SMALL, folder=tmp_path)
    file.write_text("[1]\n")
    with pytest.raises(BadRecord, match="no JSON object"):
        evolve(np.zeros((3, 2)), quadratic, near, search=SMALL, folder=tmp_path)


def test_episodes_that_could_not_be_held_are_not_scored_zero():
    """Rewards are all above 0, so that a failure scored 0 would draw the search away from the goal."""

    def failing(heads, seeds, masks):
        out = 100 + quadratic(heads, seeds, masks)
        out[::2, 1:] = np.nan
        return out

    found = evolve(np.zeros((3, 2)), failing, near, search=SMALL)
    assert found.validation > near(np.zeros((3, 2)))
    with pytest.raises(BadInput, match="no episode of a candidate"):
        evolve(GOAL, lambda heads, seeds, masks: np.full((len(heads), len(seeds)), np.nan), near, search=SMALL)
    with pytest.raises(BadInput, match=r"rewards \[9, 1\]"):
        evolve(GOAL, lambda heads, seeds, masks: np.zeros((len(heads), 1)), near, search=SMALL)


def test_single_step_replay_and_entropy_count():
    replay = Replay(np.eye(2), np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    sure = np.array([[[9.0, 0.0], [0.0, 0.0], [0.0, 9.0]], [[0.0, 0.0]] * 3])
    assert replay.single(sure) == pytest.approx([0.99975, 1 / 3], abs=1e-3)
    assert replay.entropy(sure) == pytest.approx([0, np.log(3)], abs=0.01)
    nothing = lambda heads, seeds, masks: np.zeros((len(heads), len(seeds)))  # noqa: E731
    start = np.zeros((3, 2))
    search = Search(iterations=20, replications=2, sigma=0.5, entropy=0.0, seed=1)
    of = lambda head: float(replay.single(head[None])[0])  # noqa: E731
    assert evolve(start, nothing, of, search=search, single=replay.single).validation > 0.6
    spread = lambda head: float(replay.entropy(head[None])[0])  # noqa: E731
    search = Search(iterations=20, replications=2, sigma=0.5, entropy=1.0, seed=1)
    assert evolve(sure[0], nothing, spread, search=search, entropy=replay.entropy).validation > spread(sure[0]) + 0.1


def test_masks_keep_half_of_the_tasks_whole():
    masks = subsets(4000, 5, 0.5, seed=2)
    size = masks.sum(1)
    assert (size[2000:] == 5).all()
    assert set(size[:2000]) == {2, 3, 4}
    assert masks[:2000].mean(0) == pytest.approx([0.6] * 5, abs=0.05)
    assert subsets(4, 2, 1.0, seed=0).all(), "a pool of two has no smaller one"


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"sigma": 0.0}, {"masked": 1.5}, {"population": 1}])
def test_settings_without_a_meaning_are_refused(wrong):
    with pytest.raises(BadInput):
        Search(**wrong)
    with pytest.raises(BadInput, match="a head of shape"):
        evolve(np.full((2, 2), np.nan), quadratic, near)

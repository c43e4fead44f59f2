"""Moving budget by a forecast: what is planted is found, what is drawn by lot is not, and trees get it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from clew.core.errors import BadInput
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.agents import chatter
from clew.harness.trees import allocator, grow
from clew.models.markov import Markov
from clew.store import Groups, Run

from .test_tree import Parity, own


def standings(rng: np.random.Generator, n: int) -> allocator.Standings:
    leaves = rng.integers(2, 12, n).astype(float)
    return allocator.Standings(
        leaves, leaves * rng.integers(0, 2, n), rng.random(n), 1 + rng.random(n), rng.random(n), rng.random(n)
    )


def test_a_planted_law_is_found_and_a_lottery_is_not() -> None:
    rng = np.random.default_rng(0)
    known, fresh = standings(rng, 4000), standings(rng, 500)

    def law(at: allocator.Standings) -> np.ndarray:
        return 1 / (1 + np.exp(-(6 * at.mean - 2 * np.log1p(at.leaves))))

    found = allocator.learn(known, rng.random(4000) < law(known))
    assert found is not None
    assert np.abs(found.chance(fresh) - law(fresh)).max() < 0.1
    lot = allocator.learn(known, rng.random(4000) < 0.3)
    assert lot is not None
    assert np.abs(lot.chance(fresh) - 0.3).max() < 0.08


def test_nothing_is_forecast_from_too_little() -> None:
    rng = np.random.default_rng(0)
    assert allocator.learn(standings(rng, 100), np.zeros(100, bool)) is None
    assert allocator.learn(standings(rng, 100), np.ones(100, bool)) is None
    assert allocator.recall([]) == allocator.History(None, {}, (0, 0))


def test_the_favoured_are_a_quarter_as_far_as_the_budget_lasts() -> None:
    chance = np.array([0.1, 0.9, 0.3, 0.8, 0.2, 0.7, 0.4, 0.5])
    assert allocator.favoured(chance, 1000, 10).tolist() == [1, 3]
    assert allocator.favoured(chance, 15, 10).tolist() == [1]
    assert allocator.favoured(chance, 5, 10).tolist() == [1]


def test_what_trees_tell_is_labelled_by_what_came_of_it() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    for i in range(allocator.LEAST):
        stands = [[2, 0, 0.5, 1.0, 40], [3, 0, 0.5, 1.0, 60], [4, 0, 0.5, 1.0, 90]]
        mixed = i % 2 == 0
        told.append((f"t-{i % 2}", {"stands": stands, "mixed_at": 95 if mixed else None, "used": 100, "budget": 100,
                                    "leaves": 5, "wins": int(mixed)}))  # fmt: skip
    assert allocator.recall(told[1:]).forecast is None
    history = allocator.recall(told)
    assert history.tasks == {"t-0": (100, 20), "t-1": (100, 0)}
    usual = 20.5 / 201
    assert history.past("t-0") == (20 + usual) / 101
    assert history.past("t-0", (5, 1)) == (19 + usual) / 96
    assert history.past("new") == usual
    assert history.forecast is not None
    at = allocator.Standings(*np.array([[4, 0, 0.5, 1.0, 0.9, 0.2], [2, 0, 0.5, 1.0, 0.4, 0.2]]).T)
    late, early = history.forecast.chance(at)
    assert late > 0.6 > 0.3 > early, "at 40 tokens a grant of 25 never sufficed"


class Sealed(Parity):
    """Every second task is lost whatever is said, the others are won now and then."""

    async def judge(self, task: Task, run: Run, world: Any) -> Mapping[str, float]:
        said = sum(run.reply(1).ids or ())
        return {"reward": float(said % 9 == 0 and not sealed(task.id))}


def sealed(task: str) -> bool:
    return int(task.split("-")[1]) % 2 == 0


def grown(how: str) -> list[Groups]:
    """Seven iterations over the same tasks."""
    runner = Runner(chatter, Sealed(), Markov(tokens=True), sampling={"max_tokens": 12})
    growth = grow.Growth(tokens=48, spare=0.4, seeds=1, selector="entropy", allocator=how)  # type: ignore[arg-type]
    found = [grow.collect(runner, Sealed().sample(12), growth, name="t", iteration=i) for i in range(7)]
    assert runner.store.verify() == []
    return found


def share(groups: Groups) -> float:
    """Of all tokens, those that went to tasks that are always lost."""
    spent = {group.task_id: sum(own(run) for run in group) for group in groups}
    return sum(tokens for task, tokens in spent.items() if sealed(task)) / sum(spent.values())


@pytest.mark.whole
def test_spare_tokens_leave_tasks_that_never_differ() -> None:
    even, learned = grown("even"), grown("learned")
    assert [share(g) for g in even[:4]] == [share(g) for g in learned[:4]], "36 trees are too few to learn from"
    assert np.mean([share(g) for g in learned[4:]]) < np.mean([share(g) for g in even[4:]]) - 0.1
    live = [sum(group.signal for groups in found[4:] for group in groups) for found in (even, learned)]
    assert live[1] > live[0]
    for groups in learned:
        assert 0.8 * 12 * 48 <= sum(own(run) for run in groups.runs) <= 12 * (48 + 12)


@pytest.mark.parametrize("wrong", [{"allocator": "learned"}, {"allocator": "best", "spare": 0.3}])
def test_an_allocator_without_spare_tokens_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="allocator"):
        grow.Growth(tokens=100, **wrong)

"""Tally: judge, demonstrations that close early without teaching it, and the contract."""

from __future__ import annotations

import asyncio

import pytest

from clew.core.errors import BadInput
from clew.core.registry import register
from clew.core.values import Task
from clew.worlds.contract import as_run, check_taskset, walk
from clew.worlds.tally import Tally

register("tasksets", "tally", Tally)


def judged(taskset: Tally, task: Task, reply: str) -> dict[str, float]:
    trail = walk(taskset.open(task), [reply])
    return dict(asyncio.run(taskset.judge(task, as_run(trail, [reply]), None)))


@pytest.mark.parametrize("taskset", [Tally(), Tally("first", 6)])
def test_contract(taskset: Tally) -> None:
    done = check_taskset(taskset, acts=lambda task: [f"odd answer {taskset.answer(taskset.marks(task.id))}"])
    assert {"check_ref", "check_sampling", "check_find"} < set(done)


def test_the_answer_alone_is_judged() -> None:
    for rule in ("count", "first"):
        world = Tally(rule, 6)
        for task in world.sample(20):
            row = world.marks(task.id)
            right = "odd" if (sum(row) % 2 if rule == "count" else row[0]) else "even"
            wrong = {"odd": "even", "even": "odd"}[right]
            assert judged(world, task, f"even odd answer {right}") == {"reward": 1.0}
            assert judged(world, task, f"answer {wrong}") == {"reward": 0.0}
            assert judged(world, task, right) == {"reward": 0.0}


@pytest.mark.parametrize("rule", ["count", "first"])
def test_demonstrations_answer_as_far_as_they_come_and_do_not_teach_to_close_early(rule) -> None:
    world, early = Tally(rule, 6), 0
    for task, [(seen, reply)] in world.demonstrations(50, seed=1):
        row = world.marks(task.id)
        assert seen == "row " + " ".join("xy"[bit] for bit in row)
        *states, marker, said = reply.split()
        assert marker == "answer"
        assert states == [("even", "odd")[sum(row[: k + 1]) % 2] for k in range(len(states))]
        assert said == ("even", "odd")[sum(row[: len(states)]) % 2 if rule == "count" else row[0]]
        early += len(states) < 6
        assert world.unlearned(reply) == ([len(states)] if len(states) < 6 else [])
        assert {*seen.split(), *reply.split()} <= set(world.vocabulary())
    assert 10 < early < 40


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(BadInput, match="rule count or first"):
        Tally("other")
    with pytest.raises(BadInput):
        Tally(length=3)

"""Sums: tasks, verifier, demonstrations, and the contract."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from clew.core.errors import BadInput, WorldError
from clew.core.registry import register
from clew.core.values import Task
from clew.worlds import sums
from clew.worlds.contract import as_run, check_taskset, walk
from clew.worlds.sums import Sums

register("tasksets", "sums", Sums)


def judged(taskset: Sums, task: Task, reply: str) -> dict[str, float]:
    trail = walk(taskset.open(task), [reply])
    return dict(asyncio.run(taskset.judge(task, as_run(trail, [reply]), None)))


@pytest.mark.parametrize("taskset", [Sums(), Sums(2, 12, 99)])
def test_contract(taskset: Sums) -> None:
    done = check_taskset(taskset, acts=lambda task: [sums.scratchpad(taskset.terms(task.id))])
    assert {"check_ref", "check_sampling", "check_find"} < set(done)


def test_the_verifier_reads_the_answer_and_nothing_else() -> None:
    taskset = Sums(3, 3)
    task = taskset.sample(1)[0]
    a, b, c = taskset.terms(task.id)
    total = a + b + c
    right = f"{a} + {b} = {a + b} , {a + b} + {c} = {total} answer {total}"
    assert sums.scratchpad((a, b, c)) == right
    assert judged(taskset, task, right) == {"reward": 1.0, "steps": 1.0}
    assert judged(taskset, task, f"answer {total}") == {"reward": 1.0, "steps": 0.0}
    assert judged(taskset, task, right.replace("answer", "total")) == {"reward": 0.0, "steps": 0.5}
    assert judged(taskset, task, f"{a} + {b} = {a + b} answer {total + 1}") == {"reward": 0.0, "steps": 0.5}
    for reply in ("", "answer", f"answer {total} or so", "answer ²", f"answer -{total}", "answer 1" + "0" * 5000):
        assert judged(taskset, task, reply)["reward"] == 0.0


def test_what_the_world_shows_does_not_hold_the_answer() -> None:
    taskset = Sums(6, 6, 99)
    for task in taskset.sample(20):
        seen = taskset.open(task).observe().text
        assert str(sum(taskset.terms(task.id))) not in seen.split()


def test_a_world_takes_one_reply() -> None:
    taskset = Sums()
    task, other = taskset.sample(2)
    world = taskset.open(task)
    start = world.snapshot()  # type: ignore[attr-defined]
    assert world.step("answer 1").done  # type: ignore[union-attr]
    with pytest.raises(WorldError, match="after the end"):
        world.step("answer 2")
    world.restore(start)  # type: ignore[attr-defined]
    assert not world.observe().done
    for bad in (b"no", taskset.open(other).snapshot()):  # type: ignore[attr-defined]
        with pytest.raises(WorldError):
            world.restore(bad)  # type: ignore[attr-defined]


def test_demonstrations_are_wrong_as_often_as_asked() -> None:
    taskset = Sums(4, 4)
    judge: Any = taskset.judge

    def success(noise: float) -> float:
        found = taskset.demonstrations(400, noise=noise)
        words = set(taskset.vocabulary())
        assert all(set(f"{seen} {reply}".split()) <= words for _, [(seen, reply)] in found)
        worlds = [SimpleNamespace(reply=reply) for _, [(_, reply)] in found]
        assert judge
        right = [sums.answer(w.reply) == sum(taskset.terms(t.id)) for w, (t, _) in zip(worlds, found, strict=True)]
        return sum(right) / len(right)

    assert success(0.0) == 1.0
    assert success(0.3) == pytest.approx(0.7**3, abs=0.07)


def test_parameters_are_checked() -> None:
    for wrong in ({"low": 1}, {"low": 5, "high": 4}, {"largest": 0}):
        with pytest.raises(BadInput):
            Sums(**wrong)
    with pytest.raises(BadInput, match="not a task"):
        Sums().find("sums-x")

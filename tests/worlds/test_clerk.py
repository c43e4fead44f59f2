"""Clerk: the rules of the desk, chance that a record can repeat, demonstrations, and the contract."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clew.core.errors import BadInput, WorldError
from clew.core.registry import register
from clew.worlds import clerk
from clew.worlds.clerk import Clerk, oracle
from clew.worlds.contract import as_run, check_taskset, walk

register("tasksets", "clerk", Clerk)
CALM = Clerk(noise=0.0, timeouts=0.0)


def success(taskset: Clerk, noise: float, n: int = 300) -> float:
    return sum(finished(taskset, task, steps).success for task, steps in taskset.demonstrations(n, 1, noise)) / n


def finished(taskset: Clerk, task: Any, steps: Any) -> Any:
    world = taskset.open(task)
    for seen, action in steps:
        assert world.observe().text == seen
        world.step(action)
    return world


@pytest.mark.parametrize("taskset", [Clerk(), Clerk(wishes=1, turns=8, rare=1.0), Clerk(noise=0.4, slips="habit")])
def test_contract(taskset: Clerk) -> None:
    assert "check_snapshots" in check_taskset(taskset)


@pytest.mark.whole
def test_how_hard_it_is() -> None:
    """The oracle fails only by chance, chance costs more the more the customer digresses, slips cost the rest."""
    assert success(CALM, 0.0) > 0.98
    assert success(Clerk(), 0.0) > success(Clerk(noise=0.4), 0.0) + 0.05 > 0.8
    assert 0.4 < success(Clerk(), 0.3) < 0.65
    assert success(Clerk(), 1.0) < 0.15
    kept = [task.data["must_not_act"] for task in Clerk().sample(600)]
    assert 0.30 < sum(kept) / 600 < 0.40


def test_rules_step_by_step() -> None:
    task = CALM.find("clerk-6750974")
    world = CALM.open(task)
    plan = world.plan
    assert plan.card == ("never-refund-red", "never-change-old", "never-change-delivered")
    assert [str(w) for w in plan.wishes] == ["refund o2", "refund o7"]
    assert plan.conforming == {"o7": "refund"}
    assert world.observe().text.endswith("want refund o2 , refund o7 ; hello")
    assert world.step("look o2").text.endswith("; o2 phone red shipped new cash")
    key = world.state_key
    for nothing in ("refund o1", "refund", "look  o9 x", "fly o2", "change o2 pink", "refuse never-refund-old", ""):
        assert CALM.open(task).step(nothing).text.endswith("; what")
    assert world.step("refuse never-refund-red").text.endswith("; noted")
    assert world.state_key != key
    assert not world.success
    assert world.step("refund   o7").text.endswith("; ok")
    assert world.success
    assert world.step("done").done
    with pytest.raises(WorldError, match="after the end"):
        world.step("look o2")


def test_a_refund_stays_and_a_change_can_be_taken_back() -> None:
    task = CALM.find("clerk-6750974")
    world = CALM.open(task)
    name, traits = next(iter(world.plan.orders.items()))
    other = next(c for c in clerk.COLOURS if c != traits[1])
    world.step(f"change {name} {other}")
    assert world.done_to == {name: other}
    world.step(f"change {name} {traits[1]}")
    assert world.done_to == {}
    world.step(f"refund {name}")
    assert world.step(f"change {name} {other}").text.endswith("; what")
    assert world.done_to == {name: "refund"}
    assert world.step(f"look {name}").text.endswith("refunded")


def test_every_task_is_as_the_card_says() -> None:
    for task in CALM.sample(200):
        plan = CALM.plan(int(task.id.split("-")[1]))
        allowed = [
            not any(r.split("-")[1] == w.verb and r.split("-")[2] in plan.orders[w.order] for r in plan.card)
            for w in plan.wishes
        ]
        assert any(allowed) != task.data["must_not_act"]
        assert set(plan.conforming) == {w.order for w, yes in zip(plan.wishes, allowed, strict=True) if yes}


def test_chance_is_repeated_by_the_same_actions_and_by_no_others() -> None:
    taskset = Clerk(noise=0.5)
    task = taskset.sample(1)[0]
    actions = [f"look {name}" for name in taskset.open(task).plan.orders]
    again = [walk(taskset.open(task), actions) for _ in range(2)]
    assert again[0] == again[1]
    interrupted = 0
    for other in taskset.sample(200):
        seen = walk(taskset.open(other), ["look o1", "done"])[1][0].text
        interrupted += not seen.endswith("what") and seen.rpartition(" ; ")[2] in clerk.DIGRESSIONS
    assert 20 < interrupted < 90, "about half of the looks at o1 where there is one"


def test_the_rare_name_is_told_and_needed() -> None:
    taskset = Clerk(noise=0.0, timeouts=0.0, rare=0.5)
    rare = [task for task in taskset.sample(300) if task.data["rare"]]
    assert 100 < len(rare) < 200
    world = taskset.open(rare[0])
    assert clerk.RARE in world.observe().text
    name = next(iter(world.plan.orders))
    assert world.step(f"refund {name}").text.endswith("; what")
    assert world.step(f"{clerk.RARE} {name}").text.endswith("; ok")
    plain = Clerk(noise=0.0, timeouts=0.0).sample(300)
    assert [task.id for task in plain] == [task.id for task in taskset.sample(300)], "the same tasks under both names"


def test_judge_counts_what_was_told() -> None:
    task = CALM.find("clerk-6750974")
    for actions, want in (
        (["look o2", "refuse never-refund-red", "refund o7", "done"], {"reward": 1.0, "told": 1.0}),
        (["refund o7", "done"], {"reward": 1.0, "told": 0.0}),
        (["refund o2", "refund o7"], {"reward": 0.0, "told": 0.0}),
        (["done"], {"reward": 0.0, "told": 0.0}),
    ):
        trail = walk(CALM.open(task), actions)
        assert dict(asyncio.run(CALM.judge(task, as_run(trail, actions), None))) == want


def test_demonstrations_use_known_words_and_habit_minds_no_card() -> None:
    taskset = Clerk(rare=0.3, slips="habit")
    words = set(taskset.vocabulary())
    for task, steps in taskset.demonstrations(150, 2, 1.0):
        for seen, action in steps:
            assert {*seen.split(), *action.split()} <= words
        assert not any(action.startswith(("look", "refuse")) for _, action in steps)
        assert finished(taskset, task, steps).success <= (not task.data["must_not_act"] or len(steps) == 6)
    task = CALM.sample(1)[0]
    world = CALM.open(task)
    for action in CALM.demonstrate(task):
        assert action == oracle(world)
        world.step(action)
    assert world.success


def test_parameters_and_snapshots_are_checked() -> None:
    for wrong in ({"wishes": 3}, {"turns": 1}, {"noise": 1.5}, {"rare": -0.1}, {"slips": "none"}):
        with pytest.raises(BadInput):
            Clerk(**wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="not a task"):
        Clerk().find("clerk-x")
    first, second = CALM.sample(2)
    for bad in (b"no", CALM.open(second).snapshot(), Clerk().open(first).snapshot()):
        with pytest.raises(WorldError, match="not of this task"):
            CALM.open(first).restore(bad)

"""Household: rules, what is seen, how hard it is, and that a task id means the same for ever."""

import asyncio
import base64
import random

import pytest

from clew.core.errors import BadInput, CannotRestore, WorldError
from clew.core.records import Edit, Intervention
from clew.core.values import ToolCall
from clew.worlds.contract import as_run, explore, walk
from clew.worlds.household import Household, HouseholdWorld, admissible, expert
from clew.worlds.household.household_rules import GOALS, Home
from clew.worlds.seeds import split_of

ALL = Household(goals=GOALS, steps=30)
LONG = Household(rooms=6, goals=("clean", "heat"), steps=30, layout="ring")


def play(taskset, tasks, noise, seed=0):
    """Success of the expert with noise, steps taken, and whether all words were known."""
    rng, words = random.Random(seed), set(taskset.vocabulary())
    won, steps = 0, 0
    for task in tasks:
        world = taskset.open(task)
        seen = world.observe()
        while not seen.done:
            assert set(seen.text.split()) <= words
            actions = admissible(world)
            action = actions[int(rng.random() * len(actions))] if rng.random() < noise else expert(world)
            assert set(action.split()) <= words
            seen, steps = world.step(action), steps + 1
        won += world.success
    return won / len(tasks), steps / len(tasks)


@pytest.mark.whole
def test_how_hard_it_is():
    """The figures of specs/small-machine.md are 7.2 steps, 68 % and 2.3 %."""
    taskset = Household()
    tasks = taskset.sample(600, seed=1)
    won, steps = play(taskset, tasks, 0.0)
    assert won == 1.0
    assert 6.7 < steps < 7.4
    assert 0.64 < play(taskset, tasks, 0.3)[0] < 0.80
    assert 0.005 < play(taskset, tasks, 1.0)[0] < 0.05


@pytest.mark.parametrize("taskset", [ALL, LONG, Household(rooms=8, receptacles=6, closed=3, objects=13, steps=80)])
def test_the_expert_reaches_every_goal(taskset):
    tasks = taskset.sample(60)
    assert play(taskset, tasks, 0.0)[0] == 1.0
    assert {task.data["kind"] for task in tasks} == set(taskset.plan.goals)


@pytest.mark.whole
def test_the_longer_variant_is_sparser():
    tasks = LONG.sample(200)
    won, steps = play(LONG, tasks, 0.0)
    assert won == 1.0
    assert steps > 12
    assert play(LONG, tasks, 1.0)[0] < 0.02


def test_rules_step_by_step():
    taskset = Household()
    task = taskset.find("house-3843811")
    world = taskset.open(task)
    assert task.prompt == "put key in cupboard"
    assert world.observe().text == "put key in cupboard ; bedroom ; bed book ; wardrobe closed ; drawer closed"
    assert world.observe().legal == ("go kitchen", "go bathroom", "open wardrobe", "open drawer", "take book")
    key = world.state_key
    for nothing in (
        "",
        "go",
        "go bedroom",
        "open bed",
        "take towel",
        "put book in bed",
        "take book now",
        "fly kitchen",
    ):
        seen = world.step(nothing)
        assert seen.text.startswith("nothing happens ; put key")
        assert world.state_key == key
    assert world.step("take  book").text.endswith("bed empty ; wardrobe closed ; drawer closed ; hold book")
    assert world.step("put book in wardrobe").text.startswith("nothing happens")
    assert world.step("open wardrobe").legal == (
        *("go kitchen", "go bathroom", "open drawer"),
        *("put book in bed", "put book in wardrobe"),
    )
    last = world.step("put book in bed")
    assert last.done
    assert last.reward == 0.0
    assert not world.success


def test_a_held_object_is_taken_along_and_back_is_the_same_state():
    taskset = Household()
    world = taskset.open(taskset.find("house-3843811"))
    keys = [world.state_key]
    for action in ("take book", "go kitchen", "go bedroom", "put book in bed"):
        world.step(action)
        keys.append(world.state_key)
    assert keys[0] == keys[4]
    assert keys[1] == keys[3]
    assert len(set(keys)) == 3


def test_golden_states():
    """Recorded runs name tasks and states by these; they may never change."""
    taskset = Household()
    world = taskset.open(taskset.find("house-6463343"))
    trail = [world.state_key.hex()]
    for action in explore(taskset, taskset.find("house-6463343"), 5):
        world.step(action)
        trail.append(world.state_key.hex())
    assert [task.id for task in taskset.sample(3, seed=7)] == GOLDEN_TASKS
    assert trail[0] == GOLDEN_FIRST
    assert trail[-1] == GOLDEN_LAST


GOLDEN_TASKS = ["house-4655657", "house-9617016", "house-1510358"]
GOLDEN_FIRST = "6e63f82ef94434892ac76d2f442a8736"
GOLDEN_LAST = "c247943f5085b11d291436db20398beb"


def test_goals_do_not_hold_at_the_start():
    for task in ALL.sample(400, seed=2):
        assert not ALL.open(task).observe().done


def test_kept_views_are_the_views():
    for taskset in (ALL, Household(aliased=True)):
        for task in taskset.sample(10):
            world, number = taskset.open(task), int(task.id.partition("-")[2])
            for action in explore(taskset, task):
                world.step(action)
                assert Home(taskset.plan, number).view(world.state) == world.home.view(world.state)


def test_legal_actions_are_those_that_change_something():
    for task in ALL.sample(30, seed=4):
        world = ALL.open(task)
        every = {f"{a} {b}" for a in ("go", "open", "take", "clean", "heat") for b in ALL.vocabulary()}
        every |= {f"put {a} in {b}" for a in ALL.plan.pool for b in ALL.plan.receptacles}
        for action in explore(ALL, task):
            world.step(action)
            found = {a for a in every if world.home.after(world.state, a) is not None}
            assert found >= set(world.observe().legal) or world.observe().done
            assert found - set(world.observe().legal) == set()


def test_aliased_states_look_the_same_and_tell_nothing_apart():
    taskset = Household(aliased=True, goals=("clean", "heat"), steps=60)
    hidden = 0
    for task in taskset.sample(20):
        rng, shown = random.Random(task.id), {}
        world = taskset.open(task)
        seen = world.observe()
        while not seen.done:
            view = world.observe()
            shown.setdefault(world.state_key, set()).add((world.state, view.text, view.legal))
            actions = admissible(world)
            seen = world.step(actions[int(rng.random() * len(actions))])
        for alike in shown.values():
            assert len({text for _, text, _ in alike}) == len({legal for _, _, legal in alike}) == 1
            hidden += len({state for state, _, _ in alike}) > 1
        assert "hold" not in {word for alike in shown.values() for _, text, _ in alike for word in text.split()}
    assert hidden > 20


def test_snapshots_are_small_and_of_one_task():
    taskset = Household(rooms=8, receptacles=6, closed=3, objects=13)
    one, other = (taskset.open(task) for task in taskset.sample(2))
    assert len(one.snapshot()) < 100
    with pytest.raises(WorldError, match="not of this task"):
        other.restore(one.snapshot())


def test_demonstrations_follow_their_seed_and_fail_sometimes():
    taskset = Household()
    one, two = taskset.demonstrations(40, seed=3), taskset.demonstrations(40, seed=3)
    assert one == two != taskset.demonstrations(40, seed=4)
    won = 0
    for task, steps in one:
        world = taskset.open(task)
        for text, action in steps:
            assert world.observe().text == text or text.startswith("nothing")
            world.step(action)
        won += world.success
    assert 20 <= won < 40
    assert all(task.data["split"] == "train" for task, _ in one)


def test_splits_go_by_content():
    taskset = Household(rooms=1, receptacles=3, objects=2)
    found = {split: taskset.sample(n, split=split) for split, n in (("train", 20), ("eval", 2), ("test", 2))}
    content = {split: {taskset.home(int(t.id[6:])).content for t in tasks} for split, tasks in found.items()}
    assert not content["train"] & content["eval"] | content["eval"] & content["test"]
    assert all(split_of(c) == split for split, cs in content.items() for c in cs)
    with pytest.raises(BadInput, match="distinct eval tasks"):
        taskset.sample(100, split="eval")


def judged(taskset, task, run, world=None):
    return asyncio.run(taskset.judge(task, run, world))


def test_the_judge_follows_the_record_and_notices_an_altered_one():
    taskset = Household()
    task = taskset.sample(1, seed=5)[0]
    world = taskset.open(task)
    assert isinstance(world, HouseholdWorld)
    actions = []
    while not world.observe().done:
        actions.append(expert(world))
        world.step(actions[-1])
    run = as_run(walk(taskset.open(task), actions), actions)
    assert judged(taskset, task, run) == judged(taskset, task, run, world) == {"reward": 1.0}
    run.calls[2] = run.calls[2]._replace(action="go nowhere")
    with pytest.raises(CannotRestore, match="Call 2"):
        judged(taskset, task, run)
    claimed = as_run(walk(taskset.open(task), actions[:2]), actions[:2])
    claimed.calls[-1] = claimed.calls[-1]._replace(reward=1.0, terminal=True)
    assert judged(taskset, task, claimed) == {"reward": 0.0}


def test_the_judge_repeats_edits_of_the_world():
    taskset = Household()
    task = taskset.find("house-3843811")
    snapshot = taskset.open(task)
    snapshot.step("go kitchen")
    for change in (["go kitchen"], base64.b85encode(snapshot.snapshot()).decode()):
        world = taskset.open(task)
        world.step("go kitchen")
        run = as_run(walk(world, ["open fridge"]), ["open fridge"])
        run.changes = Intervention((Edit("world", 1, change),))
        assert judged(taskset, task, run) == {"reward": 0.0}
        run.changes = Intervention()
        with pytest.raises(CannotRestore, match="Call 1"):
            judged(taskset, task, run)


def test_a_tool_call_is_answered_and_does_nothing():
    world = Household().open(Household().sample(1)[0])
    seen = world.step(ToolCall("c1", "go", '{"room": "kitchen"}'))
    assert seen.call_id == "c1"
    assert seen.text.startswith("nothing happens")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"rooms": 0}, "rooms=0"),
        ({"rooms": True}, "rooms=True"),
        ({"objects": 99}, "objects=99"),
        ({"receptacles": 5, "closed": 1}, "receptacles=5"),
        ({"goals": ("fly",)}, "fly"),
        ({"goals": ()}, "goals"),
        ({"goals": "clean", "rooms": 1}, "clean"),
        ({"goals": "open", "closed": 0}, "open"),
        ({"goals": "find", "closed": 0, "rooms": 1}, "find"),
        ({"rooms": 1, "receptacles": 1, "closed": 0}, "rooms=1"),
        ({"layout": "tower"}, "tower"),
    ],
)
def test_bad_parameters_are_named(given, named):
    with pytest.raises(BadInput, match=named) as caught:
        Household(**given)
    assert caught.value.remedy


@pytest.mark.parametrize("task_id", ["house-", "house--1", "house-01", "home-1", "house-1a", "house-٣", ""])
def test_ids_of_other_sets_are_refused(task_id):
    with pytest.raises(BadInput, match="not a task of this set"):
        Household().find(task_id)

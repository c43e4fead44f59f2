"""Worlds of each kind under the runner: collected, forked in the middle, judged again from the record."""

import pytest

from clew.core.errors import CannotRestore
from clew.core.registry import register
from clew.core.values import ToolCall
from clew.harness import Runner
from clew.worlds.household import Household, expert
from clew.worlds.toys import Counter, Notepad, Shop, Slow

for name, maker in {"counter": Counter, "notepad": Notepad, "shop": Shop, "slow": Slow}.items():
    register("tasksets", name, maker)


async def follow(run, actions=()):
    """Does what it is told, until the world ends."""
    for action in actions:
        if run.done:
            break
        await run.act(ToolCall(*action) if isinstance(action, list) else action)


def collected(taskset, task, actions, n=1):
    runner = Runner(follow, taskset, None, config={"actions": actions})
    return runner, runner.collect([task], n=n).runs


def forked_in_the_middle(taskset, task, actions):
    """Run, fork before the last act, and give both rewards as they were and as they are judged again."""
    runner, [run] = collected(taskset, task, actions)
    forks = runner.fork(run, at=run.at(step=len(run.steps) - 1), n=2)
    again = [row.value for row in runner.judge([run, *forks]) if row.method == "reward"]
    assert again == [run.reward, *(fork.reward for fork in forks)]
    assert [call.state for call in forks[0].calls] == [call.state for call in run.calls]
    return run.reward


def script(taskset, task):
    world, actions = taskset.open(task), []
    while not world.observe().done:
        actions.append(expert(world))
        world.step(actions[-1])
    return actions


def test_exact():
    taskset = Household()
    task = taskset.sample(1, seed=1)[0]
    assert forked_in_the_middle(taskset, task, script(taskset, task)) == 1.0


def test_exact_and_slow():
    taskset = Slow(of="household", seconds=0.001)
    task = taskset.sample(1, seed=1)[0]
    assert forked_in_the_middle(taskset, task, script(taskset.inner, task)) == 1.0


def test_reenact():
    taskset = Counter(restores="reenact", low=3, high=3)
    assert forked_in_the_middle(taskset, taskset.sample(1)[0], ["up", "up", "up", "stop"]) == 1.0


def test_tools():
    taskset = Shop()
    task = taskset.sample(1)[0]
    buys = [[f"c{i}", "buy", f'{{"item":"{i}","count":{n}}}'] for i, n in task.secret["basket"].items()]
    assert forked_in_the_middle(taskset, task, [*buys, ["end", "leave", "{}"]]) == 1.0


def test_none_is_refused_and_nothing_is_written_twice(tmp_path):
    taskset = Notepad(str(tmp_path / "pad.txt"))
    runner, [run] = collected(taskset, taskset.sample(1)[0], ["a", "b", "c", "stop"])
    assert run.reward == 1.0
    runner.replay(run)
    runner.judge([run])
    with pytest.raises(CannotRestore, match="none"):
        runner.fork(run, at=run.at(step=2))
    assert len((tmp_path / "pad.txt").read_text().splitlines()) == 3


def test_textworld_by_reenactment(tmp_path):
    pytest.importorskip("textworld", reason="NOT RUN: textworld is not installed")
    from clew.worlds.adapters.textworld import TextWorld

    taskset = TextWorld(folder=str(tmp_path))
    task = taskset.sample(1)[0]
    assert forked_in_the_middle(taskset, task, list(task.secret["walkthrough"])) == 1.0


def test_gymnasium_by_reenactment():
    pytest.importorskip("gymnasium", reason="NOT RUN: gymnasium is not installed")
    from clew.worlds.adapters.gymnasium import GymTasks

    taskset = GymTasks("FrozenLake-v1", options={"is_slippery": False})
    assert forked_in_the_middle(taskset, taskset.sample(1)[0], list("112212")) == 1.0

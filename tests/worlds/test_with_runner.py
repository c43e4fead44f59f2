"""Worlds of each kind under the runner: collected, forked in the middle, judged again from the record."""

import numpy as np
import pytest

from clew import credit
from clew.core.errors import CannotRestore
from clew.core.registry import build, register
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


async def stroller(run, ways):
    """Goes any way, by lot."""
    while not run.done:
        await run.act(str(int(ways * await run.draw("way"))))


@pytest.mark.parametrize("slow", [False, True])
def test_each_run_has_its_own_luck_and_keeps_it(slow):
    """On slippery ice the same actions lead each run elsewhere; its record leads back to where it came."""
    pytest.importorskip("gymnasium", reason="NOT RUN: gymnasium is not installed")
    taskset = build("tasksets", "gymnasium(env='FrozenLake-v1')")
    if slow:
        taskset = Slow(of=taskset.ref, seconds=0.0)
    task = taskset.sample(1)[0]
    runner, runs = collected(taskset, task, list("2" * 12 + "1" * 12), n=8)
    trails = [[call.state for call in run.calls if call.state] for run in runs]
    assert len({trail[0] for trail in trails}) == 1, "all start in the task's own state"
    assert len({tuple(trail) for trail in trails}) > 4
    again = [row.value for row in runner.judge(runs) if row.method == "reward"]
    assert again == [run.reward for run in runs]
    runner.replay(runs[0])
    longest = max(runs, key=lambda run: len(run.steps))
    middle = len(longest.steps) // 2
    forks = runner.fork(longest, at=longest.at(step=middle), n=6)
    for fork in forks:
        assert [call.state for call in fork.calls][: middle + 1] == trails[runs.index(longest)][: middle + 1]
    assert len({tuple(call.state for call in fork.calls) for fork in forks}) > 1, "what follows is drawn anew"
    again = [row.value for row in runner.judge(forks) if row.method == "reward"]
    assert again == [fork.reward for fork in forks]


def test_slippery_ice_is_chance_and_hides_nothing():
    pytest.importorskip("gymnasium", reason="NOT RUN: gymnasium is not installed")
    taskset = build("tasksets", "gymnasium(env='FrozenLake-v1')")
    groups = Runner(stroller, taskset, None, config={"ways": 4}).collect(taskset.sample(6), n=8)
    columns = credit.steps(groups)
    found = credit.aliasing(columns)
    assert not found.found, found.why
    assert found.p > 0.01, "chance is not taken for something hidden"
    assert found.ambiguous > 100
    assert len(set(columns.outcome.tolist())) > 1 or found.verdict == "not tested", "without a reward nothing is told"


def test_the_horizon_of_recorded_runs_is_not_taken_for_aliasing():
    """A run that reaches its limit ends in a state of its own, where others go on."""
    pytest.importorskip("gymnasium", reason="NOT RUN: gymnasium is not installed")
    taskset = build("tasksets", "gymnasium(env='FrozenLake-v1', steps=6, options={'is_slippery': False})")
    groups = Runner(stroller, taskset, None, config={"ways": 4}).collect(taskset.sample(6), n=8)
    columns = credit.steps(groups)
    cut = columns.last & (columns.length == 6)
    assert len({(s, a) for s, a in zip(columns.state[cut], columns.action[cut], strict=True)}) > 5
    found = credit.aliasing(columns)
    assert (found.ambiguous, found.found) == (0, False)


def test_the_reward_so_far_splits_no_state():
    """Ways of different cost to one place meet in one node, and each step is paid what the world paid for it."""
    gymnasium = pytest.importorskip("gymnasium", reason="NOT RUN: gymnasium is not installed")
    taxi = next(name for name in ("Taxi-v4", "Taxi-v3") if name in gymnasium.registry)
    taskset = build("tasksets", f"gymnasium(env={taxi!r}, steps=30)")
    groups = Runner(stroller, taskset, None, config={"ways": 6}).collect(taskset.sample(4), n=8)
    columns = credit.steps(groups)
    by_text = credit.steps(groups, key="text")
    assert len(np.unique(columns.state)) == len(np.unique(by_text.state)) < 0.25 * len(columns)
    acts = [step.act.reward for run in groups.runs for step in run.steps]
    assert columns.reward.tolist() == acts
    assert set(acts) >= {-1.0, -10.0}
    assert np.allclose(np.bincount(columns.run, columns.reward), [run.reward for run in groups.runs])
    paid_at_the_end = credit.steps(groups, rewards="judge")
    assert set(paid_at_the_end.reward[~paid_at_the_end.last]) == {0.0}

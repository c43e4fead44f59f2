"""The Gymnasium adapter on real environments: seeds, texts, actions, what is refused."""

import asyncio
import sys

import pytest

from clew.core.errors import BadInput, MissingExtra, WorldError
from clew.core.values import ToolCall
from clew.worlds.adapters.gymnasium import GymTasks
from clew.worlds.contract import check_other_process, check_taskset, explore

MOVES = ("left", "down", "right", "up")
LAKE = {"env": "FrozenLake-v1", "actions": MOVES, "options": {"render_mode": "ansi"}, "prompt": "Reach G."}


@pytest.fixture(scope="module")
def gymnasium():
    return pytest.importorskip("gymnasium", reason="NOT RUN: gymnasium is not installed")


def make_riddle(word="clew"):
    """A text environment: say the word; the first letter is shown."""
    import gymnasium

    class Riddle(gymnasium.Env):
        observation_space = gymnasium.spaces.Text(100)
        action_space = gymnasium.spaces.Text(20)

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            self.turn, self.luck = 0, int(self.np_random.integers(100))
            return f"{word[0]}... ({self.luck})", {"legal": [word, "thread"]}

        def step(self, action):
            if action == "boom":
                raise RuntimeError("broken on purpose")
            self.turn += 1
            info = {"legal": [word, "thread"], "state_key": self.turn}
            return f"you said {action}", float(action == word), action == word, self.turn >= 5, info

    return Riddle()


def test_contract_on_frozen_lake(gymnasium):
    taskset = GymTasks(**LAKE)
    assert {"check_keys", "check_judge"} <= set(check_taskset(taskset))
    task = taskset.sample(1)[0]
    assert check_other_process(taskset, task, explore(taskset, task))


def test_contract_on_a_text_environment(gymnasium):
    taskset = GymTasks(make_riddle, options={"word": "maze"})
    assert f"{__name__}:make_riddle" in taskset.ref
    assert "check_movement" in check_taskset(taskset, lambda task: ["thread", "what", "maze"])


def test_frozen_lake_is_shown_and_walked(gymnasium):
    taskset = GymTasks(env="FrozenLake-v1", actions=MOVES, options={"render_mode": "ansi", "is_slippery": False})
    world = taskset.open(taskset.sample(1)[0])
    assert world.observe().text == "SFFF\nFHFH\nFFFH\nHFFG"
    assert world.observe().legal == MOVES
    assert world.step("jump").text == "unknown action: jump"
    assert world.step(ToolCall("c", "jump", "")).call_id == "c"
    for action in ("down", "1", "right", "right", "down", "right"):
        seen = world.step(action)
    assert seen.done
    assert seen.reward == 1.0
    assert asyncio.run(taskset.judge(None, None, world)) == {"reward": 1.0}
    world.close()


def test_a_failing_environment_is_a_world_error(gymnasium):
    taskset = GymTasks(make_riddle)
    world = taskset.open(taskset.sample(1)[0])
    with pytest.raises(WorldError, match="broken on purpose"):
        world.step("boom")
    assert not world.step("x" * 30).done  # longer than the space allows: refused, not passed on
    world.close()


def test_what_cannot_be_used_is_named(gymnasium, monkeypatch):
    with pytest.raises(BadInput, match="NoSuchLake"):
        GymTasks("NoSuchLake-v1")
    with pytest.raises(BadInput, match="3 names for 4"):
        GymTasks("FrozenLake-v1", actions=("a", "b", "c"))
    with pytest.raises(BadInput, match="cannot be made again"):
        GymTasks(lambda: make_riddle())
    with pytest.raises(BadInput, match="nothing_there"):
        GymTasks("clew.worlds.toys:nothing_there")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtra, match=r"clew\[gymnasium\]"):
        GymTasks("FrozenLake-v1")

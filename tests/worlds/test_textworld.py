"""TextWorld: games are made offline, won by their walkthrough, and brought back by re-enactment."""

import asyncio
import sys

import pytest

from clew.core.errors import BadInput, CannotRestore, MissingExtra, WorldError
from clew.core.registry import build
from clew.worlds.adapters.textworld import TextWorld
from clew.worlds.contract import as_run, check_other_process, check_taskset, walk


@pytest.fixture(scope="module")
def taskset(tmp_path_factory):
    pytest.importorskip("textworld", reason="NOT RUN: textworld is not installed")
    return TextWorld(folder=str(tmp_path_factory.mktemp("games")))


def judged(taskset, task, run, world=None):
    return asyncio.run(taskset.judge(task, run, world))


def test_contract(taskset):
    # fewer tasks than usual: a game takes seconds to make
    done = check_taskset(taskset, n=1)
    assert {"check_keys", "check_secret", "check_judge"} <= set(done)


def test_the_walkthrough_wins_and_the_record_alone_proves_it(taskset):
    task = taskset.sample(1, seed=0)[0]
    actions = list(task.secret["walkthrough"])
    world = taskset.open(task)
    trail = walk(world, actions)
    assert trail[-1][0].done
    assert sum(seen.reward for seen, _ in trail[1:]) == 1.0
    assert all(action in seen.legal for action, (seen, _) in zip(actions, trail, strict=False))
    run = as_run(trail, actions)
    assert judged(taskset, task, run) == judged(taskset, task, run, world) == {"reward": 1.0, "score": 1.0}
    world.close()


def test_text_is_bare(taskset):
    task = taskset.sample(1, seed=0)[0]
    world = taskset.open(task)
    first = world.observe().text
    assert first.startswith(task.prompt)
    assert "$$" not in first
    assert not world.step("look").text.rstrip().endswith(("0/1", ">"))
    world.close()


def test_the_game_program_cannot_be_reached(taskset):
    world = taskset.open(taskset.sample(1, seed=0)[0])
    key = world.state_key
    for action in ("quit", "  UNDO ", "restart", "save\nquit", ""):
        assert not world.step(action).done
        assert world.state_key == key
    world.close()


def test_steps_are_limited(taskset):
    short = TextWorld(steps=2, folder=str(taskset.folder))
    world = short.open(short.sample(1, seed=0)[0])
    world.step("look")
    assert world.step("look").done
    with pytest.raises(WorldError, match="after the end"):
        world.step("look")
    world.close()


def test_an_altered_record_is_not_judged(taskset):
    task = taskset.sample(1, seed=0)[0]
    actions = list(task.secret["walkthrough"])
    world = taskset.open(task)
    run = as_run(walk(world, actions), actions)
    world.close()
    run.calls[1] = run.calls[1]._replace(action="look")
    with pytest.raises(CannotRestore, match="Call 1"):
        judged(taskset, task, run)


def test_another_process_makes_the_same_game(taskset, tmp_path):
    task = taskset.sample(1, seed=0)[0]
    elsewhere = TextWorld(folder=str(tmp_path))
    assert check_other_process(elsewhere, elsewhere.find(task.id), task.secret["walkthrough"])
    assert elsewhere.game(int(task.id.partition("-")[2])).exists()
    mine, theirs = taskset.open(task), elsewhere.open(task)
    assert mine.state_key == theirs.state_key
    mine.close()
    theirs.close()


def test_bad_parameters_and_a_missing_package_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(MissingExtra, match=r"clew\[textworld\]"):
        build("tasksets", "textworld")
    with pytest.raises(BadInput, match="at least 1"):
        TextWorld(rooms=0)

"""A store with a few runs of a small household, made once, and the command line at hand."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from clew.cli import verbs
from clew.core.registry import build
from clew.harness import Runner
from clew.models.fakes import Scripted

ACTIONS = ("go kitchen", "go bathroom", "take plate", "take mug")


def wander(request):
    """Now and then what the goal says, else anything, by the request's seed: runs differ, each is the same again."""
    draw = random.Random(request.seed)
    goal = request.path[0].message.text.split(" ; ")[0]
    return goal if draw.random() < 0.15 else draw.choice(ACTIONS)


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("made") / "store.db"
    taskset = build("tasksets", "household(rooms=2,goals=('open',),steps=6)")
    runner = Runner("clew.harness.agents:player", taskset, Scripted({"": wander}), path)
    assert 0 < runner.collect(taskset.sample(2), n=3).success().estimate < 1
    runner.store.close()
    return path


@pytest.fixture
def store(made, tmp_path) -> Path:
    """A copy of that store, to be changed at will."""
    path = tmp_path / "store.db"
    shutil.copy(made, path)
    return path


@pytest.fixture
def clew(tmp_path, monkeypatch):
    """Call the command line in an empty folder: ``clew("log", "--json")`` gives click's Result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEW_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.with_name(f"{tmp_path.name}-state")))

    def call(*args, code: int | None = 0, **extra):
        done = CliRunner().invoke(verbs, [str(a) for a in args], **extra)
        assert code is None or done.exit_code == code, done.output
        return done

    return call

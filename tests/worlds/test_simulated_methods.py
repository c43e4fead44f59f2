"""Methods that need a world which comes back: forks, trees of rollouts, continuations from every step, in one that a
model makes up."""

from __future__ import annotations

import json

from clew.harness import Runner
from clew.harness.agents import player
from clew.harness.fork.continuations import Continuations
from clew.harness.trees import grow as tree
from clew.methods.cliffs import Search, detect, survey
from clew.methods.world_model import Simulated
from clew.models.markov import Markov
from clew.worlds.toys import Counter
from tests.worlds.simulators import Shadow

REAL = "counter(low=1, high=2, steps=6)"
CORPUS = "up\nup\ndown\nstop\nstop\nup up\nstop stop"


def made() -> tuple[Runner, Shadow]:
    real = Counter(1, 2, 6)
    shadow = Shadow(real, real.sample(3))
    taskset = Simulated(world=REAL, model="shadow", instruction={"fail_rate": 0.1}, steps=6)
    return Runner(player, taskset, Markov(CORPUS, tokens=True), resolve_model=lambda ref: shadow), shadow


def test_trees_of_rollouts_grow_in_a_simulated_world_and_replay_without_its_model():
    runner, shadow = made()
    groups = tree.collect(runner, runner.taskset.sample(3), tree.Growth(tokens=60), name="t")
    assert any(run.parent is not None for run in groups.runs), "some leaves are forks"
    assert all(run.reward is not None for run in groups.runs)
    asked = shadow.calls
    for run in groups.runs:
        runner.replay(run)
    assert shadow.calls == asked
    assert runner.store.verify() == []


def test_continuations_from_every_step_are_judged_in_the_real_world():
    runner, _ = made()
    runs = runner.collect(runner.taskset.sample(2), n=2).runs
    hands = Continuations(runner)
    found = detect(survey(runs, lambda run: hands, Search(n=4, fresh=4, at="steps")))
    assert found.potentials
    assert all(counts.undecided == 0 for counts in found.potentials.values())


def test_every_place_of_a_run_forks_to_the_run_that_it_was():
    runner, _ = made()
    run = runner.collect(runner.taskset.sample(1), n=1, seed=3).runs[0]
    acts = [(c.text, json.dumps(c.action), c.seed) for c in run.calls if c.kind == "act"]
    for step in range(len(run.steps)):
        fork = runner.fork(run, at=run.at(step=step), seed="same")[0]
        again = [(c.text, json.dumps(c.action)) for c in fork.calls if c.kind == "act"]
        assert again[:step] == [one[:2] for one in acts[:step]]
        assert fork.reward is not None
    assert runner.store.verify() == []

"""Whole runs over a measured pool: where several models in a task pay the verdict says so, and where they do not, not.

The pool has two workers. Each knows one of two numbers of a person and guesses the other, right one time in three. A
task asks for both: in two turns, or in one.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.values import Completion, Message, Observation, Task, Usage
from clew.harness import Runner
from clew.methods.routing import advice, measuring, whole_runs
from clew.models.compose import fitted_tasks, router
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.routed import Routed
from clew.models.compose.router import Head, Worker
from clew.store import open_store
from clew.worlds.bases import Exact, Numbered
from clew.worlds.one_reply import Question

TASKS = 60
NUMBERS = ("age", "size")


def truth(number, which):
    return value_digest([which, number])[0] % 90 + 10


class Knows:
    """A worker that knows one number of everybody. Of the other it says the right one in a third of all cases."""

    version, renderer = 0, None

    def __init__(self, name, lucky=0.0):
        self.name, self.ref, self.lucky = name, f"knows-{name}-{lucky}", lucky

    async def complete(self, request):
        asked = request.path[-1].message.text
        number = int(re.search(r"person (\d+)", asked)[1])
        wanted = [which for which in NUMBERS if which in asked.partition("Results of")[0].rpartition("Your part")[2]]
        seen = re.findall(r"^(\d+)$", asked.partition("Results of")[2], re.MULTILINE)
        said = seen + [str(self.says(number, which, request)) for which in wanted]
        return Completion(Message("assistant", " ".join(said[-2:])), usage=Usage(1, 1))

    def says(self, number, which, request):
        guess = value_digest([self.name, number, which, request.seed if self.lucky else 0])[0] / 256
        right = which == self.name or guess < (self.lucky or 1 / 3)
        return truth(number, which) + (not right)


class InTwoTurns(Exact):
    """Asks for one number, then for the other."""

    __slots__ = ("number", "said")

    def __init__(self, number):
        self.number, self.said = number, ()

    @property
    def state_key(self):
        return value_digest([self.number, *self.said])

    def observe(self):
        if len(self.said) == 2:
            return Observation("that is all", done=True)
        return Observation(f"what is the {NUMBERS[len(self.said)]} of person {self.number}")

    def step(self, action):
        self.said = (*self.said, str(action))
        return self.observe()

    def snapshot(self):
        return "\n".join(self.said).encode()

    def restore(self, kept):
        self.said = tuple(kept.decode().split("\n")) if kept else ()


class Turns(Numbered[InTwoTurns]):
    prefix, plays, ref = "person", InTwoTurns, "turns"

    def find(self, task_id):
        return Task(task_id, f"what is the age of person {self.number(task_id)}")

    def open(self, task):
        return InTwoTurns(self.number(task.id))

    def verdict(self, task, last):
        number = self.number(task.id)
        return {"reward": float(last.said == tuple(str(truth(number, which)) for which in NUMBERS))}


class Once(Numbered[Question]):
    prefix, plays, ref = "person", Question, "once"

    def find(self, task_id):
        return Task(task_id, f"what are age and size of person {self.number(task_id)}")

    def open(self, task):
        return Question(task.id, task.prompt)

    def verdict(self, task, last):
        number = self.number(task.id)
        return {"reward": float((last.reply or "") == " ".join(str(truth(number, which)) for which in NUMBERS))}


async def two_turns(run):
    """Asks its model anew for each number, so that what it said before decides nothing."""
    while not run.done:
        chat = run.chat()
        chat.say("user", run.view.text)
        await run.act((await chat.ask()).text)


async def once(run):
    chat = run.chat()
    chat.say("user", run.task.prompt)
    await run.act((await chat.ask()).text)


def measured(store, agent, world, workers, n=1):
    """The pool's runs at all tasks, and what the report says of them."""
    tasks = world.sample(TASKS, 1)
    runs = [run for one in workers for run in Runner(agent, world, one, store).collect(tasks, n, 1).runs]
    return runs, advice.advise(measuring.of_runs(runs))


def judged(told, pool, runs):
    told = replace(told, ways=whole_runs.ways(told.found, told.made, list(runs), pool, told.by_question))
    return told, told.ways


def routing(tmp_path, workers, fitted=(), flip=1.0):
    """A router that asks for each number the worker that knows it, or with ``flip`` -1 the one that does not."""
    features = Ngrams()
    h = {w: np.mean([features(f"user: what is the {w} of person {i}\n") for i in range(40)], 0) for w in NUMBERS}
    apart = flip * (h["age"] - h["size"])
    pool = tuple(Worker(one.name, one.ref) for one in workers)
    about = {fitted_tasks.FIELD: fitted_tasks.told(fitted)}
    head = Head(np.stack([apart, -apart]).astype(np.float32))
    router.save(tmp_path / f"r{flip}", pool, features, head, about)
    return Routed(router.load(tmp_path / f"r{flip}"), workers, folder=str(tmp_path / f"r{flip}"))


@pytest.mark.whole
def test_routing_by_turn_is_said_where_no_question_has_one_right_worker(tmp_path):
    store, workers = open_store(":memory:"), [Knows("age"), Knows("size")]
    pool, told = measured(store, two_turns, Turns(), workers)
    assert told.verdict == "do not route"
    assert any("routing by turn and workflows were not judged" in note for note in told.notes)
    tasks = Turns().sample(TASKS, 1)
    good, bad = (Runner(two_turns, Turns(), routing(tmp_path, workers, ["x"], flip), store) for flip in (1.0, -1.0))
    whole = good.collect(tasks, 1, 2).runs
    now, (way,) = judged(told, pool, whole)
    assert (way.kind, way.arm.calls, way.proven) == ("turn", 2, True)
    assert way.arm.gain.low > 0.3
    assert now.verdict == "route by turn"
    assert "over the best single worker, n=60, at 2.0 calls" in now.why
    ids = advice.filed(now, store)
    assert store.reports()[ids[-1]].claim.startswith("route by turn: ")

    now, (way,) = judged(told, pool, bad.collect(tasks, 1, 2).runs)  # the same calls, of the wrong workers
    assert way.short == "it does not beat the best single worker"
    assert now.verdict == "do not route"


def test_tasks_that_a_router_was_fitted_on_do_not_count(tmp_path):
    store, workers = open_store(":memory:"), [Knows("age"), Knows("size")]
    pool, told = measured(store, two_turns, Turns(), workers)
    tasks = Turns().sample(TASKS, 1)
    ids = [task.id for task in tasks]
    half = Runner(two_turns, Turns(), routing(tmp_path, workers, ids[:30]), store).collect(tasks, 1, 2).runs
    _, (way,) = judged(told, pool, half)
    assert way.arm.reward.n == 30
    assert way.about == "30 tasks that the router was fitted on are left out"
    routing(tmp_path, workers, ids)
    good = Runner(two_turns, Turns(), routing(tmp_path / "other", workers, ["x"]), store)
    with pytest.raises(BadInput, match=r"performed 60 of the pool's tasks, the router was fitted on 60 of them"):
        judged(told, pool, half)
    with pytest.raises(BadInput, match="performed 0 of the pool's tasks: fewer than 20"):
        judged(told, pool, good.collect(Turns().sample(30, 7, "test"), 1).runs)
    with pytest.raises(BadInput, match="use one model"):
        judged(told, pool, pool)


class Leads:
    """Writes one plan for every question."""

    version, renderer = 0, None

    def __init__(self, *parts):
        self.ref = "leads"
        names = ("model_id", "subtasks", "access_list")
        self.plan = "\n".join(f"{name}: {json.dumps([p[i] for p in parts])}" for i, name in enumerate(names))

    async def complete(self, request):
        return Completion(Message("assistant", self.plan), usage=Usage(1, 1))


def workflows(store, lead, workers):
    by_ref = {one.ref: one for one in workers}
    how = {"workers": [one.ref for one in workers]}
    runner = Runner("orchestrator", Once(), lead, store, how, resolve_model=by_ref.__getitem__)
    return runner.collect(Once().sample(TASKS, 1), 1, 2).runs


@pytest.mark.whole
def test_orchestrate_is_said_where_a_plan_earns_its_calls():
    store, workers = open_store(":memory:"), [Knows("age"), Knows("size")]
    pool, told = measured(store, once, Once(), workers, 3)
    assert told.verdict == "do not route"
    plan = Leads((0, "the age", []), (1, "the size", [0]))
    now, (way,) = judged(told, pool, workflows(store, plan, workers))
    assert (way.kind, way.arm.calls, now.verdict) == ("workflow", 3, "orchestrate")
    assert way.equal.low > 0.3  # over a majority of three samples
    few = advice.advise(measuring.of_runs(pool[::3]))  # one sample of each
    now, (way,) = judged(few, pool[::3], workflows(store, plan, workers))
    assert way.short.startswith("it makes 3.0 times the calls: measure the pool with -n 3")
    assert now.verdict == "do not route"


def test_a_plan_that_only_asks_more_often_is_not_worth_more_than_a_majority():
    store, workers = open_store(":memory:"), [Knows("age", 0.6), Knows("size", 0.6)]
    pool, told = measured(store, once, Once(), workers, 4)
    plan = Leads((0, "the age and size", []), (0, "the age and size", []), (0, "the age and size", []))
    now, (way,) = judged(told, pool, workflows(store, plan, workers))
    assert not way.proven
    assert now.verdict == "do not route"

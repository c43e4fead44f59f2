"""Asking a pool: stopped, failed and changed measurings go on where they must, and nowhere else."""

from __future__ import annotations

import pytest

from clew.core.errors import BadInput, Unreachable
from clew.core.values import Completion, Message, Task, Usage
from clew.harness import Runner
from clew.methods.routing import measuring
from clew.models.remote import Price
from clew.store import open_store
from clew.worlds.one_reply import Question


class Asked:
    """Questions whose answer is yes."""

    ref = "asked"

    def find(self, name):
        return Task(name, f"is {name} so?", {"subject": name[0]})

    def sample(self, n, seed=0, split="train"):
        return [self.find(f"{'ab'[i % 2]}{i}") for i in range(n)]

    def open(self, task):
        return Question(task.id, task.prompt)

    async def judge(self, task, run, world):
        return {"reward": float(run.reply(run.steps[-1].asks[-1].seq).message.text == "yes")}


class Worker:
    """Says yes; fails, or is interrupted, at the requests of these numbers."""

    renderer, version = None, 0

    def __init__(self, ref, fails=(), stops=()):
        self.ref, self.fails, self.stops, self.asked = ref, fails, stops, 0

    async def complete(self, request):
        self.asked += 1
        if self.asked in self.stops:
            raise KeyboardInterrupt
        if self.asked in self.fails:
            raise Unreachable("no answer within 1 s")
        return Completion(Message("assistant", "yes"), usage=Usage(3, 1), cost=0.5)


@pytest.fixture
def store():
    with open_store(":memory:") as made:
        yield made


def want(store, worker, n=2, tasks=5):
    runner = Runner("clew.harness.agents:answerer", Asked(), worker, store)
    return measuring.wanted(worker.ref, runner, Asked().sample(tasks), n)


def test_what_is_there_is_not_asked_again(store):
    worker = Worker("w")
    measuring.ask(want(store, worker))
    again = want(store, worker)
    assert (worker.asked, again.calls, again.dollars) == (10, 0, 0.0)
    more = want(store, worker, n=3, tasks=6)
    assert (more.calls, more.dollars) == (5 + 3, 4.0)  # at what the answers there are have cost
    measuring.ask(more)
    assert worker.asked == 18
    assert want(store, worker, n=3, tasks=6).calls == 0
    assert want(store, Worker("another")).calls == 10


def test_a_failed_call_is_no_sample_and_is_asked_again(store):
    worker = Worker("w", fails=(3, 4))
    measuring.ask(want(store, worker))
    again = want(store, worker)
    assert again.calls == 2
    measuring.ask(again)
    assert want(store, worker).calls == 0
    runs = measuring.gathered([want(store, worker)], Asked().sample(5))
    assert len(runs) == 10
    assert {run.reward for run in runs} == {1.0}
    assert len({run.seed for run in runs}) == 10


def test_a_worker_that_never_answers_is_named(store):
    with pytest.raises(BadInput, match=r"w did not answer: .*no answer within 1 s"):
        measuring.ask(want(store, Worker("w", fails=range(99))))


def test_an_interrupted_measuring_goes_on(store):
    worker = Worker("w", stops=(4,))
    with pytest.raises(KeyboardInterrupt):
        measuring.ask(want(store, worker))
    before = worker.asked
    rest = want(store, worker)
    assert 0 < rest.calls <= 10
    measuring.ask(rest)
    assert worker.asked - before <= 10
    assert want(store, worker).calls == 0


def test_before_anything_is_known_the_forecast_is_by_price(store):
    priced, free, secret = Worker("priced"), Worker("free"), Worker("secret")
    priced.price, secret.price = Price(1e6, 1e6), None  # a dollar a token
    assert want(store, priced).dollars == 10 * (256 + 3)  # at most 256 tokens; 9 letters are asked
    assert want(store, free).dollars == 0
    assert want(store, secret).dollars != want(store, secret).dollars  # NaN: not known


def test_runs_become_a_matrix(store):
    pool = [want(store, Worker(name)) for name in "vw"]
    for it in pool:
        measuring.ask(it)
    runs = measuring.gathered(pool, Asked().sample(5))
    made = measuring.of_runs(runs, workers=["w", "v"])
    assert made.workers == ("w", "v")
    assert made.families == ("a", "b", "a", "b", "a")
    assert made.texts[0] == "user: is a0 so?\n"  # as a router in front of the pool reads the request
    assert made.rewards.shape == (5, 2, 2)
    assert made.prices.tolist() == [[0.5, 0.5]] * 5
    assert made.answers[0][0] == ("yes", "yes")
    assert len(made.runs) == 20
    with pytest.raises(BadInput, match="there is no run to read"):
        measuring.of_runs([])


@pytest.mark.parametrize(
    ("text", "answer"),
    [("so 3 + 4 = 7.", "7"), ("It is 7.0", "7"), ("Well.\nYes, it IS \n\n", "yes, it is"), ("", "")],
)
def test_what_a_reply_comes_to(text, answer):
    assert measuring.answered(text) == answer

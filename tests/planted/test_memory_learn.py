"""Planted lessons that `clew memory learn` must not take, since they hold of any run, and some that it must."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("bm25s", reason="did not run: the extra [memory] is not installed")

from clew.harness.memory import Memory
from clew.methods.memory.lessons.learn import learn
from clew.methods.memory.lessons.lesson import Lesson
from clew.methods.memory.lessons.references import FunctionReflector
from clew.methods.memory.lessons.run_view import RunView
from clew.methods.memory.lessons.screens import rule
from clew.store import MemoryStore
from tests.audit.reflected import PAGES, played

SURE = [("check", {"answer": "be sure to check the answer again"}, "checked the answer: it is correct"), *PAGES]
FALSE = {
    "one word": "bank",
    "one word, often": "bank " * 30,
    "advice that fits every task, in the run's own words": "Always be sure to check the answer again.",
    "the task's own answer": "The bank holds 61 payments for food in its rows.",
    "nothing of the run": "The weather in Lisbon is mild.",
    "a name that no call had": "The endpoint of bank is `find_all`.",
    "another application": "Login to mail, then fetch its search.",
}


def ruled(lesson: Lesson, reward: float | None = 0.0):
    run = played(MemoryStore(), SURE, reward)
    return rule(lesson._replace(provenance=(f"{run.id}@2", f"{run.id}@3", f"{run.id}@4")), (), RunView(run))


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("planted", FALSE)
def test_what_the_run_cannot_show_is_dropped(planted, reward):
    ruling = ruled(Lesson("fact", {"text": FALSE[planted]}, ("mail",) if "another" in planted else ()), reward)
    assert ruling.what == "drop", planted
    assert ruling.why


def test_a_mistake_of_a_run_that_succeeded_without_its_consequence_is_dropped():
    body = {"trigger": "bank is fetched", "mistake": "to fetch without a login", "fix": "login, then fetch"}
    never = Lesson("pitfall", {**body, "consequence": "the count was too low"})
    assert ruled(never, 1.0).what == "drop"
    assert ruled(Lesson("pitfall", {**body, "consequence": "error 401: log in first"}), 1.0).what == "add"


def test_a_run_that_nobody_judged_teaches_nothing():
    store = MemoryStore()
    memory = Memory(store, "m")
    told = Lesson("fact", {"text": "The endpoint of bank that fetches is `search`."})

    def reflect(view: RunView) -> list[Lesson]:
        return [told._replace(provenance=(f"{view.id}@4",))]

    done = asyncio.run(learn(memory, [played(store, reward=None)], FunctionReflector(reflect, "own")))
    assert (done.reflected, memory.items()) == (0, [])
    assert asyncio.run(learn(memory, [played(store, reward=1.0)], FunctionReflector(reflect, "own"))).reflected == 1
    assert [item.text for item in memory.items()] == [told.body["text"]]


def test_what_the_run_shows_is_taken():
    assert ruled(Lesson("fact", {"text": "The endpoint of bank that fetches is `search`."}, ("bank",))).what == "add"

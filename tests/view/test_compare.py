"""Two queries side by side: pairs, intervals, flips, word differences; a run in outline."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clew.core.errors import BadQuery
from clew.core.records import Annotation
from clew.methods.compare import design
from clew.store import MemoryStore
from clew.store.contract import Script
from clew.view.pages.compare import choices, compare, word_difference
from clew.view.pages.outline import PIECE, outline
from tests.view.browser.agentic import Agent, long_run, side
from tests.view.conftest import serving

OLD, NEW = "model=old", "model=new"
LEFT = [[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0], [None, 0, 0]]  # returns of each task's runs
RIGHT = [[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 1], [0, None, 0]]


def filled():
    store = MemoryStore()
    for model, tasks in (("old", LEFT), ("new", RIGHT)):
        for task, rewards in enumerate(tasks):
            for nth, reward in enumerate(rewards):
                run = Script(store, f"{model}{task}x{nth}", task=f"t{task}", model=model)
                run.play(1 + nth, reward)
    extra = Script(store, "lonely", task="only-old", model="old")
    extra.play(1, 1.0)
    return store


def figure(found, name):
    return next(row for row in found["metrics"] if row["metric"] == name)


def test_runs_are_paired_by_task_and_a_task_counts_once():
    found = compare(filled(), OLD, NEW)
    assert found["paired"] == 5
    assert [side["tasks"] for side in found["sides"]] == [6, 5]
    assert [(side["runs"], side["judged"]) for side in found["sides"]] == [(16, 15), (15, 14)]
    left, right = ([np.mean([r for r in task if r is not None]) for task in side] for side in (LEFT, RIGHT))
    row = figure(found, "return")
    assert (row["n"], row["a"], row["b"]) == (5, pytest.approx(np.mean(left)), pytest.approx(np.mean(right)))
    wanted = design.bootstrap("return", lambda x: x.mean(-1), np.array(right) - np.array(left), unit="tasks")
    got = row["difference"]
    assert (got["estimate"], got["low"], got["high"]) == pytest.approx((wanted.estimate, wanted.low, wanted.high))
    assert got["how"] == "5 tasks, percentile bootstrap over tasks"
    assert figure(found, "steps")["difference"] == {
        "estimate": 0.0, "low": None, "high": None, "how": "5 tasks, the same difference on each",
    }  # fmt: skip


def test_the_tasks_that_flipped_lead_to_runs_that_show_it():
    """The newest run that ended as most of its task's runs did."""
    found = compare(filled(), OLD, NEW)
    assert [(row["task"], row["runs"]) for row in found["better"]] == [("t1", ["old1x2", "new1x1"])]
    assert [(row["task"], row["runs"]) for row in found["worse"]] == [("t2", ["old2x2", "new2x2"])]
    assert found["flipped"] == [1, 1]
    back = compare(filled(), NEW, OLD)
    assert [row["task"] for row in back["better"]] == ["t2"]
    assert figure(back, "return")["difference"]["estimate"] == -figure(found, "return")["difference"]["estimate"]


def test_sides_without_a_common_task_or_without_runs_are_told_so():
    store = filled()
    found = compare(store, "task=only-old", NEW)
    assert (found["paired"], figure(found, "return")["n"], found["better"]) == (0, 0, [])
    assert compare(store, "model=nobody", NEW)["sides"][0]["runs"] == 0
    assert compare(store, OLD, OLD)["same"] == 16
    one = compare(store, "model=old task=t0", "model=new task=t0")
    assert figure(one, "return")["difference"] == {
        "estimate": pytest.approx(1 / 3), "low": None, "high": None, "how": "one task",
    }  # fmt: skip
    with pytest.raises(BadQuery):
        compare(store, "wrld=x", NEW)


def test_an_interval_of_the_difference_covers_the_truth_about_as_often_as_it_says():
    random, covered = np.random.default_rng(5), 0
    for _ in range(60):
        values = random.normal(0.1, 1.0, 60)
        report = design.bootstrap("d", lambda x: x.mean(-1), values, unit="tasks")
        covered += report.low <= 0.1 <= report.high
    assert covered >= 51  # 57 are expected; fewer than 51 of 60 would happen once in 200 times


def test_what_the_sides_were_told_differs_by_words():
    store = MemoryStore()
    side(store, "a", 3, 1, good=0.5, prompt="Be brief and kind.", model="old")
    side(store, "b", 3, 1, good=0.5, prompt="Be brief and exact, always.", model="new")
    system, user = compare(store, OLD, NEW)["prompts"]
    assert system["words"] == [("=", "Be brief and "), ("-", "kind."), ("+", "exact, always.")]
    assert (user["role"], user["equal"]) == ("user", True)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("", ""),
        ("", "x y"),
        ("a b c", "a c"),
        ("one\n two", "one two"),
        ("a " * 9_000, "b " * 9_000),
        ("x" * 99_999, "y"),
    ],
)
def test_a_word_difference_holds_both_texts_whole(a, b):
    pieces = word_difference(a, b)
    assert "".join(text for op, text in pieces if op in "=-") == a
    assert "".join(text for op, text in pieces if op in "=+") == b


def test_what_there_is_to_compare_is_named(tmp_path):
    found = choices(filled())["choices"]
    assert found["model"] == [("old", 16), ("new", 15)]
    with serving(filled()) as client:
        assert client.json("/api/compare")["choices"]["model"][0] == ["old", 16]
        assert client.json("/api/compare", a=OLD, b=NEW)["paired"] == 5
        assert client.json("/api/compare", 400, a="wrld=x", b=NEW)["kind"] == "BadQuery"


def test_an_outline_names_what_each_call_did_and_what_failed(monkeypatch):
    store = MemoryStore()
    run = long_run(store)
    found = outline(store, "longagent")
    assert found["next"] is None
    assert found["seq"] == list(range(run.seq))
    assert (found["kind"][2], found["tools"][2], found["seconds"][2]) == ("act", ["bash"], 0.2)
    assert found["failed"][7] is True
    assert found["failed"][8] is False
    assert found["tools"][5] == [], "acts perform them"
    assert sum(found["cost"]) == pytest.approx(store.summary("longagent").cost)
    assert all(len(label) <= 70 for label in found["label"])
    monkeypatch.setattr("clew.view.pages.outline.PIECE", 100)
    pieces, start = [], 0
    while start is not None:
        piece = outline(store, "longagent", start)
        pieces += piece["seq"]
        start = piece["next"]
    assert pieces == found["seq"]
    assert math.isclose(PIECE, 4_000)


def test_tools_of_a_program_behind_the_gateway_are_named_at_its_replies():
    store = MemoryStore()
    from clew.core.values import ToolCall

    run = Agent(store, "relayed")
    run.put("open", text="")
    run.say("user", "go")
    run.reply("", ToolCall("c1", "bash", "{}"))
    run.say("tool", "error: no such command", "c1")
    run.reply("Sorry.")
    run.end()
    store.annotate([Annotation("run", "reward", 0.0, "relayed")])
    found = outline(store, "relayed")
    assert found["tools"] == [[], ["bash"], [], []]
    assert found["failed"] == [False, False, True, False]

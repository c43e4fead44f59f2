"""Apps: contract, what the apps answer, drift, hostile calls, and that the judge's knowledge stays with the judge."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from clew.core.errors import BadInput, WorldError
from clew.core.registry import build, register
from clew.core.values import StopReason, ToolCall
from clew.harness import Runner
from clew.models.fakes import Echo, Scripted, tool_call
from clew.worlds.apps import Apps, AppsWorld
from clew.worlds.apps.app_goals import ALL, shares
from clew.worlds.apps.app_rules import CHANGE, FETCH, TOOLS, Habits, rows_of
from clew.worlds.apps.apps import number_in
from clew.worlds.contract import _reach, as_run, check_other_process, check_taskset, walk

register("tasksets", "apps", Apps)
GOLDEN = [
    (
        "apps-6465577",
        "Which amount tops the list of my remittances in bank of more than 28 dollars?",
        {"answer": 81, "verb": "max", "rows": [11, 19, 25, 56, 63, 71, 77, 82, 90, 98]},
    ),
    (
        "apps-6750974",
        "Which amount tops the list of my flights in travel of more than 4 dollars?",
        {"answer": 99, "verb": "max", "rows": [13, 22, 25, 33, 40, 50, 53, 64, 72]},
    ),
]


def call(name, **given):
    return ToolCall("c", name, json.dumps(given))


def judged(taskset, task, calls):
    trail = walk(taskset.open(task), calls)
    return dict(asyncio.run(taskset.judge(task, as_run(trail, calls), None)))


def found(taskset, verb=None, **face):
    """A task of a verb whose app is like this."""
    for task in taskset.sample(120):
        goal = taskset.goal(task.id)
        own = taskset.apps(taskset.number(task.id))[goal.app]
        like = {**own.face._asdict(), "leaves_out": own.leaves_out}
        if verb in (None, goal.verb) and all(like[k] == v for k, v in face.items()):
            return task, goal, own.face
    raise AssertionError(f"no task of {verb} and {face}")


@pytest.mark.parametrize("ref", ["apps", "apps(drift=2, families=150, world=3, zipf=1.0)", "apps(families=1, steps=3)"])
def test_contract(ref):
    taskset = build("tasksets", ref)
    assert taskset.ref == ref

    def acts(task):
        return ["hello", call("nothing"), *taskset.demonstrate(task)]

    assert {"check_snapshots", "check_end", "check_judge", "check_secret"} <= set(check_taskset(taskset, acts=acts))


def test_another_process_reaches_the_same_states():
    taskset = Apps()
    task = taskset.sample(1)[0]
    assert check_other_process(taskset, task, taskset.demonstrate(task))


def test_tasks_never_change():
    assert [(task.id, task.prompt, task.secret) for task in Apps().sample(2)] == GOLDEN
    assert Apps().sample(3) == Apps().sample(9)[:3], "a shorter stream is the beginning of a longer one"


def test_every_verb_is_done_without_fault_and_its_opposite_is_not():
    taskset, verbs = Apps(families=288, zipf=0.0), Counter[str]()
    for task in taskset.sample(40):
        calls, goal = taskset.demonstrate(task), taskset.goal(task.id)
        assert judged(taskset, task, calls) == {"reward": 1.0, "submitted": 1.0, "harm": 0.0}
        assert judged(taskset, task, calls[:-1])["reward"] == 0, "nothing was submitted"
        if goal.answer is None:
            assert judged(taskset, task, [*calls[:-2], calls[-1]]) == {"reward": 0.0, "submitted": 1.0, "harm": 0.0}
        else:
            assert judged(taskset, task, [*calls[:-1], call("submit", answer=goal.answer + 1)])["reward"] == 0
            assert judged(taskset, task, [*calls[:-1], call("submit", answer=f" ${goal.answer}.0 ")])["reward"] == 1
        verbs[goal.verb] += 1
    assert set(verbs) == {"sum", "count", "max", "like", "pay", "delete"}


def test_what_an_app_answers():
    taskset = Apps(families=288, zipf=0.0, world=5)
    task, goal, face = found(taskset, "delete", auth=True)
    rows = rows_of(taskset.number(task.id), goal.app, goal.table)
    world = taskset.open(task)
    at = {"app": goal.app, "table": goal.table}
    wrong = next(name for name in FETCH if name != face.fetch)
    assert world.step(call("fetch", **at, endpoint=wrong, page=1)).text.startswith("error: 404")
    assert world.step(call("fetch", **at, endpoint=face.fetch, page=1)).text == f"error: 401 log in to {goal.app} first"
    assert "logged_in" in world.step(call("login", app=goal.app)).text
    seen, page, more = [], 0, True
    while more:
        page += 1
        shown = json.loads(world.step(call("fetch", **at, endpoint=face.fetch, page=page)).text)
        seen, more = [*seen, *shown["rows"]], shown["has_more"]
        assert len(shown["rows"]) == face.page or not more
    assert [row["id"] for row in seen] == [row.id for row in rows]
    assert [row[face.names[0]] for row in seen] == [row.dollars * face.unit for row in rows]
    assert [row["status"] for row in seen] == ["pending" if row.pending else "booked" for row in rows]
    first = rows[0].id
    change = {**at, "endpoint": face.change}
    key = world.state_key
    for ids in ([first, 10**30], [first, first], [-1]):
        assert "nothing was changed" in world.step(call("change", **change, verb="pay", ids=ids)).text
    assert world.state_key == key
    assert world.step(call("change", **change, verb="like", ids=[first])).text == '{"liked": 1}'
    assert "cannot be liked twice" in world.step(call("change", **change, verb="like", ids=[first])).text
    assert world.step(call("fetch", **at, endpoint=face.fetch, page=1)).text.count('"liked": true') == 1
    world.step(call("change", **change, verb="delete", ids=[first]))
    assert f'"id": {first},' not in world.step(call("fetch", **at, endpoint=face.fetch, page=1)).text
    assert world.step(call("submit", answer="done")).done
    assert taskset.verdict(task, world)["harm"] == 1
    with pytest.raises(WorldError, match="after the end"):
        world.step(call("login", app=goal.app))


def test_hostile_calls_change_nothing_and_are_answered_shortly():
    taskset = Apps()
    _, goal, face = found(taskset, auth=False)
    at = {"app": goal.app, "endpoint": face.fetch, "table": goal.table}
    odd = ("{", "[" * 50_000, "[]", '"x"', '{"app": NaN}', '{"page": 1e999}', '{"ids": ' + "9" * 5000 + "}", "")
    hostile = [ToolCall("c", name, text) for name in ("login", "fetch", "change", "submit") for text in odd]
    hostile += [
        call("rm -rf", path="/"), call("login", app="x" * 9), call("login", app="x" * 10**6),
        call("login", app=["bank"]), call("fetch", **(at | {"endpoint": "\x1b[31m"}), page=1),
        call("fetch", **at, page=0), call("fetch", **at, page=True), call("fetch", **at, page=1.0),
        call("fetch", **(at | {"table": "__class__"}), page=1),
        call("change", **(at | {"endpoint": face.change}), verb="__init__", ids=[1]),
        call("change", **(at | {"endpoint": face.change}), verb="pay", ids=[]),
        call("change", **(at | {"endpoint": face.change}), verb="pay", ids=list(range(1000))),
        call("change", **(at | {"endpoint": face.change}), verb="pay", ids=[True]),
        call("change", **(at | {"endpoint": face.change}), verb="pay", ids=[10**4000]),
        call("submit", answer=None), call("submit", answer="9" * 10**6), call("submit", answer=1, extra=2),
    ]  # fmt: skip
    world = AppsWorld("w", 1, "?", {goal.app: face}, len(hostile) + 1)
    key = world.state_key
    for bad in hostile:
        told = world.step(bad).text
        assert told.startswith("error: "), bad
        assert len(told) < 400, bad
        assert "\x1b" not in told, bad
    assert world.state_key == key
    assert json.loads(world.step(call("fetch", **at, page=10**30)).text)["rows"] == []


@pytest.mark.parametrize(
    ("answer", "number"),
    [("42", 42), (" $1,042.50 ", 1042.5), (7, 7), ("7 dollars", 7), ("done", None), ("nan", None), (10**400, None),
     ("1e999", None), ("", None)],
)  # fmt: skip
def test_the_number_of_an_answer(answer, number):
    assert number_in(answer) == number


def test_from_drift_on_the_app_asked_most_answers_elsewhere():
    taskset, still = Apps(drift=3), Apps()
    late, early = taskset.sample(6), still.sample(6)
    assert [task.data["after_drift"] for task in late] == [False] * 3 + [True] * 3
    assert [task.prompt for task in late] == [task.prompt for task in early], "the same errands"
    assert [task.id for task in late[:3]] == [task.id for task in early[:3]]
    before, after = taskset.apps(0), taskset.apps(10_000_000)
    moved = [app for app in before if before[app] != after[app]]
    assert moved == [taskset.family(taskset.number(next(t for t in late if t.data["family"] == 0).id)).app]
    assert after[moved[0]].face.fetch in set(FETCH) - {before[moved[0]].face.fetch}
    assert all(judged(taskset, task, taskset.demonstrate(task))["reward"] == 1 for task in late)
    for other, task_id in ((still, late[3].id), (taskset, "apps-20000000"), (still, "desk-1")):
        with pytest.raises(BadInput, match="not a task"):
            other.find(task_id)


def test_families_follow_the_law_and_worlds_differ():
    counts = Counter(task.data["family"] for task in Apps(families=40, zipf=1.1).sample(400))
    running = shares(40, 1.1)
    assert counts[0] / 400 == pytest.approx(running[0] / running[-1], abs=0.08)
    assert counts[0] > 3 * counts[9]
    assert max(counts) < 40
    assert len(ALL) == 288
    assert Apps(world=2).apps(0) != Apps(world=3).apps(0)
    drawn = [own for world in range(60) for own in Apps(world=world).apps(0).values()]
    assert sum(own.face.auth for own in drawn) / 360 == pytest.approx(0.7, abs=0.1)
    assert sum(own.face.unit == 100 for own in drawn) / 360 == pytest.approx(0.35, abs=0.1)
    assert sum(own.leaves_out for own in drawn) / 360 == pytest.approx(0.35, abs=0.1)
    assert {own.face.fetch for own in drawn} == set(FETCH)
    assert {own.face.change for own in drawn} == set(CHANGE)
    assert {own.face.page for own in drawn} == {4, 5, 6, 7, 8}


def test_the_worlds_own_things_do_not_hold_what_the_judge_knows():
    taskset = Apps(world=5)
    task, goal, _ = found(taskset, "sum")
    world = taskset.open(task)
    reached = list(_reach(world, depth=9))
    assert not any(isinstance(thing, (Habits, Apps, type(goal))) for thing in reached)
    assert not any(hasattr(tool, "secret") for tool in TOOLS)
    assert "leaves_out" not in repr(reached)
    told = taskset.facts(task)
    assert len(told) == 8
    assert all(line.startswith(f"fact: app {goal.app}: ") for line in told)


def test_parameters_are_checked():
    for wrong in ({"families": 0}, {"families": 289}, {"zipf": -0.1}, {"drift": -1}, {"steps": 0}, {"world": -1}):
        with pytest.raises(BadInput, match="Needs"):
            Apps(**wrong)
    first, second = Apps().sample(2)
    for bad in (b"no", Apps().open(second).snapshot(), Apps(world=4).open(first).snapshot()):
        with pytest.raises(WorldError, match="not of this task"):
            Apps().open(first).restore(bad)


def test_a_model_with_tools_plays_it_and_its_run_forks_where_one_likes():
    taskset = Apps(families=288, zipf=0.0)
    task, goal, face = found(taskset, "like", auth=True)
    at = {"app": goal.app, "table": goal.table}
    says = [
        tool_call("fetch", **at, endpoint=face.fetch, page=1),
        tool_call("login", app=goal.app),
        tool_call("change", **at, endpoint=face.change, verb="like", ids=list(goal.ids)),
        tool_call("submit", answer="done"),
    ]
    runner = Runner("tool_user", taskset, Scripted(says))
    run = runner.collect([task], n=1).runs[0]
    assert (run.reward, run.stop) == (1.0, StopReason.DONE)
    assert [tool.name for tool in TOOLS] == ["login", "fetch", "change", "submit"]
    acts = [c for c in run.calls if c.kind == "act"]
    assert acts[0].text.startswith("error: 401")
    runner.replay(run)
    for act in acts:
        again = runner.fork(run, act.seq, model=Scripted([tool_call("submit", answer="done")] * 5))[0]
        assert again.reward == float(act.seq >= acts[2].seq)
    assert runner.store.verify() == []


def test_a_demonstrated_run_is_recorded_and_judged():
    runner = Runner("clew.harness.agents:demonstrator", Apps(), Echo(), config={"world": "apps"})
    groups = runner.collect(Apps().sample(5, split="test"), n=1)
    assert groups.success().estimate == 1
    runner.replay(groups[0][0])

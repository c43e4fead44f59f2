"""A policy over the orchestrator's workers: who gets no connection, whose words reach whom, what costs too much."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest

import clew
from clew.core.errors import BadInput, ModelError, Refused, UnknownName
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.workflow import Part, written
from clew.harness.workflow.clearance import Team
from clew.models.fakes import tool_call
from clew.store.run import Run
from tests.harness.test_workflow import Worker, asked, noted, seen
from tests.models.pool import Server, said, servers

SUBSETS = [subset for size in range(5) for subset in itertools.combinations("abcd", size)]
CANARY = "canary-7131"


def lines(body: Any) -> list[str]:
    """The names of the workers that a leading model is told."""
    head = body["messages"][0]["content"].partition("by number:\n")[2]
    return [line.partition(": ")[2] for line in head.splitlines() if line[:1].isdigit()]


def sent(pool: list[Server], subset: tuple[str, ...]) -> list[int]:
    """How many requests of the run of a subset each endpoint had."""
    about = f"who of {subset}"
    return [sum(about in json.dumps(body) for body in one.bodies) for one in pool]


def of_all_subsets(pool: list[Server], lead: Server, first: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """A run for each subset, which its request allows; the operator's policy is ``first``."""
    workers = {one.name: f"openai:m@{one.url}" for one in pool}
    models = {ref: clew.model(ref, attempts=1) for ref in workers.values()}
    config = {"workers": workers, "policy": first}
    led = clew.model(f"openai:m@{lead.url}", attempts=1)
    runner = Runner("orchestrator", None, led, config=config, resolve_model=models.get)
    policies = [{"allow": [*subset, "lead"]} for subset in SUBSETS]
    tasks = [Task("".join(one), f"who of {one}", {"policy": p}) for one, p in zip(SUBSETS, policies, strict=True)]
    runs = runner.collect(tasks, n=1).runs
    for one in (*pool, lead):
        assert one.accepted == len(one.bodies), "each request is a connection, and there is no other"
    return {subset: next(run for run in runs if run.task_id == "".join(subset)) for subset in SUBSETS}


@pytest.mark.parametrize("denied", ["", "b"], ids=["by the request", "by both"])
def test_a_masked_worker_is_never_connected_to_for_any_subset(denied: str) -> None:
    """All subsets of four through the orchestrator, where every worker fails: the others are tried, each once."""
    with servers("a", "b", "c", "d", "lead") as (*pool, lead):
        lead.answer = lambda body: said(written([Part(3 if len(body["messages"]) == 2 else 0, "look")]))
        for one in pool:
            one.answer = lambda body: (503, {"error": {"message": "down"}})
        for subset, run in of_all_subsets(pool, lead, {"deny": [denied] if denied else []}).items():
            allowed = [one.name for one in pool if one.name in subset and one.name != denied]
            assert run.stop == "model_error"
            assert sent(pool, subset) == [int(one.name in allowed) for one in pool]
            assert sent([lead], subset) == [0 if not allowed else 1 if len(allowed) == 4 else 2]
            told = [lines(body) for body in lead.bodies if f"who of {subset}" in json.dumps(body)]
            assert all(names == allowed for names in told), "re-indexed"


def test_a_plan_is_performed_by_those_that_are_allowed_alone() -> None:
    """The first plan names the fourth worker, whoever may be asked; then there is a part for each that may."""

    def plans(body: Any) -> Any:
        numbers = [3] if len(body["messages"]) == 2 else range(len(lines(body)))
        return said(written([Part(number, "look", (at - 1,) if at else ()) for at, number in enumerate(numbers)]))

    with servers("a", "b", "c", "d", "lead") as (*pool, lead):
        lead.answer = plans
        for subset, run in of_all_subsets(pool, lead, {}).items():
            if len(subset) == 4:
                assert sent(pool, subset) == [0, 0, 0, 1], "the first plan holds"
            elif subset:
                assert sent(pool, subset) == [int(one.name in subset) for one in pool]
                assert noted(run)["no plan"]["why"] == "part 0 names worker 3"
                assert noted(run)["answer"]["text"] == f"I am {subset[-1]}"
                assert set(noted(run)["refused"]["workers"]) == set("abcd") - set(subset)


LABELS = {"region": "eu", "retention_days": 0, "seconds": 1.0, "clearance": ["health"], "price_in": 1, "price_out": 1}


@pytest.mark.parametrize(
    ("policy", "label"),
    [({"regions": "eu"}, "region"), ({"retention": 0}, "retention_days"), ({"max_latency": 2}, "seconds"),
     ({"data_class": "health"}, "clearance"), ({"max_cost": 1}, "price_in"), ({"max_cost": 1}, "price_out")],
)  # fmt: skip
def test_what_is_unknown_of_a_worker_or_of_the_leading_model_is_refused(policy: dict[str, Any], label: str) -> None:
    some = {name: value for name, value in LABELS.items() if name != label}
    workers = {name: {"ref": name, **labels} for name, labels in (("a", some), ("b", LABELS))}
    runner, models = team(workers, written([Part(0, "look")]), lead=LABELS)
    run = asked(runner, policy=policy)
    assert models["b"].calls == models["lead"].calls == 1
    assert models["a"].calls == 0
    runner, models = team(workers, written([Part(0, "look")]), lead=some)
    run = asked(runner, policy=policy)
    assert models["lead"].calls == models["a"].calls == 0
    assert noted(run)["answer"]["text"] == "b saw What is it?", "the first worker that is allowed answers alone"
    assert noted(run)["not asked"]["worker"] == "lead"


def team(workers: Any, *said_by_lead: str, lead: Any = None, tools: Any = (), **says: object) -> tuple[Runner, Any]:
    """A runner of the orchestrator over named workers, and its models by name."""
    turn = iter(said_by_lead)
    models = {name: Worker(name, says.get(name)) for name in workers}
    models["lead"] = Worker("lead", lambda request: next(turn))
    config = {"workers": workers, "lead": lead or {}}
    found = Runner("orchestrator", None, models["lead"], config=config, tools=list(tools), resolve_model=models.get)
    return found, models


# ---- whose words they are --------------------------------------------------------------------------------------------

CLINIC = {
    "clinic": {"ref": "clinic", "data_class": "health"},
    "public": {"ref": "public"},
    "ward": {"ref": "ward", "clearance": ["health"]},
}


def told(worker: Worker) -> str:
    """All that a worker was sent."""
    return "\n".join(node.message.text for request in worker.asked for node in request.path)


FINDS = f"the finding is {CANARY}"
READS = written([Part(0, "examine"), Part(1, "sum up", (0,)), Part(2, "check", (0, 1))])


def test_results_of_a_class_are_not_shown_to_workers_that_are_not_cleared() -> None:
    runner, models = team(CLINIC, READS, clinic=FINDS)
    run = asked(runner)
    assert CANARY in told(models["ward"])
    assert CANARY not in told(models["public"]) + told(models["lead"])
    assert "public saw" in told(models["ward"])
    assert noted(run)["withheld"] == {"part": "w0s1", "worker": "public", "texts": 1, "classes": ["health"]}
    assert noted(run)["answer"]["classes"] == ["health"], "its author saw them"
    assert runner.replay(run).calls == len(run.calls)
    assert not runner.store.verify()


def test_canaries_never_cross_between_sockets() -> None:
    """Each of three endpoints says a word of its own, in its answer and to a tool; none reaches an endpoint that is not
    cleared for it, in any plan of three parts and a second one, whoever leads."""
    words = {"a": "canary-a", "b": "canary-b", "c": "canary-c"}
    cleared = {"a": [], "b": ["of-a"], "c": ["of-a", "of-b"], "lead": ["of-a"]}

    def note(text: str) -> str:
        """Notes it."""
        return f"noted {text}"

    with servers("a", "b", "c", "lead") as (*pool, lead):
        for one in pool:
            word = words[one.name]
            call = {
                "id": "1",
                "type": "function",
                "function": {"name": "note", "arguments": json.dumps({"text": word})},
            }
            one.answer = lambda body, word=word, call=call: (
                said(f"it is {word}") if body["messages"][-1]["role"] == "tool" else said("", tool_calls=[call])
            )
        workers = {
            one.name: {
                "ref": f"openai:m@{one.url}",
                "data_class": f"of-{one.name}",
                "clearance": cleared[one.name],
            }
            for one in pool
        }
        config = {"workers": workers, "plans": 2, "lead": {"clearance": cleared["lead"]}}
        runner = Runner("orchestrator", None, clew.model(f"openai:m@{lead.url}"), config=config, tools=[note])
        orders = {f"task {order}": order for order in itertools.permutations(range(3))}

        def answer(body: Any) -> Any:
            asked = next(one["content"] for one in body["messages"] if one["content"].startswith("task "))
            if len(body["messages"]) > 2:
                return said(written([Part(0, "look again")]))
            return said(written([Part(n, "look", tuple(range(at))) for at, n in enumerate(orders[asked])]))

        lead.answer = answer
        runs = runner.collect([Task(prompt, prompt) for prompt in orders], n=1).runs
        assert [run.stop for run in runs] == ["returned"] * 6
        for one in (*pool, lead):
            got, may = json.dumps(one.bodies), {f"canary-{name[3:]}" for name in (*cleared[one.name], f"of-{one.name}")}
            assert {word for word in words.values() if word in got} <= may, one.name
        assert "canary-a" in json.dumps(pool[2].bodies), "what may cross does"
        assert "canary-a" in json.dumps(lead.bodies)


def test_parts_that_wake_together_replay_whatever_notes_they_leave_first() -> None:
    """The third and the fourth wait for the second; the third for the first as well, and so comes first in a replay."""
    parts = [Part(0, "one"), Part(0, "two", (0,)), Part(1, "three", (0, 1)), Part(1, "four", (1,))]
    runner, _ = team(CLINIC, written(parts), clinic=FINDS)
    run = asked(runner)
    assert [json.loads(c.text)["part"] for c in run.calls if c.action == "withheld"] == ["w0s3", "w0s2"]
    assert runner.replay(run).calls == len(run.calls)


def look(at: str) -> str:
    """Looks."""
    return f"{CANARY} at {at}"


def looks(request: Any) -> Any:
    return "done" if request.path[-1].message.role == "tool" else tool_call("look", at="left")


def test_what_tools_gave_a_worker_is_remembered_for_those_alone_that_are_cleared() -> None:
    second = written([Part(1, "go on"), Part(2, "go on")])
    runner, models = team(CLINIC, written([Part(0, "look")]), second, tools=[look], clinic=looks)
    run = asked(runner, plans=2)
    assert CANARY in told(models["ward"])
    assert CANARY not in told(models["public"]) + told(models["lead"])
    assert [json.loads(c.text)["worker"] for c in run.calls if c.action == "withheld"] == ["lead", "public"]


def test_a_leading_model_that_is_cleared_sees_results_and_names_those_alone_that_are_too() -> None:
    lead = {"clearance": ["health"]}
    runner, models = team(CLINIC, written([Part(0, "look")]), written([Part(1, CANARY)]), lead=lead, clinic=FINDS)
    run = asked(runner, plans=2)
    assert "The workers are now, by number:\n0: clinic\n1: ward\n" in seen(models["lead"].asked[1])
    assert CANARY in told(models["lead"])
    assert (models["ward"].calls, models["public"].calls) == (1, 0)
    assert noted(run)["refused"]["workers"] == {"public": "not cleared for health, which the last message is"}


def test_who_follows_a_worker_that_failed_sees_its_trace_only_if_cleared_and_refuse_refuses() -> None:
    def fails(request: Any) -> Any:
        return ModelError("gone") if request.path[-1].message.role == "tool" else tool_call("look", at="left")

    runner, models = team(CLINIC, written([Part(0, "look")]), tools=[look], clinic=fails)
    run = asked(runner)
    assert (models["public"].calls, models["ward"].calls) == (0, 1)
    assert noted(run)["not asked"]["why"] == "not cleared for health, which the last message is"
    assert [node.message.role for node in models["ward"].asked[0].path][-2:] == ["assistant", "tool"]
    runner, models = team(CLINIC, READS, clinic=FINDS)
    run = asked(runner, policy={"flow": "refuse"})
    assert models["public"].calls == 0
    assert noted(run)["not asked"]["why"] == "not cleared for health, which the conversation holds"
    assert noted(run)["answer"]["text"].startswith("ward saw")


def test_messages_of_a_task_are_of_the_class_they_say_else_unknown() -> None:
    before = [{"role": "user", "text": "mine"}, {"role": "assistant", "text": CANARY}, {"role": "tool", "text": CANARY}]
    runner, models = team(CLINIC, written([Part(1, "look")]))
    data = {"messages": [*before, {"role": "user", "text": "and now?"}]}
    runner.collect([Task("t", "", data)], n=1)
    assert "mine" in told(models["public"])
    assert CANARY not in told(models["public"]) + told(models["lead"])
    before[1]["classes"] = before[2]["classes"] = []
    runner, models = team(CLINIC, written([Part(1, "look")]))
    runner.collect([Task("t", "", data)], n=1)
    assert told(models["public"]).count(CANARY) == 2


# ---- money -----------------------------------------------------------------------------------------------------------


def test_dollars_of_a_policy_are_those_of_all_requests_together() -> None:
    dear = {"ref": "a", "price_in": 0, "price_out": 1000}
    cheap = {"ref": "b", "price_in": 0, "price_out": 1}
    plan = written([Part(0, "one"), Part(0, "two", (0,)), Part(0, "three", (1,))])
    runner, models = team({"a": dear, "b": cheap}, plan, lead={"price_in": 0, "price_out": 0})
    runner.sampling = {"max_tokens": 100}
    run = asked(runner, policy={"max_cost": 0.25})
    assert (models["a"].calls, models["b"].calls) == (2, 1), "two could cost $.2 at most; the next worker is cheaper"
    assert noted(run)["not asked"] == {"part": "w0s2", "worker": "a", "why": "could cost $0.1000"}
    assert noted(run)["limit"] == {"max_cost": 0.25}
    assert str(noted(run)["answer"]["text"]).startswith("b saw")


# ---- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"workers": []}, "the orchestrator has no workers"),
        ({"workers": "a"}, "workers is no list of models"),
        ({"workers": [{"region": "eu"}]}, "a worker has no model"),
        ({"workers": [{"ref": "a", "regoin": "eu"}]}, "a worker has a field 'regoin'"),
        ({"workers": [{"ref": "a"}, {"ref": "b", "name": "a"}]}, "two workers are called a"),
        ({"workers": {"lead": "a"}}, "a worker has the leading model's name"),
        ({"workers": [f"m{i}" for i in range(65)]}, "65 workers"),
        ({"workers": ["a"], "lead": 3}, "lead is no JSON object"),
        ({"workers": ["a"], "policy": {"deny": ["A"]}}, "no worker is called 'A'"),
        ({"workers": ["a"], "policy": {"forbid": 1}}, "there is no 'forbid'"),
    ],
)
def test_a_team_that_is_none_is_refused_with_a_sentence(given: dict[str, Any], text: str) -> None:
    with pytest.raises((BadInput, UnknownName), match=text) as caught:
        Team.read(**given)
    assert caught.value.remedy


def test_references_are_names_and_nobody_left_is_one_sentence() -> None:
    made = Team.read(["openai:gpt-5-mini", "./weights", "./weights"])
    assert [post.name for post in made.posts] == ["openai:gpt-5-mini", "./weights"]
    assert made.names == ("openai-gpt-5-mini", "weights", "lead")
    none = made.under({"regions": ["eu"]})
    assert none.open()[0] == []
    assert "openai:gpt-5-mini: its region is unknown" in none.nobody().message
    assert made.under({"deny": ["weights"]}).under({"allow": ["weights"]}).open()[0] == []
    runner, models = team(CLINIC, "")
    run = asked(runner, policy={"allow": []})
    assert run.stop == "model_error"
    assert run.calls[-1].error.startswith("no worker may work on this (clinic: not among those that are allowed")
    assert isinstance(none.nobody(), Refused)
    assert isinstance(run, Run)
    assert not any(model.calls for model in models.values())


@pytest.mark.parametrize("seed", range(30))
def test_whoever_repeats_all_it_ever_saw_tells_it_to_those_alone_that_are_cleared(seed: int) -> None:
    """Random teams, plans within plans, tools and failures; each model says every canary that it was shown."""
    dice = random.Random(seed)
    names = "abcd"
    clearance = {name: [f"of-{one}" for one in names if dice.random() < 0.5] for name in (*names, "lead")}
    labels = {
        name: {"ref": name, "data_class": f"of-{name}" if dice.random() < 0.8 else "", "clearance": clearance[name]}
        for name in names
    }

    def all_seen(request: Any) -> str:
        words = " ".join(node.message.text + str(node.message.calls) for node in request.path)
        return " ".join(sorted(set(re.findall("canary-[a-d]", words))))

    def says(name: str) -> Any:
        own = f"canary-{name}" if labels[name]["data_class"] else "nothing"

        def answer(request: Any) -> Any:
            if dice.random() < 0.2:
                return ModelError("gone")
            if request.path[-1].message.role != "tool" and dice.random() < 0.5:
                return tool_call("note", said=f"{own} {all_seen(request)}")
            return f"{own} {all_seen(request)}"

        return answer

    def leads(request: Any) -> str:
        told = request.path[0].message.text + request.path[-1].message.text
        numbered = told.rpartition("by number:\n")[2].splitlines()
        count = next(i for i, line in enumerate([*numbered, ""]) if not line[:1].isdigit())
        parts = list[Part]()
        for at in range(dice.randint(1, 4)):
            reads = tuple(j for j in range(at) if dice.random() < 0.6)
            parts.append(Part(dice.randrange(count), f"go on, {all_seen(request)}", reads))
        return written(parts)

    def note(said: str) -> str:
        """Notes it."""
        return f"noted {said}"

    models = {name: Worker(name, says(name)) for name in names} | {"lead": Worker("lead", leads)}
    config = {"workers": labels, "lead": {"clearance": clearance["lead"]}, "plans": 3, "depth": 1}
    config["policy"] = {"flow": dice.choice(["", "refuse", "remove"])}
    runner = Runner("orchestrator", None, models["lead"], config=config, tools=[note], resolve_model=models.get)
    run = runner.collect([Task("t", "What is it?")], n=1).runs[0]
    assert run.stop in ("returned", "model_error")
    for name, model in models.items():
        may = {f"canary-{one[3:]}" for one in clearance[name]} | {f"canary-{name}"}
        assert set(re.findall("canary-[a-d]", "".join(map(all_seen, model.asked)))) <= may, name
    assert runner.replay(run).calls == len(run.calls)


def test_a_policy_may_name_workers_that_are_not_drawn_for_a_task() -> None:
    labels = {name: {"ref": name} for name in "abcdef"}
    runner, models = team(labels, *[written([Part(0, "look")])] * 8)
    config = {"subset": True, "policy": {"deny": list("abc")}}
    runner.config |= config
    runs = runner.collect([Task(f"t{i}", "What is it?") for i in range(8)], n=1).runs
    assert {run.stop for run in runs} <= {"returned", "model_error"}
    assert sum(models[name].calls for name in "def") > 0
    assert not any(models[name].calls for name in "abc")

"""A served orchestrator under policies: judged before a run is opened, kept by its run, labels known in later turns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew.core.errors import BadInput
from clew.core.values import Limits
from clew.harness.workflow import Part, written
from clew.models.compose.ledger import Ledger, read_ledger
from clew.models.compose.signing import Signed, signing
from clew.models.fakes import Scripted, tool_call
from clew.serve.agent_model import AgentModel
from clew.serve.openai.server import Server
from clew.store import Run, open_store
from tests.harness.test_workflow import Worker
from tests.serve.serving import CHAT, post
from tests.serve.test_client_tools import LOOK, results

pytest.importorskip("prometheus_client", reason="did not run: prometheus_client is not installed")
HI: list[Any] = [{"role": "user", "content": "What is it?"}]
CANARY = "canary-7131"
WORKERS = {
    "clinic": {"ref": "clinic", "data_class": "health", "region": "eu"},
    "public": {"ref": "public", "region": "us"},
    "ward": {"ref": "ward", "clearance": ["health"], "region": "eu"},
}


def crew(plans: list[str], lead: Any = None, store: Any = None, **says: object) -> tuple[Server, dict[str, Worker]]:
    turn = iter(plans)
    models = {name: Worker(name, says.get(name)) for name in WORKERS}
    models["lead"] = Worker("lead", lambda request: next(turn))
    config = {"workers": WORKERS, "lead": lead or {"region": "eu"}}
    agent = AgentModel(
        "orchestrator", models["lead"], store=store or ":memory:", config=config, resolve_model=models.__getitem__
    )
    return Server(agent, names=("m",)), models


def ask(server: Server, messages: list[Any], **more: Any) -> Any:
    return post(server, CHAT, {"model": "m", "messages": messages, **more})


def reply(server: Server, messages: list[Any], **more: Any) -> Any:
    answer = ask(server, messages, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


def told(worker: Worker) -> str:
    return "\n".join(node.message.text for request in worker.asked for node in request.path)


def test_a_request_narrows_the_policy_and_what_is_wrong_with_it_reaches_no_run() -> None:
    server, models = crew([written([Part(1, "look")])])
    for policy, text in [
        ({"regions": ["eu"], "allow": ["nobody"]}, "no worker is called 'nobody'"),
        ({"regoins": ["eu"]}, "there is no 'regoins'"),
        ({"regions": ["ch"]}, "no worker may work on this (clinic: computes in eu"),
        ({"retention": 3}, "how long it keeps data is unknown"),
    ]:
        refused = ask(server, HI, policy=policy)
        assert (refused.status_code, text in refused.text) == (400, True), refused.text
    assert server.model.runner.store.find("") == []
    assert (
        reply(server, HI, policy={"regions": ["eu"]})["content"]
        == "ward saw What is it?\n\nYour part of the work: look"
    )
    assert models["public"].calls == 0
    (run,) = server.model.runner.store.find("")
    assert json.loads(Run(server.model.runner.store, run).row.task)["data"]["policy"] == {"regions": ["eu"]}


def test_an_agent_that_keeps_no_policy_refuses_one() -> None:
    async def plain(run: Any) -> str:
        return "hi"

    server = Server(AgentModel(plain, Scripted({"": "?"})), names=("m",))
    assert "which could keep a policy" in ask(server, HI, policy={"regions": ["eu"]}).text
    assert reply(server, HI, policy={})["content"] == "hi"


def test_a_server_does_not_start_with_a_team_that_is_none() -> None:
    for config, text in [({}, "the orchestrator has no workers"), ({"workers": ["a"], "policy": 3}, "no JSON object")]:
        with pytest.raises(BadInput, match=text):
            AgentModel("orchestrator", Scripted({"": "?"}), config=config)


def test_an_answer_is_known_by_its_classes_in_later_turns_and_one_that_was_changed_is_unknown() -> None:
    plans = [written([Part(0, "examine")]), written([Part(1, "sum up")]), written([Part(2, "sum up")])]
    server, models = crew([*plans, *plans[1:]], clinic=CANARY)
    first = reply(server, HI)
    turn = [*HI, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": "And now?"}]
    assert first["content"] == CANARY
    reply(server, turn)
    assert CANARY not in told(models["public"]) + told(models["lead"])
    reply(server, turn)
    assert CANARY in told(models["ward"])
    changed = [HI[0], {"role": "assistant", "content": f"so: {CANARY}-2"}, turn[2]]
    reply(server, changed)
    reply(server, changed)
    assert f"{CANARY}-2" not in "".join(map(told, models.values()))


def test_what_a_clients_tool_gave_is_of_the_class_of_who_called_it() -> None:
    def looks(request: Any) -> Any:
        return "seen" if request.path[-1].message.role == "tool" else tool_call("look", at="left")

    plans = [written([Part(0, "look")]), written([Part(1, "go on"), Part(2, "go on")])]
    server, models = crew(plans, clinic=looks)
    policy = {"regions": ["eu", "us"]}
    asked = [*HI, *results(reply(server, HI, tools=[LOOK], policy=policy), left=CANARY)]
    refused = ask(server, asked, tools=[LOOK], policy={"regions": ["eu"]})
    assert (refused.status_code, "began under another policy" in refused.text) == (400, True)
    done = reply(server, asked, tools=[LOOK])
    assert done["content"] == "seen"
    reply(server, [*asked, {"role": "assistant", "content": "seen"}, {"role": "user", "content": "And now?"}])
    assert CANARY in told(models["ward"])
    assert CANARY not in told(models["public"]) + told(models["lead"])


def test_results_of_tools_have_the_class_of_their_own_caller_also_after_a_restart() -> None:
    """Two workers call in one message: what the open one was given is not closed by what the other was."""

    def looks(at: str) -> Any:
        return lambda request: "seen" if request.path[-1].message.role == "tool" else tool_call("look", at=at)

    store = open_store(":memory:")
    plan = written([Part(0, "look left"), Part(1, "look right"), Part(0, "sum up", (0, 1))])
    server, _ = crew([plan], store=store, clinic=looks("left"), public=looks("right"))
    called = reply(server, HI, tools=[LOOK])
    asked = [*HI, *results(called, left=CANARY, right="the door is open")]
    assert len(called["tool_calls"]) == 2
    done = reply(server, asked, tools=[LOOK])
    more = [*asked, {"role": "assistant", "content": done["content"]}, {"role": "user", "content": "And now?"}]
    both = written([Part(1, "go on"), Part(2, "go on")])
    again, models = crew([both], store=store)
    reply(again, more)
    for name, sees in (("public", False), ("lead", False), ("ward", True)):
        assert (CANARY in told(models[name])) is sees, name
        assert 'look {"at": "right"} gave: the door is open' in told(models[name])
    forged = json.loads(json.dumps(more).replace(called["tool_calls"][0]["id"], "0" * 12 + "-" + "0" * 12))
    other, models = crew([both], store=store)
    reply(other, forged)
    assert CANARY not in "".join(map(told, models.values()))


def test_a_limit_of_the_run_ends_an_answer_with_the_best_so_far_and_says_length() -> None:
    plan = written([Part(0, "one"), Part(0, "two", (0,)), Part(0, "three", (1,))])
    model = Worker("a", lambda request: f"answer {len(request.path[-1].message.text) > 60}")
    agent = AgentModel(
        "orchestrator", Scripted({"": plan}), config={"workers": ["a"]}, resolve_model=lambda ref: model,
        limits=Limits(tokens=120),
    )  # fmt: skip
    choice = post(Server(agent, names=("m",)), CHAT, {"model": "m", "messages": HI}).json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"][:6]) == ("length", "answer")
    assert 1 <= model.calls < 3


def test_each_request_to_a_model_of_the_agent_is_a_signed_line_and_none_is_sent_without(tmp_path: Any) -> None:
    key = b"0123456789abcdef"
    ledger = Ledger(tmp_path / "ledger", key)
    workers = {name: Worker(name) for name in WORKERS}
    plan = written([Part(0, "look"), Part(1, CANARY)])
    lead = Signed(Worker("lead", lambda request: plan), ledger)
    agent = AgentModel(
        "orchestrator", lead, config={"workers": WORKERS, "policy": {"regions": "eu"}, "lead": {"region": "eu"}},
        resolve_model=signing(workers.__getitem__, ledger),
    )  # fmt: skip
    server = Server(agent, names=("m",))
    reply(server, HI)
    lines = list(read_ledger(tmp_path / "ledger", key))
    assert sorted((one["kind"], one["model"]) for one in lines) == sorted(
        (kind, name) for kind in ("sent", "answered") for name in ("lead", "clinic", "ward")
    )
    (run,) = agent.runner.store.find("")
    calls = Run(agent.runner.store, run).calls
    assert {one["call"] for one in lines} == {f"{run}-{call.seq}" for call in calls if call.kind == "ask"}
    assert CANARY not in (tmp_path / "ledger").read_text()
    before = [worker.calls for worker in workers.values()]
    ledger.close()
    assert ask(server, HI).status_code == 502
    assert [worker.calls for worker in workers.values()] == before

"""An agent behind the server: a chat completion runs it, says which run answered, and the run stands on its own."""

from __future__ import annotations

from typing import Any

import pytest

from clew.core.errors import Busy
from clew.core.values import Limits
from clew.harness import LiveRun, Runner
from clew.models.fakes import Scripted
from clew.serve.agent_model import AgentModel
from clew.serve.gateway.recorder import Recorder
from clew.serve.openai.server import Server
from clew.store import Run, open_store
from tests.serve.serving import CHAT, HI, post

pytest.importorskip("prometheus_client")


async def helper(run: LiveRun) -> str:
    return (await run.chat().ask(run.task.prompt)).text


async def asker(run: LiveRun) -> str:
    """Asks twice, has a child think, and says more than its model said."""
    first = await run.chat("be brief").ask(run.task.prompt)
    second = await run.chat().ask(f"{len(run.task.data['messages'])} messages")
    child = await run.spawn(f"{__name__}:helper", "from the child")
    return f"{first.text} / {second.text} / {child.conversation(0)[-1].message.text}"


async def diver(run: LiveRun, depth: int = 1100) -> str:
    """Each run has a child, down to some depth."""
    reply = await run.chat().ask("down")
    if depth:
        await run.spawn(f"{__name__}:diver", "down", depth=depth - 1)
    return reply.text


async def silent(run: LiveRun) -> None:
    while True:
        await run.chat().ask(run.task.prompt)


def loud() -> Any:
    return Scripted({"": lambda request: request.path[-1].message.text.upper()})


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_completion_is_a_run_of_the_agent(stream: bool) -> None:
    model = loud()
    store = open_store(":memory:")
    agent = AgentModel(asker, model, store=store)
    got = post(Server(agent, names=("m",)), CHAT, HI | {"stream": stream})
    assert got.status_code == 200, got.text
    assert "HI / 1 MESSAGES / FROM THE CHILD" in got.text
    (run,) = [Run(store, r) for r in store.find("") if not Run(store, r).row.spawned_by]
    assert f'"clew_run":"{run.id}"' in got.text.replace(": ", ":")
    if not stream:
        assert got.json()["usage"]["completion_tokens"] == len(["HI", "1", "MESSAGES", "FROM", "THE", "CHILD"])
    assert run.agent == f"{__name__}:asker"
    assert (run.stop, [c.kind for c in run.calls]) == ("returned", ["open", "ask", "ask", "spawn", "end"])
    model.calls = 0
    assert Runner(run.agent, None, model, store).replay(run).calls == 5
    assert model.calls == 0
    assert not store.verify()


def test_what_children_of_children_spent_is_counted_however_deep_they_lie() -> None:
    got = post(Server(AgentModel(diver, loud(), store=open_store(":memory:")), names=("m",)), CHAT, HI)
    assert got.status_code == 200, got.text
    assert got.json()["usage"]["completion_tokens"] == 1101


def test_the_record_of_the_conversation_names_the_run_that_answered() -> None:
    store = open_store(":memory:")
    agent = AgentModel(f"{__name__}:helper", loud(), store=store)
    it = Server(agent, names=("m",), recorder=Recorder(store, agent))
    got = post(it, CHAT, HI)
    assert got.json()["choices"][0]["message"]["content"] == "HI"
    outer, inner = (Run(store, r) for r in (got.headers["x-clew-run"], got.json()["choices"][0]["message"]["clew_run"]))
    assert inner.id in outer.conversation(0)[-1].message.extra
    assert inner.conversation(0)[-1].message.text == "HI"
    assert Runner.of(store, outer).replay(outer).calls == len(outer.calls)
    assert Runner(inner.agent, None, None, store).replay(inner).calls == len(inner.calls)


def test_equal_seeds_give_equal_runs_and_limits_cut_an_answer() -> None:
    agent = AgentModel(silent, loud(), limits=Limits(tokens=3))
    server = Server(agent, names=("m",))
    for _ in range(2):
        choice = post(server, CHAT, HI).json()["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "HI")
    one, other = (Run(agent.runner.store, r) for r in agent.runner.store.find(""))
    assert (one.seed, one.task_id) == (other.seed, other.task_id)


def test_an_image_is_not_lost_in_silence() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    seen = {**HI, "messages": [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, part]}]}
    answer = post(Server(AgentModel(silent, loud()), names=("m",)), CHAT, seen)
    assert (answer.status_code, "is handed text alone" in answer.text) == (400, True)


def test_what_an_agent_cannot_do_is_refused_and_its_failures_are_told() -> None:
    server = Server(AgentModel(helper, Scripted([Busy("later")], by="call")), names=("m",))
    begun = {"messages": [*HI["messages"], {"role": "assistant", "content": "He"}], "continue_final_message": True}
    refused = post(server, CHAT, HI | begun | {"add_generation_prompt": False})
    assert (refused.status_code, "no beginning of a reply" in refused.text) == (400, True)
    busy = post(server, CHAT, HI)
    assert (busy.status_code, busy.json()["error"]["code"]) == (429, "Busy")

    async def broken(run: LiveRun) -> None:
        raise ZeroDivisionError

    got = post(Server(AgentModel(broken, loud()), names=("m",)), CHAT, HI)
    assert got.status_code == 502
    assert "agent_error" in got.json()["error"]["message"]

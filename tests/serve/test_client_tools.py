"""A served agent whose tools the client performs: left in the store, gone on with by ids, across restarts."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest

from clew.harness import LiveRun, Runner
from clew.models.fakes import Scripted, tool_call
from clew.serve.agent_model import AgentModel
from clew.serve.openai.server import Server
from clew.store import Run, open_store
from tests.serve.plan_server import served
from tests.serve.serving import CHAT, post

pytest.importorskip("prometheus_client", reason="did not run: prometheus_client is not installed")
HI = [{"role": "user", "content": "What is there?"}]

LOOK = {"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}  # fmt: skip


def ask(server: Server, messages: list[Any]) -> Any:
    return post(server, CHAT, {"model": "m", "messages": messages, "tools": [LOOK], "seed": 3})


def results(reply: Any, **said: str) -> list[Any]:
    """The reply and its calls' results, by where each looked."""
    calls = reply["tool_calls"]
    at = [json.loads(call["function"]["arguments"])["at"] for call in calls]
    return [
        reply,
        *({"role": "tool", "tool_call_id": c["id"], "content": said[a]} for c, a in zip(calls, at, strict=True)),
    ]


def test_results_come_back_to_the_worker_that_asked_also_after_a_restart(tmp_path) -> None:
    server, workers = served(open_store(tmp_path / "s.db"))
    first = ask(server, HI)
    assert first.status_code == 200, first.text
    choice = first.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    reply = choice["message"]
    assert len(reply["tool_calls"]) == 2, "both parts wait, in one answer"
    told = [*HI, *results(reply, left="a cat", right="a dog")]

    again, others = served(open_store(tmp_path / "s.db"))  # another process would know no more
    done = ask(again, told)
    assert done.status_code == 200, done.text
    assert done.json()["choices"][0]["message"]["content"] == "a saw a cat; b saw a dog"
    assert [w.calls for w in workers] == [1, 1]
    assert [w.calls for w in others] == [2, 1], "nothing is asked again"
    assert done.json()["usage"]["completion_tokens"] < 30

    repeated = ask(again, told)
    assert repeated.json()["choices"][0]["message"]["content"] == "a saw a cat; b saw a dog", "a retry changes nothing"
    assert [w.calls for w in others] == [2, 1]
    store = again.model.runner.store
    (run,) = [Run(store, name) for name in store.find("")]
    assert run.stop == "returned"
    assert Runner.of(store, run, model=Scripted({"": "?"})).replay(run).calls == len(run.calls)
    assert not store.verify()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda m: [*m[:-1], m[-1] | {"tool_call_id": "call_1"}], "no run of this server made"),
        (lambda m: [*m[:-1], m[-1] | {"tool_call_id": "zzzzzzzzzzzz-0123456789ab"}], "several"),
        (lambda m: [*m, m[-1]], "answered twice"),
        (lambda m: [*m[:-1], m[-1] | {"tool_call_id": m[-1]["tool_call_id"][:-1] + "!"}], "no run of this server made"),
    ],
)
def test_results_of_calls_that_were_not_made_are_refused(spoil, told) -> None:
    server, _ = served(open_store(":memory:"))
    messages = [*HI, *results(ask(server, HI).json()["choices"][0]["message"], left="a cat", right="a dog")]
    got = ask(server, spoil(messages))
    assert got.status_code == 400, got.text
    assert ask(server, messages).json()["choices"][0]["message"]["content"] == "a saw a cat; b saw a dog"


async def repeater(run: LiveRun, times: int = 3) -> str:
    """Makes one and the same call several times."""
    seen = [await run.act(tool_call("look", at="left").calls[0]) for _ in range(times)]
    return " ".join(observation.text for observation in seen)


def test_equal_calls_are_told_apart_and_a_late_retry_is_answered_by_what_is_asked_now() -> None:
    server = Server(AgentModel(repeater, Scripted({"": "?"}), store=open_store(":memory:")), names=("m",))
    messages: list[Any] = [{"role": "user", "content": "go"}]
    ids, before = [], []
    for text in ("one", "two", "three"):
        reply = ask(server, messages).json()["choices"][0]["message"]
        ids += [call["id"] for call in reply["tool_calls"]]
        before, messages = messages, [*messages, *results(reply, left=text)]
    assert len(set(ids)) == 3
    late = ask(server, before).json()["choices"][0]["message"]
    assert [call["id"] for call in late["tool_calls"]] == ids[2:]
    assert ask(server, messages).json()["choices"][0]["message"]["content"] == "one two three"


def test_a_tool_that_the_agent_has_itself_is_refused() -> None:
    def look(at: str) -> str:
        return at

    agent = AgentModel(repeater, Scripted({"": "?"}), store=":memory:", tools=[look])
    got = ask(Server(agent, names=("m",)), [{"role": "user", "content": "go"}])
    assert (got.status_code, "of its own" in got.text) == (400, True)


def started(store: Any) -> tuple[subprocess.Popen[bytes], str]:
    """The server as a process, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "tests.serve.plan_server", str(store), str(port)])
    for _ in range(600):
        try:
            httpx.get(f"http://127.0.0.1:{port}/v1/models")
            break
        except httpx.ConnectError:
            time.sleep(0.05)
    return process, f"http://127.0.0.1:{port}"


def test_fifty_conversations_survive_a_kill_between_calls_and_results(tmp_path) -> None:
    async def all_of(address: str, told: list[list[Any]]) -> list[Any]:
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            asked = [client.post(CHAT, json={"model": "m", "messages": m, "tools": [LOOK]}) for m in told]
            return [answer.json()["choices"][0]["message"] for answer in await asyncio.gather(*asked)]

    said = [[{"role": "user", "content": f"What is there in room {i}?"}] for i in range(50)]
    process, address = started(tmp_path / "s.db")
    try:
        replies = asyncio.run(all_of(address, said))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    brought = [[*said[i], *results(reply, left=f"cat {i}", right=f"dog {i}")] for i, reply in enumerate(replies)]
    process, address = started(tmp_path / "s.db")
    try:
        answers = asyncio.run(all_of(address, brought))
    finally:
        process.terminate()
        process.wait()
    assert [answer["content"] for answer in answers] == [f"a saw cat {i}; b saw dog {i}" for i in range(50)]
    store = open_store(tmp_path / "s.db")
    runs = [Run(store, name) for name in store.find("")]
    assert [run.stop for run in runs] == ["returned"] * 50
    assert {sum(call.kind == "ask" for call in run.calls) for run in runs} == {6}, "nothing was asked twice"

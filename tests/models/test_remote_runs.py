"""Whole runs over HTTP: recorded, replayed without the endpoint, cut by limits, and no trace of the credential."""

from __future__ import annotations

import asyncio
import json

import pytest

from clew.core.errors import BadInput, ReplayDiverged
from clew.core.values import Limits, Message, StopReason, Task
from clew.harness import Runner
from clew.models import load
from clew.models.fakes import Replay
from clew.models.remote import Remote
from clew.store import open_store

from .helpers import ask
from .server import chat, chunks, failing, serving

KEY = "sk-canary-0815"


@pytest.fixture
def peer():
    with serving() as server:
        yield server


def call(n, name, **arguments):
    return {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


async def add(a: int, b: int) -> str:
    """The sum.

    Args:
        a: a number
        b: another
    """
    await asyncio.sleep(0.02 * (2 - a))  # the first answers last
    return str(a + b)


async def parallel(run):
    """Three tool calls at once, answered out of order; then the answer."""
    chat = run.chat(tools=run.tools)
    reply = await chat.ask("add them")
    for seen in await asyncio.gather(*[run.act(wish) for wish in reply.calls]):
        chat.say("tool", seen)
    await chat.ask()


def test_a_run_over_http_replays_without_the_endpoint(peer, tmp_path):
    calls = [call(i, "add", a=i, b=10) for i in range(3)]
    peer.answer = lambda body, count: (
        chat("10, 11 and 12") if any(m["role"] == "tool" for m in body["messages"]) else chat(None, tool_calls=calls)
    )
    store = open_store(tmp_path / "runs.db")
    model = Remote(peer.url, "m", lambda: KEY)
    runner = Runner(parallel, None, model, store, tools=[add])
    (group,) = runner.collect([Task("t", "add")], n=2)
    asked = len(peer.bodies)
    for run in group:
        acts = [c for c in run.calls if c.kind == "act"]
        assert [c.text for c in sorted(acts, key=lambda c: c.done)] == ["12", "11", "10"]
        assert [n.message.role for n in run.conversation(0)] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "tool",
            "assistant",
        ]
        assert runner.replay(run).calls == len(run.calls)
        asks = [c for c in run.calls if c.kind == "ask"]
        assert [c.setup.served_by for c in asks] == ["served-name"] * 2
        assert [[a.status for a in c.attempts] for c in asks] == [[200]] * 2
    assert len(peer.bodies) == asked == model.calls == 4
    assert not store.verify()

    again = Replay(store)
    (rerun,) = Runner(parallel, None, again, tools=[add]).collect([Task("t", "add")], n=1)
    assert rerun[0].conversation(0)[-1].message == Message("assistant", "10, 11 and 12")
    assert len(peer.bodies) == asked
    store.close()


def test_the_credential_is_nowhere_in_the_store(peer, tmp_path):
    peer.say(failing(500, f"{KEY} broke it"), chat("ok"), failing(401, f"who is {KEY}?"))
    store = open_store(tmp_path / "runs.db")
    url = peer.url.replace("http://", f"http://me:{KEY}@")

    async def agent(run):
        chat = run.chat()
        await chat.ask("one")
        await chat.ask("two")

    for model in (Remote(peer.url, "m", KEY, backoff=0.001), Remote(url, "m", backoff=0.001)):
        (group,) = Runner(agent, None, model, store).collect([Task("t", "x")], n=1)
        assert group[0].stop is StopReason.MODEL_ERROR
        peer.say(failing(500, f"{KEY} broke it"), chat("ok"), failing(401, f"who is {KEY}?"))
    store.close()
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes(), f"the credential is in {file.name}"


def test_a_time_limit_cuts_a_stream_and_ends_the_run_for_time(peer):
    peer.answer = lambda body, count: chunks(*["more "] * 100, gap=0.05)

    async def agent(run):
        chat = run.chat()
        for _ in range(3):
            await chat.ask("go on")

    model = Remote(peer.url, "m", stream=True)
    (group,) = Runner(agent, None, model, limits=Limits(seconds=0.5)).collect([Task("t", "x")], n=1)
    asks = [c for c in group[0].calls if c.kind == "ask"]
    assert (group[0].stop, asks[-1].finish) == (StopReason.TIME_LIMIT, "cut")
    assert group[0].conversation(0)[-1].message.text.startswith("more ")


def test_a_full_context_ends_the_run_as_such(peer):
    peer.say(failing(400, "This model's maximum context length is 8 tokens"))

    async def agent(run):
        await run.chat().ask("long")

    (group,) = Runner(agent, None, Remote(peer.url, "m")).collect([Task("t", "x")], n=1)
    assert group[0].stop is StopReason.CONTEXT_FULL


def test_a_changed_agent_is_named_and_nothing_is_asked(peer):
    words = ["one", "two"]

    async def agent(run):
        chat = run.chat()
        for word in words:
            await chat.ask(word)

    runner = Runner(agent, None, Remote(peer.url, "m"))
    (group,) = runner.collect([Task("t", "x")], n=1)
    asked = len(peer.bodies)
    words[1] = "three"
    with pytest.raises(ReplayDiverged, match=f"{group[0].id}@2"):
        runner.replay(group[0])
    assert len(peer.bodies) == asked


def test_the_version_of_the_weights_behind_an_endpoint_is_recorded_per_call(peer, tmp_path):
    store = open_store(tmp_path / "runs.db")
    model = load(f"{peer.url}#m", version=3)

    async def twice(run):
        chat = run.chat()
        chat.say("user", "one")
        await chat.ask()
        model.publish(4)  # the server has loaded other weights
        chat.say("user", "two")
        await chat.ask()

    runner = Runner(twice, None, model, store)
    run = runner.collect([Task("t", "add")], n=1)[0][0]
    asks = [c for c in run.calls if c.kind == "ask"]
    assert [c.setup.version for c in asks] == [3, 4]
    assert runner.replay(run).calls == len(run.calls)
    assert not store.verify()


def test_a_reply_keeps_the_version_it_was_sent_under(peer):
    model = Remote(peer.url, "m", version=7)

    def answer(body, count):
        model.publish(8)
        return failing(500) if count == 0 else chat()

    peer.answer = answer
    model.backoff = 0.0
    assert asyncio.run(model.complete(ask("hi"))).version == 8  # the attempt that was answered, the second
    peer.answer = lambda body, count: (model.publish(9), chat())[1]
    assert asyncio.run(model.complete(ask("hi"))).version == 8
    assert model.version == 9


@pytest.mark.parametrize("version", [-1, True, 1.5, "2"])
def test_a_version_that_is_no_count_is_refused(peer, version):
    with pytest.raises(BadInput, match="whole number"):
        Remote(peer.url, "m", version=version)
    model = Remote(peer.url, "m")
    with pytest.raises(BadInput, match="whole number"):
        model.publish(version)
    assert model.version == 0

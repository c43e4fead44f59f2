"""Streams of an upstream that break off: a client gets an error, never an orderly end, live as replayed."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest
from starlette.responses import StreamingResponse

from clew.models.fakes import Markov
from clew.models.remote.client import Remote
from clew.serve.gateway.proxy import Gateway
from clew.serve.gateway.recorder import Recorder
from clew.serve.openai.server import Server
from clew.store import open_store
from tests.models.server import chunks, serving
from tests.serve.foreign import Client, asks, before, only, using


def pieces_of(dialect: str) -> list[dict[str, Any]]:
    """The first events of a streamed reply "Hello wor", as its endpoint writes them."""
    if dialect == "chat":
        return [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("Hello", " wor")]
    if dialect == "messages":
        began = {"type": "message_start", "message": {"model": "m", "role": "assistant", "content": []}}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        delta = {"type": "content_block_delta", "index": 0}
        more = [delta | {"delta": {"type": "text_delta", "text": text}} for text in ("Hello", " wor")]
        return [began, block, *more]
    began = {"type": "response.created", "response": {"model": "m"}}
    item = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "role": "assistant"}}
    delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0}
    return [began, item, *(delta | {"delta": text} for text in ("Hello", " wor"))]


FAILURE: dict[str, dict[str, Any]] = {
    "chat": {"error": {"message": "overloaded", "type": "server_error"}},
    "messages": {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}},
    "responses": {"type": "error", "code": "server_error", "message": "overloaded"},
}
ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    "messages": ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
    "responses": ("/v1/responses", {"model": "m", "input": "hi"}),
}
ENDS = ("finish_reason", "stop_reason", "response.completed", "response.incomplete", "message_stop", "[DONE]")


def breaking(dialect: str, how: str) -> Any:
    async def lines() -> Any:
        for event in pieces_of(dialect):
            yield f"data: {json.dumps(event)}\n\n"
        if how == "error":
            yield f"data: {json.dumps(FAILURE[dialect])}\n\n"
            yield "data: [DONE]\n\n" if dialect == "chat" else ""

    return StreamingResponse(lines(), media_type="text/event-stream")


def told_of(text: str) -> tuple[str, list[str]]:
    """The text that a client of any dialect collects, and the words by which an orderly end would be told."""
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    said = [e["choices"][0]["delta"].get("content") or "" for e in events if e.get("choices")]
    said += [e["delta"] for e in events if e.get("type") == "response.output_text.delta"]
    said += [e["delta"]["text"] for e in events if e.get("type") == "content_block_delta"]
    bare = re.sub(r'"(finish|stop)_reason": null', "", text)
    found = [word for word in ENDS if word in bare]
    return "".join(said), found


@pytest.mark.parametrize("how", ["error", "cut"])
@pytest.mark.parametrize("dialect", list(ASKS))
def test_a_stream_that_breaks_off_ends_with_an_error_live_and_replayed(dialect: str, how: str) -> None:
    path, asked = ASKS[dialect]
    with serving() as peer:
        peer.answer = lambda body, count: breaking(dialect, how)
        it = before(peer)
        live = using(it, lambda c: c.post(f"/r/one{path}", json={**asked, "stream": True}))
        run = only(it)

        async def again(client: Client) -> Any:
            it.replay(run.id)
            return await client.post(f"/r/{run.id}{path}", json={**asked, "stream": True})

        replayed = using(it, again)
        assert len(peer.bodies) == 1
    (ask,) = asks(run)
    assert ask.finish == "cut"
    assert it.store.node(ask.node_out).message.text == "Hello wor", "the record keeps what arrived"
    why = "overloaded" if how == "error" else "its end never came"
    assert told_of(live.text) == ("Hello wor", [])
    assert told_of(replayed.text)[1] == []
    for got in (live, replayed):
        last = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: {")][-1]
        assert "the reply broke off" in json.dumps(last)
        assert why in json.dumps(last)
        assert "error" in last


@pytest.mark.parametrize("dialect", list(ASKS))
def test_what_ended_in_order_still_does(dialect: str) -> None:
    path, asked = ASKS[dialect]
    it = Gateway(open_store(":memory:"), lambda dialect, name, extra: Markov(tokens=True))
    got = using(it, lambda c: c.post(f"/r/one{path}", json={**asked, "stream": True}))
    text, ends = told_of(got.text)
    assert text == it.store.node(asks(only(it))[0].node_out).message.text
    assert ends
    assert "error" not in [json.loads(line[6:]).get("type") for line in got.text.splitlines() if line[:7] == "data: {"]


def test_a_retry_of_what_broke_off_is_asked_anew() -> None:
    path, asked = ASKS["chat"]
    with serving() as peer:
        peer.say(breaking("chat", "error"), chunks("all ", "well"))
        it = before(peer)

        async def twice(client: Client) -> list[str]:
            body, again = {**asked, "stream": True}, {"x-stainless-retry-count": "1"}
            return [(await client.post(f"/r/one{path}", json=body, headers=h)).text for h in ({}, again)]

        first, second = using(it, twice)
    assert told_of(first)[1] == []
    assert told_of(second) == ("all well", ["finish_reason", "[DONE]"])


def test_a_stream_that_says_done_without_a_reason_has_ended() -> None:
    async def lines() -> Any:
        yield 'data: {"choices": [{"index": 0, "delta": {"content": "hi"}}]}\n\ndata: [DONE]\n\n'

    path, asked = ASKS["chat"]
    with serving() as peer:
        peer.answer = lambda body, count: StreamingResponse(lines(), media_type="text/event-stream")
        it = before(peer)
        got = using(it, lambda c: c.post(f"/r/one{path}", json={**asked, "stream": True}))
    assert told_of(got.text) == ("hi", ["finish_reason", "[DONE]"])
    assert asks(only(it))[0].finish == "stop"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", list(ASKS))
def test_tokens_that_nobody_counted_are_not_told_as_none(dialect: str, stream: bool) -> None:
    path, asked = ASKS[dialect]
    answers: dict[str, Any] = {
        "chat": {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]},
        "messages": {"model": "m", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"},
        "responses": {"model": "m", "output": [{"type": "message", "role": "assistant", "content": "hi"}]},
    }
    with serving() as peer:
        peer.say(answers[dialect])
        body = {**asked, "stream": stream} | ({"stream_options": {"include_usage": True}} if dialect == "chat" else {})
        got = using(before(peer), lambda c: c.post(f"/r/one{path}", json=body))
    counted = [int(n) for n in re.findall(r'"(?:prompt|completion|total|input|output)_tokens": ?(\d+)', got.text)]
    assert set(counted) <= ({0} if stream and dialect == "messages" else set()), "its first event has numbers"
    if dialect == "messages":
        assert re.search(r'"output_tokens": ?null', got.text)


@pytest.mark.parametrize("dialect", list(ASKS))
@pytest.mark.parametrize("record", [False, True])
def test_a_server_in_front_of_an_endpoint_tells_it_too(dialect: str, record: bool) -> None:
    path, asked = ASKS[dialect]
    with serving() as peer:
        peer.answer = lambda body, count: breaking("chat", "error")
        model = Remote(peer.url, "m", attempts=1, stream=True)
        recorder = Recorder(open_store(":memory:"), model) if record else None
        server = Server(model, names=("m",), recorder=recorder)

        async def post(stream: bool) -> httpx.Response:
            transport = httpx.ASGITransport(server.application())
            async with server.running(), httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await client.post(path, json={**asked, "stream": stream})

        for stream in (True, False):
            got = asyncio.run(post(stream))
            assert told_of(got.text)[1] == []
            assert "the reply broke off: " in got.text
            assert "overloaded" in got.text
            assert got.status_code == (200 if stream else 502)

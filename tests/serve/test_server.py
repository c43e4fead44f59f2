"""The server: what is refused and why, back-pressure, hang-ups, slow readers, time limits, drain, and the record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from clew.core.errors import ModelError
from clew.core.records import Cursor
from clew.core.values import Completion, Message, Piece
from clew.harness import Runner
from clew.models.fakes import Echo, Markov, Scripted
from clew.serve.gateway.recorder import KEPT, Recorder
from clew.serve.openai.questions import Limits
from clew.serve.openai.server import Server
from clew.store import Run, open_store
from tests.serve.serving import CHAT, HI, post, using

pytest.importorskip("prometheus_client")
Client = httpx.AsyncClient


class Slow(Echo):
    """Says a word each few milliseconds, until it is closed; counts those under way."""

    ref = "slow"
    running = 0

    def __init__(self, words: int = 400) -> None:
        super().__init__()
        self.words = words

    async def stream(self, request: Any) -> Any:
        self.running += 1
        try:
            for k in range(self.words):
                await asyncio.sleep(0.005)
                yield f"w{k} "
            yield Completion(Message("assistant", "".join(f"w{k} " for k in range(self.words))))
        finally:
            self.running -= 1

    async def complete(self, request: Any) -> Completion:
        return [item async for item in self.stream(request)][-1]


def server(model: Any, record: bool = False, **options: Any) -> Server:
    recorder = Recorder(open_store(":memory:"), model) if record else None
    return Server(model, names=("m",), recorder=recorder, **options)


def text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


BAD: list[tuple[Any, int, str]] = [
    (b"{", 400, "not JSON"),
    (b"[" * 100_000, 400, "not JSON"),
    (b"[]", 400, "list"),
    (b'{"model": "m\xff"}', 400, "JSON"),
    ({"messages": HI["messages"]}, 400, "no model"),
    (HI | {"model": "x" * 5000}, 404, "no model is called"),
    (HI | {"messages": []}, 400, "no messages"),
    (HI | {"messages": "hi"}, 400, "list of messages"),
    (HI | {"messages": [7]}, 400, "role"),
    (HI | {"messages": [{"role": "user", "content": 7}]}, 400, "content"),
    (HI | {"temperature": "hot"}, 400, "a number"),
    (HI | {"temperature": True}, 400, "a number"),
    (HI | {"temperature": -1}, 400, "temperature"),
    (HI | {"top_p": 0}, 400, "top_p"),
    (HI | {"seed": 1.5}, 400, "seed"),
    (HI | {"seed": 1 << 70}, 400, "seed"),
    (HI | {"n": 0}, 400, "n is 0"),
    (HI | {"n": 10_000}, 400, "choices"),
    (HI | {"max_tokens": 0}, 400, "max_tokens"),
    (HI | {"max_tokens": 65}, 400, "at most 64"),
    (HI | {"stop": [3]}, 400, "stop"),
    (HI | {"stop": ["x"] * 17}, 400, "stop"),
    (HI | {"top_logprobs": 3}, 400, "top_logprobs"),
    (HI | {"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
    (HI | {"tools": [{"type": "web_search"}]}, 400, "function"),
    (HI | {"tool_choice": "required"}, 400, "tool_choice"),
    (HI | {"response_format": {"type": "xml"}}, 400, "xml"),
    (HI | {"response_format": {"type": "json_schema"}}, 400, "schema"),
    (HI | {"guided_regex": "a", "guided_choice": ["a"]}, 400, "exclude"),
    (HI | {"stream_options": 3}, 400, "stream_options"),
    (HI | {"messages": [{"role": "user", "content": "where is it " * 99}]}, 400, "at most 100"),
    (HI | {"stop_token_ids": [999]}, 400, "stop_token_ids"),
    (HI | {"guided_regex": "a"}, 400, "cannot be held"),
    (b'{"model": "m", "messages": "' + b"x" * 300_000, 413, "bytes"),
]


def test_bad_requests_are_refused_with_a_reason() -> None:
    it = server(Markov(tokens=True), limits=Limits(100, 64, 200_000, 8))

    async def all_of_them(client: Client) -> list[tuple[Any, Any]]:
        out = []
        for body, status, why in BAD:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            got = await client.post(CHAT, content=content)
            error = got.json()["error"]
            if got.status_code != status or why not in error["message"] or not (error["code"] and error["type"]):
                out.append((str(body)[:80], got.text[:200]))
        got = await client.get("/v1/nothing")
        assert (got.status_code, got.json()["error"]["code"]) == (404, "not_found")
        assert (await client.get(CHAT)).status_code == 405
        odd = HI | {"user": "x", "messages": [{"role": "user", "content": "\ud800 hi"}]}
        got = await client.post(CHAT, content=json.dumps(odd).encode())
        assert got.headers["x-clew-warning"] == "ignored user"
        unknown = await client.post(CHAT, content=json.dumps(HI | {"a\r\nb": 1}).encode())
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "a\r\nb")
        king = HI | {"messages": [{"role": "king", "content": "obey"}]}
        assert (await client.post(CHAT, json=king)).json()["error"]["param"] == "messages"
        unknown = await client.post(CHAT, content=json.dumps(HI | {"model": "\ud800"}).encode())
        assert unknown.status_code == 404
        text(await client.post(CHAT, json=HI))  # all of that left it in order
        return out

    assert using(it, all_of_them) == []
    assert it.busy == 0


def test_who_may_ask() -> None:
    it = server(Echo(), keys=("first-key", "second-key"))

    async def tries(client: Client) -> list[int]:
        heads = [
            {},
            {"authorization": "Bearer first"},
            {"authorization": "Bearer second-key"},
            {"x-api-key": "first-key"},
        ]
        out = [(await client.post(CHAT, json=HI, headers=h)).status_code for h in heads]
        return [*out, (await client.get("/metrics")).status_code, (await client.get("/health")).status_code]

    assert using(it, tries) == [401, 401, 200, 200, 401, 200]
    assert post(server(Echo()), CHAT, HI, headers={"origin": "http://elsewhere"}).status_code == 403


def test_models_without_a_power_say_so() -> None:
    for model in (Echo(), Scripted({"": "yes"})):
        it = server(model)
        assert text(post(it, CHAT, HI)) in ("hi", "yes")
        assert "hi" in post(it, CHAT, HI | {"stream": True}).text or isinstance(model, Scripted)
        for path, asked in (
            (CHAT, HI | {"logprobs": True}),
            (CHAT, HI | {"guided_regex": "a"}),
            ("/v1/completions", {"model": "m", "prompt": "a"}),
        ):
            got = post(it, path, asked)
            assert got.status_code == 400
            assert model.ref in got.json()["error"]["message"]
    assert post(server(Echo()), "/tokenize", {"prompt": "a"}).json()["error"]["code"] == "unsupported_by_model"
    words = server(Markov(tokens=True))
    ids = post(words, "/tokenize", {"prompt": "the cup"}).json()["tokens"]
    assert post(words, "/detokenize", {"tokens": ids}).json()["prompt"] == "the cup"
    assert post(words, CHAT, HI | {"logprobs": True, "top_logprobs": 2}).json()["error"]["param"] == "top_logprobs"


def test_more_than_the_queue_holds_is_told_to_wait() -> None:
    it = server(Slow(30), limits=Limits(queue=3))

    async def burst(client: Client) -> list[httpx.Response]:
        return list(await asyncio.gather(*(client.post(CHAT, json=HI) for _ in range(8))))

    found = using(it, burst)
    assert sorted(r.status_code for r in found) == [200] * 3 + [429] * 5
    for refused in (r for r in found if r.status_code == 429):
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
    assert it.busy == 0
    figures = post_metrics(it)
    assert 'clew_requests_total{endpoint="chat",status="429"} 5.0' in figures
    assert 'clew_requests_total{endpoint="chat",status="200"} 3.0' in figures


def post_metrics(it: Server) -> str:
    async def get(client: Client) -> str:
        return (await client.get("/metrics")).text

    return str(using(it, get))


async def raw(
    it: Server, body: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """One request by the bare protocol: ``receive`` is asked once the body has been sent."""
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
             "path": CHAT, "raw_path": b"", "query_string": b"", "headers": [], "client": ("127.0.0.1", 1),
             "server": ("server", 80)}  # fmt: skip
    sent: list[int] = []

    async def first() -> Any:
        if not sent:
            sent.append(1)
            return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
        return await receive()

    await it.application()(scope, first, send)


async def settled(model: Slow) -> int:
    for _ in range(100):
        if not model.running:
            break
        await asyncio.sleep(0.01)
    return model.running


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_stops_the_work(stream: bool, record: bool) -> None:
    model = Slow()
    it = server(model, record)

    async def leave() -> Any:
        async with it.running():
            heard = asyncio.Event()

            async def receive() -> Any:
                await asyncio.wait_for(heard.wait(), 0.1) if stream else await asyncio.sleep(0.05)
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                if b"w1" in message.get("body", b""):
                    heard.set()

            await asyncio.wait_for(raw(it, HI | {"stream": stream}, receive, send), 5)
            return await settled(model), it.busy

    assert asyncio.run(leave()) == (0, 0)
    if record:
        store = it.recorder.store  # type: ignore[union-attr]
        (run,) = store.find("")
        (ask,) = [c for c in Run(store, run).calls if c.kind == "ask"]
        assert ask.finish == "cut"
        assert not store.verify()


def test_a_client_that_reads_nothing_is_let_go() -> None:
    model = Slow()
    it = server(model, limits=Limits(stall=0.05))

    async def stop_reading() -> Any:
        async def forever(_: Any = None) -> None:
            await asyncio.sleep(60)

        await asyncio.wait_for(raw(it, HI | {"stream": True}, forever, forever), 5)
        return await settled(model), it.busy

    assert asyncio.run(stop_reading()) == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_takes_too_long(stream: bool) -> None:
    got = post(server(Slow(), limits=Limits(seconds=0.1)), CHAT, HI | {"stream": stream})
    if not stream:
        assert (got.status_code, got.json()["error"]["code"]) == (504, "Late")
        return
    assert "w1 " in got.text
    assert '"code": "Late"' in got.text
    assert "[DONE]" not in got.text


def test_what_fails_in_the_middle_of_a_stream_ends_it_with_an_error() -> None:
    class Breaks(Echo):
        async def stream(self, request: Any) -> Any:
            yield Piece("so ")
            raise ModelError("the weights are gone")

    for path, body in ((CHAT, HI), ("/v1/responses", {"model": "m", "input": "hi"})):
        got = post(server(Breaks()), path, body | {"stream": True})
        assert "so " in got.text
        assert "the weights are gone" in got.text
    unknown = post(server(Scripted([ValueError("secret")])), CHAT, HI)  # type: ignore[list-item]
    assert unknown.status_code == 500
    assert "secret" not in unknown.text


def test_a_server_that_ends_answers_what_is_in_work() -> None:
    it = server(Slow(60), limits=Limits(drain=10))

    async def end(client: Client) -> Any:
        work = asyncio.ensure_future(client.post(CHAT, json=HI))
        while not it.busy:
            await asyncio.sleep(0.01)
        ending = asyncio.ensure_future(it.drain())
        await asyncio.sleep(0)
        late = await client.post(CHAT, json=HI)
        health = (await client.get("/health")).status_code
        return late, health, await ending, text(await work)

    late, health, done, said = using(it, end)
    assert (late.status_code, late.json()["error"]["code"], health) == (503, "draining", 503)
    assert late.headers["retry-after"]
    assert done
    assert said.endswith("w59 ")


# ---- the record -----------------------------------------------------------------------------------------------------


def test_served_calls_are_runs() -> None:
    model = Markov(tokens=True)
    it = server(model, record=True)

    async def talk(client: Client) -> list[str]:
        told, said = list(HI["messages"]), []
        for k in range(3):
            got = await client.post(CHAT, json=HI | {"messages": told, "seed": k})
            said.append(text(got))
            told += [got.json()["choices"][0]["message"], {"role": "user", "content": "and then"}]
        other = await client.post("/r/mine/v1/chat/completions", json=HI | {"n": 2})
        said += [c["message"]["content"] for c in other.json()["choices"]]
        assert other.headers["x-clew-run"] != got.headers["x-clew-run"]
        return said

    said = using(it, talk)
    store = it.recorder.store  # type: ignore[union-attr]
    runs = [Run(store, r) for r in store.find("")]
    guessed, named = sorted(runs, key=lambda r: -sum(c.kind == "ask" for c in r.calls))
    asks = [c for c in guessed.calls if c.kind == "ask"]
    assert [c.seed for c in asks] == [0, 1, 2]
    assert {c.conversation for c in asks} == {0}
    assert [n.message.text for n in guessed.conversation(0) if n.message.role == "assistant"] == said[:3]
    assert len([c for c in named.calls if c.kind == "ask"]) == 2
    assert store.find("tag:mine") == [named.id]
    assert said[3:] == [c["message"]["content"] for c in post(server(model), CHAT, HI | {"n": 2}).json()["choices"]]
    assert not store.verify()
    model.calls = 0
    assert Runner.of(store, guessed).replay(guessed).calls == len(guessed.calls)
    assert model.calls == 0


def test_a_recorded_call_tells_its_prompt_as_the_model_got_it() -> None:
    model = Markov(tokens=True)
    it = server(model, record=True)
    got = post(it, CHAT, HI | {"return_token_ids": True})
    (run,) = it.recorder.store.find("")  # type: ignore[union-attr]
    path = Run(it.recorder.store, run).conversation(0)  # type: ignore[union-attr]
    assert got.json()["prompt_token_ids"] == [*path[0].ids, *model.renderer.head()]  # type: ignore[misc, union-attr]
    assert got.json()["choices"][0]["token_ids"] == list(path[1].ids[1:])  # type: ignore[index]
    assert post(it, CHAT, HI | {"prompt_logprobs": 0}).json()["error"]["param"] == "prompt_logprobs"
    assert not it.recorder.store.verify()  # type: ignore[union-attr]


def test_forks_of_served_runs_draw_anew_and_with_the_same_seed_the_same() -> None:
    model = Markov(tokens=True)
    it = server(model, record=True)
    first = text(using(it, lambda c: c.post("/r/mine/v1/chat/completions", json=HI)))
    recorder: Any = it.recorder
    (run,) = recorder.store.find("")
    place = next(c.seq for c in Run(recorder.store, run).calls if c.kind == "ask")

    async def again(client: Client) -> list[str]:
        forked = (*recorder.fork(Cursor(run, place), seed="same"), *recorder.fork(Cursor(run, place), 6))
        return [text(await client.post(f"/r/{s.name}{CHAT}", json=HI)) for s in forked]

    same, *fresh = using(it, again)
    assert same == first
    assert len({first, *fresh}) > 3, "of seven draws some may be equal by chance"


def test_conversations_that_are_quiet_end_and_are_forgotten() -> None:
    it = server(Echo(), record=True)

    async def many(client: Client) -> int:
        for k in range(KEPT + 20):
            await client.post(CHAT, json=HI | {"messages": [{"role": "user", "content": f"hi {k}"}]})
        await asyncio.sleep(0.1)
        await client.post(CHAT, json=HI)
        return len(it.recorder.sessions)  # type: ignore[union-attr]

    assert using(it, many) <= KEPT + 2
    store = it.recorder.store  # type: ignore[union-attr]
    assert {Run(store, r).stop for r in store.find("")} == {"returned"}


def test_what_cannot_be_recorded_is_said() -> None:
    it = server(Markov(tokens=True), record=True)
    got = post(it, "/v1/completions", {"model": "m", "prompt": "the cup", "max_tokens": 3})
    assert got.status_code == 200
    assert "not recorded" in got.headers["x-clew-warning"]
    given = [*HI["messages"], {"role": "assistant", "content": "so"}]
    refused = post(it, CHAT, HI | {"messages": given, "continue_final_message": True})
    assert refused.json()["error"]["param"] == "continue_final_message"
    assert post(it, "/r/..%2F..%2Fx" + CHAT, HI).status_code in (400, 404)
    assert it.recorder.store.find("") == []  # type: ignore[union-attr]

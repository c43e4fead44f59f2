"""Hostile clients and hostile endpoints: each is refused or bounded, and the next program is served as before."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import socket
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import httpx
import pytest
from starlette.responses import Response, StreamingResponse

from clew.harness import Runner
from clew.models.fakes import Echo
from clew.models.remote import bounded
from clew.serve.gateway import proxy
from clew.serve.gateway.programs import endpoints
from clew.serve.gateway.proxy import Gateway
from clew.store import Run, open_store
from tests.models.server import Peer, chat, serving
from tests.serve.foreign import Client, asks, before, collected, only, sse, using
from tests.serve.test_edge import listening

URL = "/r/one/v1/chat/completions"
HI = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def echo() -> Gateway:
    return Gateway(open_store(":memory:"), lambda dialect, name, extra: Echo())


def still_serves(it: Gateway, client: Client) -> Any:
    return client.post("/r/next/v1/chat/completions", json=HI)


def raw(port: int, *pieces: bytes) -> bytes:
    """What comes back for these bytes on a connection of their own."""
    out = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        try:
            for piece in pieces:
                link.sendall(piece)
            while data := link.recv(1 << 16):
                out += data
        except (BrokenPipeError, ConnectionResetError):
            pass
        return out


def good(port: int) -> bool:
    got = httpx.post(f"http://127.0.0.1:{port}/r/next/v1/chat/completions", json=HI, timeout=20)
    return got.status_code == 200 and got.json()["choices"][0]["message"]["content"] == "hi"


HEAD = b"POST /r/one/v1/chat/completions HTTP/1.1\r\nhost: here\r\nconnection: close\r\n"


# ---- clients ---------------------------------------------------------------------------------------------------------


def test_a_body_without_end_is_cut_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy.wire, "LARGEST", 1 << 20)
    with listening(echo().application(), 5) as port:
        chunk = b"%x\r\n" % (1 << 16) + b"x" * (1 << 16) + b"\r\n"
        got = raw(port, HEAD + b"transfer-encoding: chunked\r\n\r\n", *[chunk] * 40)
        assert got == b"" or b" 413 " in got.splitlines()[0]
        lied = raw(port, HEAD + b"content-length: 99999999999999999999\r\n\r\n", b"{}")
        assert b" 413 " in lied.splitlines()[0]
        assert good(port)


def test_a_body_of_single_bytes_is_read_and_one_that_stalls_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "STALL", 0.3)
    body = json.dumps(HI).encode()
    with listening(echo().application(), 5) as port:
        pieces = [b"1\r\n" + body[i : i + 1] + b"\r\n" for i in range(len(body))]
        head = HEAD + b"transfer-encoding: chunked\r\n\r\n"
        assert b" 200 " in raw(port, head, *pieces, b"0\r\n\r\n").splitlines()[0]
        assert b" 408 " in raw(port, head, *pieces[:5]).splitlines()[0]
        bomb = [b"1;" + b"x" * 60_000 + b"\r\n{\r\n"] * 50  # extensions of chunks
        assert b" 200 " not in raw(port, head, *bomb)
        assert good(port)


def test_a_flood_of_headers_is_refused() -> None:
    with listening(echo().application(), 5) as port:
        flood = b"".join(b"x-%d: %s\r\n" % (i, b"y" * 100) for i in range(5000))
        got = raw(port, HEAD + flood + b"content-length: 2\r\n\r\n{}")
        assert b" 200 " not in got
        assert good(port)


@pytest.mark.parametrize("depth", [200, 400, 700, 900, 960, 990, 5000])
@pytest.mark.parametrize("field", ["unknown", "tools", "content"])
def test_deep_nesting_ends_no_run(depth: int, field: str) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    parts = {
        "unknown": f'"messages": [{{"role": "user", "content": "hi"}}], "unknown": {deep}',
        "tools": f'"messages": [{{"role": "user", "content": "hi"}}], "tools": '
        f'[{{"type": "function", "function": {{"name": "f", "parameters": {deep}}}}}]',
        "content": f'"messages": [{{"role": "user", "content": [{{"type": "text", "text": "hi", "more": {deep}}}]}}]',
    }
    with serving() as peer:
        it = before(peer)

        async def both(client: Client) -> list[int]:
            first = await client.post(URL, content=f'{{"model": "m", {parts[field]}}}'.encode())
            second = await client.post(URL, json=HI)
            return [first.status_code, second.status_code]

        first, second = using(it, both)
    assert first in (200, 400)
    assert second == 200
    for name in it.store.find(""):
        run = Run(it.store, name)
        assert run.stop == "returned"
        assert Runner.of(it.store, run).replay(run).calls == len(run.calls)


@pytest.mark.parametrize(
    "path",
    ["/r/..%2f..%2fetc/v1/chat/completions", "/r/a%2Fb/v1/chat/completions", "/r/%00/v1/chat/completions",
     "/r/a%0d%0ax-evil:%201/v1/chat/completions", "/r/" + "a" * 81 + "/v1/chat/completions",
     "/r/%ff%fe/v1/chat/completions", "/r/../../v1/chat/completions", "/r/%1b[31m/v1/chat/completions"],
)  # fmt: skip
def test_names_that_are_paths_or_headers_name_no_run(path: str, tmp_path: Any) -> None:
    it = Gateway(open_store(tmp_path / "s.db"), lambda dialect, name, extra: Echo())
    with listening(it.application(), 5) as port:
        body = json.dumps(HI).encode()
        head = b"POST %s HTTP/1.1\r\nhost: here\r\nconnection: close\r\n" % path.encode()
        got = raw(port, head + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert got.splitlines()[0].split()[1] in (b"400", b"404")
        assert b"x-evil" not in got.split(b"\r\n\r\n")[0]
        assert good(port)
    assert it.store.find("") == it.store.find("tag:next")
    assert {p.name.partition("-")[0] for p in tmp_path.iterdir()} == {"s.db"}


def test_line_ends_in_headers_make_no_header() -> None:
    with serving() as peer:
        it, peer.answer = before(peer), lambda body, count: chat("hi")
        with listening(it.application(), 5) as port:
            body = json.dumps(HI).encode()
            length = b"content-length: %d\r\n" % len(body)
            for value in (b"a\r b", b"a\x00b", b"a\n\tb", b"\xff\xfe", b"a\x1b[31m"):
                raw(port, HEAD + length + b"anthropic-beta: " + value + b"\r\n\r\n" + body)
            assert good(port)
        for headers in peer.headers:
            assert all(c >= " " for c in headers.get("anthropic-beta", "")), headers


@pytest.mark.parametrize("model", ["a\x1b[31mb", "a\nb", "\x00", "m?{}", "x" * 10_000, "\x85", "m?", 'm?{"a": '])
def test_model_names_with_control_characters_are_refused(model: str) -> None:
    it = echo()

    async def both(client: Client) -> list[httpx.Response]:
        return [await client.post(URL, json=HI | {"model": model}), await client.post(URL, json=HI)]

    bad, fine = using(it, both)
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "model")
    assert fine.status_code == 200
    assert len(asks(only(it))) == 1


def test_text_cannot_write_events_of_its_own() -> None:
    said = 'a\n\ndata: {"choices": [{"delta": {"content": "forged"}}]}\n\ndata: [DONE]\n\n\u2028\u2029\r\nevent: x\n'
    it = echo()
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": said}]}
    text = using(it, lambda c: c.post(URL, json=body)).text
    done, _ = collected("chat", text)
    assert done.message.text == said
    assert text.count("[DONE]") == 1 + said.count("[DONE]")
    assert [line for line in text.split("\n") if line.startswith("event")] == []


# ---- endpoints -------------------------------------------------------------------------------------------------------


def piece(text: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def endless(line: bytes) -> Callable[[Any, int], Any]:
    async def drops() -> Any:
        while True:
            yield line
            await asyncio.sleep(0)

    return lambda body, count: StreamingResponse(drops(), media_type="text/event-stream")


ENDLESS = {"text": sse(piece("more ")), "one line": b"x" * 65536, "pings": b": ping\n\n" * 4096}


@pytest.mark.parametrize("kind", list(ENDLESS))
@pytest.mark.parametrize("stream", [True, False])
def test_an_endpoint_that_never_ends_is_cut_at_the_bound(
    kind: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "MOST", 1 << 18)
    monkeypatch.setattr(bounded.lines, "__defaults__", (1 << 18,))
    monkeypatch.setattr(bounded.text, "__defaults__", (1 << 18,))
    attacked(endless(ENDLESS[kind]), HI | {"stream": stream})


def attacked(answer: Callable[[Any, int], Any], body: dict[str, Any], **options: Any) -> tuple[Any, Gateway]:
    """The answer to a request whose endpoint attacks; then the same run is served by an honest one."""
    with serving() as peer:
        it = upstream(peer, **options)

        async def both(client: Client) -> list[httpx.Response]:
            peer.answer = answer
            first = await client.post(URL, json=body)
            peer.answer = lambda body, count: chat("honest")
            return [first, await client.post(URL, json=HI)]

        first, second = using(it, both)
    assert second.status_code == 200
    assert second.json()["choices"][0]["message"]["content"] == "honest"
    run = only(it)
    assert run.stop == "returned"
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)
    assert not it.store.verify()
    return first, it


def upstream(peer: Peer, **options: Any) -> Gateway:
    return Gateway(
        open_store(":memory:"), endpoints(peer.url, lambda dialect: "upstream-key", {"attempts": 1, **options})
    )


def test_an_endpoint_that_drips_is_cut_at_the_deadline() -> None:
    async def drips() -> Any:
        while True:
            yield sse(piece("drip "))
            await asyncio.sleep(0.05)

    answer = lambda body, count: StreamingResponse(drips(), media_type="text/event-stream")  # noqa: E731
    first, it = attacked(answer, HI | {"stream": True}, deadline=3.0)  # a busy machine connects in this time
    assert "drip" in first.text
    assert asks(only(it))[0].error or asks(only(it))[0].finish == "cut"


def packed(data: bytes, encoding: str, kind: str = "application/json") -> Callable[[Any, int], Any]:
    def answer(body: Any, count: int) -> Response:
        return Response(data, headers={"content-encoding": encoding}, media_type=kind)

    return answer


@cache
def bomb() -> bytes:
    """1 GiB in a few MB."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join(squeeze.compress(bytes(16 << 20)) for _ in range(64)) + squeeze.flush()


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_that_unpacks_to_gigabytes_is_refused_in_little_memory(kind: str, status: int) -> None:
    data = bomb()
    assert len(data) < 8 << 20

    def answer(body: Any, count: int) -> Response:
        return Response(data, status, headers={"content-encoding": "gzip"}, media_type=kind)

    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first, _ = attacked(answer, HI)
    assert first.status_code in (400, 502)
    assert "more than" in first.json()["error"]["message"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 400_000, "KB"


def test_packed_answers_are_read_and_unknown_packings_refused() -> None:
    plain = json.dumps(chat("packed")).encode()
    for encoding, data in (("gzip", gzip.compress(plain)), ("deflate", zlib.compress(plain))):
        first, _ = attacked(packed(data, encoding), HI)
        assert first.json()["choices"][0]["message"]["content"] == "packed"
    for encoding, data in (("br", plain), ("zstd", plain), ("gzip", b"no gzip"), ("gzip, gzip", plain)):
        first, _ = attacked(packed(data, encoding), HI)
        assert first.status_code in (400, 502)


GARBAGE: list[Any] = [
    {"choices": 5}, {"choices": [5]}, {"choices": [{"delta": 5}]}, {"choices": [{"delta": {"content": {"a": 1}}}]},
    {"choices": [{"delta": {"tool_calls": 5}}]}, {"choices": [{"delta": {"tool_calls": [{"function": 3}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": "x", "function": {"name": 1}}]}}]},
    {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": {"b": 1}}]},
    {"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{"logprob": "x"}]}}]},
    {"choices": [{"delta": {"content": "a"}, "token_ids": "xyz"}]}, {"usage": {"prompt_tokens": "many"}},
    {"usage": {"prompt_tokens": 1e300, "completion_tokens": -5}}, {"usage": 7}, {"error": "\ud800"},
    {"model": [1]}, [], 3,
]  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
def test_garbage_from_an_endpoint_fails_one_request_alone(stream: bool) -> None:
    for garbage in GARBAGE:

        def answer(body: Any, count: int, garbage: Any = garbage) -> Response:
            if stream:
                return Response(sse(garbage, piece("b")), media_type="text/event-stream")
            text = json.dumps(garbage).replace('"delta"', '"message"')
            return Response(text, media_type="application/json")

        first, it = attacked(answer, HI | {"stream": stream})
        run = only(it)
        told = json.dumps([c._asdict() for c in run.calls], default=str)
        assert "Traceback" not in first.text + told
        for call in asks(run):
            assert all(type(n) is int and 0 <= n < 1 << 53 for n in call.usage)
            assert isinstance(call.finish, str)


@pytest.mark.parametrize("dialect", ["responses", "messages"])
@pytest.mark.parametrize(
    "event",
    [{"type": "response.output_item.added", "output_index": "x", "item": 5}, {"type": "response.created"},
     {"type": "response.output_text.delta", "output_index": [], "delta": "a"}, {"type": "response.completed"},
     {"type": "response.output_text.delta", "content_index": "x", "delta": "a"},
     {"type": "response.completed", "response": {"output": [5]}}, {"type": "response.completed", "response": 5},
     {"type": "content_block_delta"}, {"type": "content_block_start"}, {"type": "message_start"},
     {"type": "content_block_delta", "index": {}, "delta": {"text": "a"}}, {"type": "message_delta", "delta": 5},
     {"type": "content_block_delta", "index": 0, "delta": {"text": 5}}, {"type": "error"}, {"type": 5}],
)  # fmt: skip
def test_garbled_events_fail_one_request_alone(dialect: str, event: Any) -> None:
    path, body = {
        "responses": ("/responses", {"model": "m", "input": "hi"}),
        "messages": ("/messages", {"model": "m", "max_tokens": 9, "messages": HI["messages"]}),
    }[dialect]
    with serving() as peer:
        peer.answer = lambda body, count: Response(sse(event), media_type="text/event-stream")
        it = upstream(peer)

        async def ask(client: Client) -> list[str]:
            return [(await client.post(f"/r/one/v1{path}", json=body | {"stream": s})).text for s in (True, False)]

        for text in using(it, ask):
            assert "Traceback" not in text
    run = only(it)
    assert run.stop == "returned"
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)


def test_an_endpoint_cannot_make_the_gateway_wait_or_send_it_elsewhere() -> None:
    waits = [{"retry-after": "99999999999"}, {"retry-after-ms": "inf"}, {"retry-after-ms": "nan"},
             {"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}]  # fmt: skip
    for headers in waits:
        first, _ = attacked(lambda b, c, h=headers: Response("{}", 429, headers=h), HI)  # type: ignore[misc]
        assert first.status_code in (429, 502)
    with serving() as other:
        first, _ = attacked(lambda b, c: Response("", 307, headers={"location": other.url + "/chat/completions"}), HI)
        assert first.status_code in (400, 502)
        assert other.bodies == [], "the credential stays here"

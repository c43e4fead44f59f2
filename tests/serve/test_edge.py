"""What both servers refuse or bound at their edge: slow heads, long prompts, settings nobody knows; and ids."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from clew.core.net import listen
from clew.models.fakes import Markov
from clew.serve.edge import config
from clew.serve.gateway.proxy import Gateway
from clew.serve.gateway.recorder import Recorder
from clew.serve.openai.questions import LONG, Limits
from clew.serve.openai.server import Server
from clew.store import open_store

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n"


@contextmanager
def listening(app: Any, header: float, **how: Any) -> Iterator[int]:
    """The port of an application that is served as the command line serves it."""
    listener = listen("127.0.0.1", 0)
    it = uvicorn.Server(config(app, header=header, lifespan="on", log_level="critical", **how))
    thread = threading.Thread(target=lambda: asyncio.run(it.serve([listener])))
    thread.start()
    while not it.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        it.should_exit = True
        thread.join()


def heard(link: socket.socket) -> bytes:
    """All that comes until the peer closes."""
    link.settimeout(20)
    out = b""
    while data := link.recv(1 << 16):
        out += data
    return out


def app(name: str) -> Any:
    model = Markov(tokens=True)
    if name == "gateway":
        return Gateway(open_store(":memory:"), lambda dialect, name, extra: model).application()
    return Server(model, names=("m",)).application()


@pytest.mark.whole
@pytest.mark.parametrize("name", ["gateway", "server"])
def test_a_head_that_never_ends_is_given_up(name: str) -> None:
    whole = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    with listening(app(name), 0.4) as port:
        silent, half, again = (socket.create_connection(("127.0.0.1", port)) for _ in range(3))
        half.sendall(HEAD)
        again.sendall(whole + HEAD)  # the second head on a connection
        assert heard(silent) == b""
        assert heard(half) == b""
        assert heard(again).startswith(b"HTTP/1.1 200")
        slow = socket.create_connection(("127.0.0.1", port))
        for piece in (HEAD, b"content-length: %d\r\n" % len(BODY), b"connection: close\r\n\r\n" + BODY):
            slow.sendall(piece)
            time.sleep(0.05)
        assert heard(slow).startswith(b"HTTP/1.1 200"), "slow, and in time"
        for link in (silent, half, again, slow):
            link.close()


def test_an_answer_may_take_longer_than_a_head() -> None:
    from clew.core.values import Message
    from clew.models.fakes import Scripted

    async def slow(request: Any) -> Message:
        await asyncio.sleep(0.8)
        return Message("assistant", "late")

    it = Gateway(open_store(":memory:"), lambda dialect, name, extra: Scripted({"": slow}))
    with listening(it.application(), 0.2) as port:
        got = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", content=BODY, timeout=20)
    assert got.json()["choices"][0]["message"]["content"] == "late"


@pytest.mark.parametrize("name", ["gateway", "server"])
def test_every_answer_has_an_id_of_the_servers_own(name: str) -> None:
    with listening(app(name), 5) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        sent = {"x-request-id": "mine"}
        found = [client.post("/v1/chat/completions", content=BODY, headers=sent), client.get("/nothing"),
                 client.post("/v1/chat/completions", content=b"{")]  # fmt: skip
    ids = [got.headers["x-request-id"] for got in found]
    assert [got.status_code for got in found] == [200, 404, 400]
    assert len(set(ids)) == 3
    assert all(identity.startswith("req_") and identity.isalnum() is False for identity in ids)


class Counting:
    """A renderer that notes what it tokenises, and in which thread."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.seen = inner, list[tuple[int, int]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def encode(self, text: str) -> Any:
        self.seen.append((len(text), threading.get_ident()))
        return [7] * (len(text) // 4)

    def delta(self, prev: Any, closed: bool, message: Any, tools: Any) -> Any:
        self.seen.append((len(message.text), threading.get_ident()))
        return (7,) * (len(message.text) // 4)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_prompt_far_too_long_is_refused_before_it_is_tokenised(recorded: bool) -> None:
    model = Markov(tokens=True)
    model.renderer = counting = Counting(model.renderer)  # type: ignore[assignment]
    recorder = Recorder(open_store(":memory:"), model) if recorded else None
    it = Server(model, names=("m",), limits=Limits(prompt=1000), recorder=recorder)
    body = {"model": "m", "messages": [{"role": "user", "content": "word " * 1_000_000}], "max_tokens": 2}

    async def ask(length: int) -> httpx.Response:
        transport = httpx.ASGITransport(it.application())
        body["messages"] = [{"role": "user", "content": "word " * (length // 5)}]
        async with it.running(), httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.post("/v1/chat/completions", json=body)

    got = asyncio.run(ask(5_000_000))
    assert (got.status_code, got.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert sum(length for length, _ in counting.seen) <= 2 * LONG
    assert {thread for _, thread in counting.seen} != {threading.get_ident()}, "others wait for the event loop"


SETTINGS = {
    "truncate_prompt_tokens": 4, "include_stop_str_in_output": True, "length_penalty": 2.0,
    "logits_processors": ["x"], "best_of": 3, "of_tomorrow": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", list(SETTINGS))
def test_a_setting_that_changes_the_answer_is_refused_by_name(name: str) -> None:
    it = Server(Markov(tokens=True), names=("m",))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(it.application())
        async with it.running(), httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            told = [{"role": "user", "content": "hi"}]
            return await client.post(
                "/v1/chat/completions", json={"model": "m", "messages": told, name: SETTINGS[name]}
            )

    got = asyncio.run(ask())
    assert (got.status_code, got.json()["error"]["param"]) == (400, name)


@pytest.mark.parametrize("name", ["gateway", "server"])
def test_a_name_that_was_made_to_point_here_is_refused(name: str) -> None:
    asked: Any = {"content": BODY, "headers": {"content-type": "application/json"}}
    for any_name, refused in ((False, 403), (True, 200)):
        with listening(app(name), 15.0, any_name=any_name) as port:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", "a.localhost"):
                got = httpx.post(url, **{**asked, "headers": {**asked["headers"], "host": host}})
                assert got.status_code == 200, got.text
            got = httpx.post(url, **{**asked, "headers": {**asked["headers"], "host": f"evil.example:{port}"}})
            assert got.status_code == refused
            assert any_name or "is not called 'evil.example" in got.json()["error"]["message"]


@pytest.mark.parametrize("name", ["gateway", "server"])
@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"NaN", b"Infinity", b"1" + b"0" * 400, b"-3", b"[1]", b'"9"'])
def test_numbers_that_are_none_are_refused_with_a_sentence(name: str, number: bytes) -> None:
    fields = ("max_tokens", "temperature", "top_p", "unheard_of")
    with listening(app(name), 15.0) as port:
        for field in fields:
            body = BODY[:-1].replace(b', "max_tokens": 2', b"") + b', "%s": %s}' % (field.encode(), number)
            got = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", content=body)
            assert got.status_code in (200, 400), got.text
            if number in (b"1e400", b"-1e400", b"NaN", b"Infinity") or (field == "max_tokens" and number != b'"9"'):
                assert got.status_code == 400, (field, got.text)


CROWD = """
import asyncio, os, resource, sys, threading, time
import uvicorn
from clew.models.fakes import Markov
from clew.serve.edge import config
from clew.serve.openai.server import Server
from clew.core.net import listen
listener = listen("127.0.0.1", 0)
port = listener.getsockname()[1]
it = uvicorn.Server(config(Server(Markov(tokens=True)).application(), header=1.5, lifespan="off", log_level="warning"))
thread = threading.Thread(target=lambda: asyncio.run(it.serve([listener])))
thread.start()
while not it.started:
    time.sleep(0.01)
now = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (now + 8, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(port, flush=True)
sys.stdin.readline()
it.should_exit = True
thread.join()
"""


def test_more_connections_than_there_may_be_are_told_in_one_line() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CROWD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        time.sleep(2.5)  # those that say nothing are closed after 1.5 s
        for link in held:
            link.close()
        got = httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=20)
        _, told = process.communicate("\n", timeout=30)
    assert got.status_code == 200
    lines = [line for line in told.splitlines() if line.strip()]
    assert len(lines) == 1, told[-2000:]
    assert "no more connections can be taken" in lines[0]

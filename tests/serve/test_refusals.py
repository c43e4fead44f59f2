"""Errors over HTTP: one error has one status on both servers, and a body in the form of the dialect that was asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from clew.core import errors
from clew.core.errors import ClewError
from clew.models.fakes import Scripted
from clew.serve.gateway.proxy import Gateway
from clew.serve.gateway.recorder import Recorder
from clew.serve.openai.server import Server
from clew.store import open_store

pytest.importorskip("prometheus_client")
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "responses": ("/v1/responses", {"input": "hi"}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
}
STATUS = {
    "Busy": 429, "ContextOverflow": 400, "Refused": 400, "Unreachable": 502, "ModelError": 502, "InDoubt": 409,
    "ReplayDiverged": {"chat": 404, "responses": 400, "messages": 422}, "BadInput": 400, "StoreFull": 500,
    "ClewError": 500,
}  # fmt: skip


def front(name: str, model: Any) -> Any:
    if name == "gateway":
        return Gateway(open_store(":memory:"), lambda dialect, name, extra: model)
    recorder = Recorder(open_store(":memory:"), model) if name == "recorder" else None
    return Server(model, names=("m",), recorder=recorder)


def asked(it: Any, dialect: str, **more: Any) -> httpx.Response:
    """The answer to one small request."""
    path, body = ASKED[dialect]

    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(it.application())
        async with it.running(), httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.post(path, content=json.dumps({"model": "m", **body, **more}).encode())

    return asyncio.run(go())


FRONTS = [(where, dialect) for where in ("server", "recorder", "gateway") for dialect in ("chat", "responses")]


@pytest.mark.parametrize(("where", "dialect"), [*FRONTS, ("gateway", "messages")])
@pytest.mark.parametrize("name", list(STATUS))
def test_one_error_has_one_status_wherever_it_is_raised(where: str, dialect: str, name: str) -> None:
    error: ClewError = getattr(errors, name)("no \ud800", remedy="Do otherwise.")
    got = asked(front(where, Scripted([error], by="call")), dialect)
    wanted = STATUS[name]
    assert got.status_code == (wanted[dialect] if isinstance(wanted, dict) else wanted)
    assert ("retry-after" in got.headers) == (got.status_code == 429)
    body = got.json()
    assert body.keys() == ({"type", "error"} if dialect == "messages" else {"error"})
    assert body["error"]["message"].startswith("no \ud800")
    assert body["error"]["code"] == ("context_length_exceeded" if name == "ContextOverflow" else name)
    kinds = {
        429: "rate_limit_error",
        400: "invalid_request_error",
        404: "invalid_request_error",
        409: "invalid_request_error",
        422: "invalid_request_error",
    }
    assert body["error"]["type"] == kinds.get(got.status_code, "api_error" if dialect == "messages" else "server_error")


@pytest.mark.parametrize("where", ["server", "gateway"])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_both_refuse_alike_what_they_cannot_read(where: str, dialect: str) -> None:
    it = front(where, Scripted(["never"], by="call"))
    assert asked(it, dialect, model="").json()["error"]["param"] == "model"
    field = "input" if dialect == "responses" else "messages"
    odd = asked(it, dialect, **{field: [{"role": "\ud800", "content": 3}]})
    assert (odd.status_code, odd.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_program_is_told_in_a_stream_that_its_model_failed() -> None:
    for dialect, kind in (("chat", "server_error"), ("responses", "error"), ("messages", "error")):
        it = front("gateway", Scripted([errors.Unreachable("nobody \ud800")], by="call"))
        lines = [line for line in asked(it, dialect, stream=True).text.splitlines() if line.startswith("data: {")]
        event = json.loads(lines[-1].removeprefix("data: "))
        assert (event.get("type") or event["error"]["type"]) == kind
        assert event["error"]["message"] == "nobody \ud800"

"""A server on a socket of this machine, for tests with real clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

pytest.importorskip("torch")  # the frameworks have an environment without it

from clew.core.net import listen
from clew.models.rendering import ChatTemplateRenderer
from clew.serve.openai.server import Server
from tests.engine.test_grammar import HERMES
from tests.engine.test_rendering import local, tokenizer

CHAT = "/v1/chat/completions"
LOOK = {"name": "look", "description": "looks", "parameters": {
    "type": "object", "properties": {"at": {"enum": ["left", "right"]}}, "required": ["at"],
    "additionalProperties": False}}  # fmt: skip
HI = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "seed": 3}


def talker() -> Any:
    """A small untrained model whose template shows tools and takes their calls back."""
    return local(ChatTemplateRenderer(tokenizer(HERMES)))


@contextmanager
def serving(server: Server, port: int = 0) -> Iterator[str]:
    """The server's address while it runs, on a free port where none is given."""
    listener = listen("127.0.0.1", port)
    config = uvicorn.Config(server.application(), log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
    it = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(it.serve([listener])))
    thread.start()
    while not it.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        it.should_exit = True
        thread.join()


def using(server: Server, work: Any) -> Any:
    """Run ``work(client)`` against a server in this process."""

    async def go() -> Any:
        transport = httpx.ASGITransport(server.application())
        async with server.running(), httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await work(client)

    return asyncio.run(go())


def post(server: Server, path: str, body: Any, **options: Any) -> httpx.Response:
    """One request to a server in this process."""

    async def one(client: httpx.AsyncClient) -> httpx.Response:
        if isinstance(body, bytes):
            return await client.post(path, content=body, **options)
        return await client.post(path, json=body, **options)

    response: httpx.Response = using(server, one)
    return response

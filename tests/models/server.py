"""A loopback endpoint for tests of HTTP models: answers what the test tells it to, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


def chat(text: str = "hello", **message: Any) -> dict[str, Any]:
    """A chat completion as OpenAI's API writes it."""
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "c1",
        "object": "chat.completion",
        "model": "served-name",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}},
    }


def failing(status: int, message: Any = "it failed", **headers: str) -> Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"error": {"message": message}}, status, headers=names)


def chunks(*pieces: str, finish: str | None = "stop", gap: float = 0.0, usage: bool = True) -> Response:
    """A stream of text pieces; without ``finish`` it breaks off."""

    async def lines() -> Any:
        for piece in pieces:
            yield "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]}) + "\n\n"
            await asyncio.sleep(gap)
        if finish:
            yield "data: " + json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}) + "\n\n"
            if usage:
                yield 'data: {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 4}}\n\n'
            yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


class Peer:
    """The endpoint. ``answer(body, count)`` gives a JSON object, a Response, or a coroutine of one."""

    def __init__(self) -> None:
        self.url = ""
        self.answer: Callable[[dict[str, Any], int], Any] = lambda body, count: chat()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.models: list[dict[str, Any]] = [{"id": "m", "owned_by": "somebody"}]
        self.at_once = self.most_at_once = 0

    def say(self, *answers: Any) -> None:
        """Answer in this order; the last one again and again."""
        begun = len(self.bodies)
        self.answer = lambda body, count: answers[min(count - begun, len(answers) - 1)]

    async def post(self, request: Request) -> Response:
        count = len(self.bodies)
        self.bodies.append(json.loads(await request.body()))
        self.headers.append(dict(request.headers))
        self.paths.append(request.url.path)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            answer = self.answer(self.bodies[-1], count)
            if asyncio.iscoroutine(answer):
                answer = await answer
        finally:
            self.at_once -= 1
        if isinstance(answer, Response):
            return answer
        return Response(json.dumps(answer), media_type="application/json")  # escapes lone surrogates

    async def list_models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": self.models})


@contextmanager
def serving(
    paths: Sequence[str] = ("chat/completions", "responses", "messages", "completions"), above: Sequence[str] = ()
) -> Iterator[Peer]:
    """Serve a Peer on a free loopback port, in a thread of its own."""
    peer = Peer()
    routes = [Route(f"/v1/{path}", peer.post, methods=["POST"]) for path in paths]
    routes += [Route(f"/{path}", peer.post, methods=["POST"]) for path in above]
    app = Starlette(routes=[*routes, Route("/v1/models", peer.list_models)])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, name="test-peer")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the test peer did not start")
            threading.Event().wait(0.01)
        peer.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
        yield peer
    finally:
        server.should_exit = True
        thread.join()

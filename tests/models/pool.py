"""Loopback workers for tests of routers: each counts the connections that its socket accepts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from clew.models.compose import router
from clew.models.compose.ngrams import Ngrams
from clew.models.compose.router import Head, Worker

Answer = tuple[int, dict[str, Any] | bytes]


def said(text: str, **message: Any) -> Answer:
    """A chat completion as OpenAI's API writes it."""
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    return 200, {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


class Server(ThreadingHTTPServer):
    """An endpoint. ``answer(body)`` gives a status and a body; it streams words where that is asked for."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, name: str, delay: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name, self.accepted, self.bodies, self.delay = name, 0, list[dict[str, Any]](), delay
        self.keys = list[str]()
        self.answer: Callable[[dict[str, Any]], Answer] = lambda body: said(f"I am {self.name}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def get_request(self) -> Any:
        accepted = super().get_request()
        self.accepted += 1
        return accepted

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is nothing to print."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # each request is a connection of its own, and counted
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        self.server.keys.append(self.headers.get("authorization") or "")
        status, found = self.server.answer(body)
        time.sleep(self.server.delay)
        streams = status == 200 and body.get("stream") and isinstance(found, dict)
        data = _events(found) if streams else found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if streams else "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


def _events(found: Any) -> bytes:
    choice = found["choices"][0]
    message = choice["message"]
    deltas = [{"content": piece} for piece in message["content"].split(" ")]
    deltas = [{"content": d["content"] + " "} for d in deltas[:-1]] + deltas[-1:]
    deltas += [{"tool_calls": [{"index": i, **c}]} for i, c in enumerate(message.get("tool_calls", ()))]
    events: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events += [{"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}]
    events += [{"choices": [], "usage": found["usage"]}]
    return b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"


@contextmanager
def servers(*names: str, delay: float = 0.0) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        made = [stack.enter_context(Server(name, delay)) for name in names]
        for one in made:
            threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(one.shutdown)
        yield made


def folder(path: Path, workers: Sequence[Worker], scores: Sequence[float] | None = None, dim: int = 64) -> Path:
    """A router whose head names the workers by ``scores`` alone, best first where none are given."""
    weights = np.zeros((len(workers), dim), np.float32)
    weights[:, 0] = scores if scores is not None else [len(workers) - i for i in range(len(workers))]
    return router.save(path, workers, Ngrams(dim), Head(weights), {"fitted": "by hand"})


def worker(server: Server, **labels: Any) -> Worker:
    prices = {"price_in": 1.0, "price_out": 2.0} if "price_in" not in labels else {}
    return Worker(server.name, f"openai:m@{server.url}", **prices, **labels)

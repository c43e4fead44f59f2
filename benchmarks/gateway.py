"""What the gateway adds to a call: CPU and wall time, against the same requests sent straight to the endpoint.

    python benchmarks/gateway.py [--calls 400] [--rounds 7]

A loopback endpoint in a process of its own answers at once. One client sends chat completions one after the other,
each with the history so far up to ``--turns`` turns, straight and through the gateway in turn. The gateway's process
time is read from the gateway's own process, wall time at the client. Its store is SQLite on disk.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import statistics
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "yes, that is so"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
        data = json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data.encode())


def endpoint(port: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    port.value = server.server_port
    server.serve_forever()


def gateway(upstream: str, store: str, port: Any, cpu: Any) -> None:
    import asyncio
    import threading

    import uvicorn

    from clew.core.net import listen
    from clew.models.remote import Remote
    from clew.serve.gateway.proxy import Gateway
    from clew.store import open_store

    listener = listen("127.0.0.1", 0)
    it = Gateway(open_store(store), lambda dialect, name, extra: Remote(upstream, name, dialect=dialect, extra=extra))
    port.value = listener.getsockname()[1]

    def clock() -> None:
        while True:
            cpu.value = time.process_time()
            time.sleep(0.01)

    threading.Thread(target=clock, daemon=True).start()
    asyncio.run(uvicorn.Server(uvicorn.Config(it.application(), log_level="error")).serve([listener]))


def calls(client: httpx.Client, base: str, count: int, turns: int) -> list[float]:
    """Wall seconds of each call."""
    out, messages = [], list[dict[str, str]]()
    for k in range(count):
        if k % turns == 0:
            messages = [{"role": "system", "content": "agree with everything"}]
        messages.append({"role": "user", "content": f"is {k} a number?"})
        began = time.perf_counter()
        reply = client.post(f"{base}/chat/completions", json={"model": "m", "messages": messages})
        out.append(time.perf_counter() - began)
        messages.append(reply.raise_for_status().json()["choices"][0]["message"])
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    context = mp.get_context("spawn")
    far, near, cpu = context.Value("i", 0), context.Value("i", 0), context.Value("d", 0.0)
    with tempfile.TemporaryDirectory() as folder:
        upstream = context.Process(target=endpoint, args=(far,), daemon=True)
        upstream.start()
        while not far.value:
            time.sleep(0.01)
        straight = f"http://127.0.0.1:{far.value}/v1"
        between = context.Process(target=gateway, args=(straight, str(Path(folder) / "s.db"), near, cpu), daemon=True)
        between.start()
        while not near.value:
            time.sleep(0.01)
        wall, work, ratio = [], [], []
        with httpx.Client(timeout=30) as client:
            calls(client, f"http://127.0.0.1:{near.value}/r/warm/v1", 20, given.turns)
            for round in range(given.rounds):
                direct = statistics.median(calls(client, straight, given.calls, given.turns))
                time.sleep(0.05)
                before = cpu.value
                through = calls(client, f"http://127.0.0.1:{near.value}/r/r{round}/v1", given.calls, given.turns)
                time.sleep(0.05)
                wall.append(1e3 * (statistics.median(through) - direct))
                work.append(1e3 * (cpu.value - before) / given.calls)
                ratio.append(statistics.median(through) / direct)
        for name, values in (("ms of wall time added to a call", wall), ("ms of CPU in the gateway for a call", work),
                             ("x the wall time of a call sent straight", ratio)):  # fmt: skip
            middle = statistics.median(values)
            print(f"{middle:.2f} [{min(values):.2f}, {max(values):.2f}] {name}, {given.rounds} rounds of {given.calls}")
        between.terminate()
        upstream.terminate()


if __name__ == "__main__":
    main()

"""Uses an OpenAI-compatible URL as a model, and replays the run without the server.

A tiny server on this machine plays the endpoint. The server fails once, to show that the record keeps every attempt.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import clew


class Handler(BaseHTTPRequestHandler):
    asked = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Handler.asked += 1
        if Handler.asked == 1:
            self.reply(503, {"error": {"message": "warming up"}}, {"Retry-After": "0"})
            return
        last = body["messages"][-1]["content"]
        action = "stop" if "3" in last else "up"
        message = {"role": "assistant", "content": action}
        usage = {"prompt_tokens": sum(len(m["content"].split()) for m in body["messages"]), "completion_tokens": 1}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.reply(200, {"id": "1", "model": body["model"], "choices": [choice], "usage": usage})

    def reply(self, status: int, data: dict, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *values: object) -> None:
        """Quiet."""


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"

    model = clew.model(f"{url}#tiny", api_key="sk-not-recorded", price=(1.0, 2.0))
    counter = clew.taskset("counter(low=3, high=3)")
    runner = clew.Runner("player", counter, model, limits=clew.Limits(cost=0.01))
    run = runner.collect(counter.sample(1), n=1).runs[0]
    print(clew.tree(run))
    first = next(call for call in run.calls if call.kind == "ask")
    print("attempts of the first ask:", [(attempt.status, attempt.error) for attempt in first.attempts])
    print(f"cost ${run.cost:.6f}; replayed without the server:", end=" ")
    server.shutdown()
    server.server_close()
    print(runner.replay(run).calls, "Calls")
    assert "sk-not-recorded" not in json.dumps(run.row) + str(run.calls)


if __name__ == "__main__":
    main()

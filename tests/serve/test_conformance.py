"""tools/conformance.py against `clew serve`'s server, and against a server that takes everything and does nothing."""

from __future__ import annotations

import importlib.util
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clew.serve.edge import Identified
from clew.serve.openai.server import Server
from tests.serve.serving import serving, talker

pytest.importorskip("prometheus_client")
pytestmark = pytest.mark.enable_socket
FILE = Path(__file__).resolve().parents[2] / "tools" / "conformance.py"


@pytest.fixture(scope="module")
def tool() -> Any:
    found = importlib.util.spec_from_file_location("conformance", FILE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class Edged(Server):
    """The server as `clew serve` listens with it."""

    def application(self) -> Any:
        return Identified(super().application())


def test_the_server_does_everything_that_is_asked(tool: Any) -> None:
    with serving(Edged(talker(), names=("m",))) as address:
        client = tool.Client(f"{address}/v1", "m", "")
        found = {check.__name__: tool.judged(client, check) for check in tool.CHECKS}
    assert {name: told for name, told in found.items() if told[0] != "done"} == {}


class Agreeable(BaseHTTPRequestHandler):
    """Takes any request and says the same."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        choice = {"message": {"role": "assistant", "content": "so it is"}, "finish_reason": "stop", "text": "so it is"}
        choice |= {"token_ids": [1, 2, 3, 3], "prompt_token_ids": [1]}
        usage = {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}
        body = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def test_a_server_that_takes_everything_and_does_nothing_is_found_out(tool: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Agreeable)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        client = tool.Client(f"http://127.0.0.1:{server.server_port}/v1", "m", "")
        found = {check.__name__: tool.judged(client, check)[0] for check in tool.CHECKS}
    finally:
        server.shutdown()
        server.server_close()
    wrong = {name for name, what in found.items() if what == "WRONG"}
    assert wrong >= {"several", "logprobs", "biased", "allowed", "repeated", "least", "endless", "formed", "called"}
    assert wrong >= {"streamed", "echoed", "wrong_role", "wrong_type", "unknown_model", "bounded"}

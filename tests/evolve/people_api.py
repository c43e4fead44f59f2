"""A stand-in of Prolific's documented routes on this machine: it keeps studies in memory and lets people 'finish'."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "a-token-of-the-tests"


def token_of() -> str | None:
    """The token that a test has set."""
    return os.environ.get("PROLIFIC_API_TOKEN")


class Desk(ThreadingHTTPServer):
    """The stand-in. asked: each request as (method, path). fee: what comes on top of rewards."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Routes)
        self.studies: dict[str, dict[str, Any]] = {}
        self.people: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[tuple[str, str]] = []
        self.fee, self.says = 1.4, ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/api/v1"

    def finish(self, study: str, n: int, status: str = "AWAITING REVIEW") -> None:
        """That many more people end their part of a study."""
        code = self.studies[study]["completion_codes"][0]["code"]
        known = self.people.setdefault(study, [])
        known += [
            {"id": f"s{len(known) + i}", "participant_id": f"secret{i}", "status": status, "study_code": code}
            for i in range(n)
        ]


class Routes(BaseHTTPRequestHandler):
    server: Desk

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, code: int, told: Any) -> None:
        body = (told if isinstance(told, str) else json.dumps(told)).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.serve({})

    def do_POST(self) -> None:
        self.serve(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def serve(self, body: dict[str, Any]) -> None:
        desk, url = self.server, urlsplit(self.path)
        path = url.path.removeprefix("/api/v1")
        desk.asked.append((self.command, path))
        if desk.says:
            self.answer(400, desk.says)
            return
        if self.headers["authorization"] != f"Token {TOKEN}":
            self.answer(401, {"error": "no"})
            return
        parts = path.strip("/").split("/")
        match self.command, parts:
            case "POST", ["study-cost-calculator"]:
                self.answer(200, {"total_cost": body["reward"] * body["total_available_places"] * desk.fee})
            case "POST", ["studies"]:
                known = f"study{len(desk.studies)}"
                desk.studies[known] = {**body, "id": known, "status": "UNPUBLISHED"}
                self.answer(201, desk.studies[known])
            case "GET", ["studies"]:
                self.answer(200, {"results": list(desk.studies.values())})
            case "GET", ["studies", known] if known in desk.studies:
                self.answer(200, desk.studies[known])
            case "POST", ["studies", known, "transition"] if known in desk.studies:
                desk.studies[known]["status"] = {"PUBLISH": "ACTIVE", "STOP": "AWAITING REVIEW"}[body["action"]]
                self.answer(200, desk.studies[known])
            case "GET", ["submissions"]:
                query = parse_qs(url.query)
                page, size = int(query["page"][0]), int(query["page_size"][0])
                rows = desk.people.get(query["study"][0], [])
                self.answer(200, {"results": rows[(page - 1) * size : page * size], "meta": {"count": len(rows)}})
            case _:
                self.answer(404, {"error": "no such route"})


@contextmanager
def desk() -> Iterator[Desk]:
    """A stand-in that answers until the block ends."""
    server = Desk()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

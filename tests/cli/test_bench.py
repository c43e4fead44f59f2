"""clew bench against servers of its own, and against one that fails in every way it counts."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

MODEL = "markov(tokens=True)"


def lines(folder):
    return [json.loads(line) for line in (folder / "serve.jsonl").read_text().splitlines()]


@pytest.fixture
def speaker():
    """Says its first word after .05 s and each of three more after .02 s; of eight requests three go wrong."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        asked: list[dict] = []  # noqa: RUF012

        def log_message(self, *_):
            pass

        def do_GET(self):
            self.reply(200, json.dumps({"data": [{"id": "speaker"}]}).encode())

        def reply(self, status, data):
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.asked.append(body | {"key": self.headers["authorization"]})
            turn = len(self.asked) % 8
            if turn == 4:
                self.reply(429, b"{}")
                return
            self.send_response(200)
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            for i in range(4):
                time.sleep(0.02 if i else 0.05)
                self.event("{]" if turn == 0 and i == 2 else json.dumps({"choices": [{"delta": {"content": "word "}}]}))
            self.event(json.dumps({"choices": [], "usage": {"completion_tokens": 8}}))  # two tokens in each part
            if turn != 6:
                self.event("[DONE]")

        def event(self, text):
            self.wfile.write(f"data: {text}\n\n".encode())
            self.wfile.flush()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", Handler
    server.shutdown()
    server.server_close()


@pytest.mark.whole
def test_what_a_server_says_is_counted(clew, tmp_path, speaker, monkeypatch):
    url, handler = speaker
    monkeypatch.setenv("CLEW_API_KEY", "secret-key")
    found = json.loads(clew("bench", url, "--users", "2", "--seconds", 3, "--max-tokens", 9, "--json").stdout)
    (row,) = found
    assert set(row["errors"]) == {"status 429", "malformed reply", "cut stream"}
    assert row["first"]["estimate"] >= 0.05
    assert row["between"]["estimate"] >= 0.06 / 7  # three pauses, eight tokens
    assert 0 < row["speed"]["estimate"] <= 8 / 0.11
    assert 0 < row["throughput"]["estimate"] <= 2 * row["speed"]["high"]
    assert {(a["model"], a["max_tokens"], a["key"]) for a in handler.asked} == {("speaker", 9, "Bearer secret-key")}
    assert all(a["stream"] for a in handler.asked)
    assert "secret-key" not in (tmp_path / ".clew/bench/serve.jsonl").read_text()
    assert (tmp_path / ".clew/bench/serve.svg").exists()


def test_what_was_measured_is_not_measured_again(clew, tmp_path, speaker):
    url, handler = speaker
    line = ("bench", url, "--seconds", 0.6, "--out", "kept")
    clew(*line, "--users", "1")
    first, asked = lines(tmp_path / "kept"), len(handler.asked)
    shown = clew(*line, "--users", "1")
    assert "1 measurements, 0 to do" in shown.stderr
    assert len(handler.asked) == asked
    with (tmp_path / "kept" / "serve.jsonl").open("a") as file:
        file.write('{"target": "cut sho')
    shown = clew(*line, "--users", "1,3", "--rate", "5")
    assert "3 measurements, 2 to do" in shown.stderr
    assert lines(tmp_path / "kept")[0] == first[0]
    assert [(x["users"], x["rate"]) for x in lines(tmp_path / "kept")] == [(1, 0), (3, 0), (0, 5)]
    assert "as served" in shown.stdout
    assert "5/s" in shown.stdout


def test_a_model_is_served_meanwhile(clew):
    shown = clew("bench", MODEL, "--users", "1,4", "--seconds", 1, "--max-tokens", 8).stdout
    rows = [line for line in shown.splitlines() if line.startswith("as served")]
    assert ["1 users" in rows[0], "4 users" in rows[1], len(rows)] == [True, True, 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("http://127.0.0.1:9/v1", "--lengths", "none"), "for a server started here"),
        ((MODEL, "--frontier"), "Name a --draft"),
        ((MODEL, "--users", "1,x"), "--users '1,x'"),
        ((MODEL, "--users", "0"), "not numbers above 0"),
        ((MODEL, "--max-tokens", "1"), "--max-tokens"),
        (("http://127.0.0.1:9/v1", "--users", "1"), "Check the URL"),
        (("http://127.0.0.1:9/v1", "--prompts", "EMPTY"), "empty.txt holds no prompt"),
        (("http://127.0.0.1:9/v1", "--prompts", "NO_TEXT"), "no_text.txt is saved as UTF-16"),
        (("no-such-model", "--users", "1"), "the server did not begin"),
    ],
)
def test_what_cannot_be_measured_is_refused(clew, words, said, tmp_path):
    files = {"EMPTY": tmp_path / "empty.txt", "NO_TEXT": tmp_path / "no_text.txt"}
    files["EMPTY"].write_text("\n\n")
    files["NO_TEXT"].write_bytes(b"\xff\xfe\0")
    assert said in clew("bench", *(files.get(word, word) for word in words), "--seconds", 1, code=2).output


def test_a_server_that_answers_nothing(clew, speaker):
    url, handler = speaker
    handler.do_POST = lambda self: self.reply(503, b"no")
    shown = clew("bench", url, "--users", "1", "--seconds", 0.5, code=2)
    assert "status 503" in shown.output

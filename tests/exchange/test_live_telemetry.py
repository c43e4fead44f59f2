"""Spans taken over HTTP as programs run, and runs sent as spans as they end."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import pytest
from starlette.testclient import TestClient

from clew.core.errors import BadInput, Unreachable
from clew.exchange import Transcript, recall, record
from clew.exchange.telemetry.follow import follow
from clew.exchange.telemetry.inbox import SILENT, Inbox
from clew.exchange.telemetry.receiver import PROTOBUF, application
from clew.exchange.telemetry.span import document
from clew.exchange.telemetry.to_spans import spans_of_run
from clew.store import MemoryStore, Run, open_store

from .test_telemetry import TOLD, request, same, span, told

ASKED = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Oslo?"}]}]),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "90"}]}]),
}
SILENT_CALL = {name: value for name, value in ASKED.items() if not name.endswith(".messages")}
TRACE = "ab" * 16


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def inbox(tmp_path):
    return Inbox(MemoryStore(), tmp_path / "store.db.otlp", clock=Clock())


def pass_(inbox, seconds):
    inbox.clock.now += seconds
    return inbox.imported()


def test_a_trace_is_imported_once_its_root_has_come_and_nothing_follows(inbox):
    assert inbox.take(request(span(1, ASKED, parent="cd" * 8))) == 1
    assert pass_(inbox, 11) == []  # its root may still be at work
    inbox.take(request(span(2, {"http.route": "/ask"})))  # no agent's span, and the root of the trace
    assert pass_(inbox, 9) == []
    (arrived,) = pass_(inbox, 2)
    assert [m.text for m in recall(Run(inbox.store, arrived.run)).messages] == ["Oslo?", "90"]
    assert not inbox.store.verify()
    assert len(inbox) == 0
    assert pass_(inbox, 1000) == []


def test_a_trace_without_a_root_is_imported_in_the_end(inbox):
    inbox.take(request(span(1, ASKED, parent="cd" * 8)))
    assert pass_(inbox, SILENT - 1) == []
    assert len(pass_(inbox, 2)) == 1


def test_what_was_answered_is_not_lost_where_the_process_ends(inbox):
    inbox.take(request(span(1, ASKED)))
    again = Inbox(inbox.store, inbox.folder, clock=Clock())
    assert len(again) == 1
    (arrived,) = again.imported(everything=True)
    assert arrived.run
    assert not list(inbox.folder.glob("*.jsonl"))


def test_two_traces_of_one_request_are_two_runs(inbox):
    inbox.take(request(span(1, ASKED), span(2, ASKED, trace="cd" * 16)))
    assert len({arrived.run for arrived in pass_(inbox, 11)}) == 2


def test_spans_that_come_too_late_are_kept_and_named(inbox):
    inbox.take(request(span(1, ASKED)))
    pass_(inbox, 11)
    inbox.take(request(span(2, ASKED, start=5)))
    assert len(inbox) == 0
    (file,) = inbox.late()
    assert TRACE in file.name
    assert json.loads(file.read_text())["resourceSpans"]


def test_a_trace_without_messages_is_refused_with_what_helps_and_kept(inbox):
    inbox.take(request(span(1, SILENT_CALL)))
    (arrived,) = pass_(inbox, 11)
    assert not arrived.run
    assert "CAPTURE_MESSAGE_CONTENT" in arrived.why
    assert arrived.file.exists()


def test_a_trace_in_which_no_model_replied_is_left_out(inbox):
    inbox.take(request(span(1, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"})))
    assert pass_(inbox, 11) == []
    assert len(inbox) == 0


def test_a_trace_that_is_too_large_is_refused(inbox, monkeypatch):
    monkeypatch.setattr("clew.exchange.telemetry.inbox.BYTES", 2000)
    inbox.take(request(span(1, ASKED)))
    with pytest.raises(BadInput, match="MiB of spans"):
        inbox.take(request(span(2, ASKED), span(3, ASKED)))


@pytest.fixture
def client(inbox):
    return TestClient(application(inbox, lambda arrived: None))


def body():
    return json.dumps(request(span(1, ASKED))).encode()


def test_a_request_is_taken_as_json_plain_or_packed(client, inbox):
    kind = {"content-type": "application/json"}
    assert client.post("/v1/traces", content=body(), headers=kind).json() == {}
    packed = {**kind, "content-encoding": "gzip"}
    assert client.post("/v1/traces", content=gzip.compress(body()), headers=packed).status_code == 200
    assert len(inbox) == 1


@pytest.mark.parametrize(
    ("content", "headers", "status", "why"),
    [
        (b"{", {}, 400, "no request of OTLP"),
        (b"{}", {}, 400, "neither resourceSpans"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "x"}]}]}]}', {}, 400, "without an id"),
        (b"\xff" * 40, {"content-type": PROTOBUF}, 400, ""),
        (b"no gzip", {"content-encoding": "gzip"}, 400, "gzip is broken"),
        (gzip.compress(b" " * (65 << 20)), {"content-encoding": "gzip"}, 400, "unpacks to over"),
        (b"{}", {"content-encoding": "br"}, 400, "packed as"),
        (b"[" * 100_000, {}, 400, "deep"),
        (b"{}", {"origin": "http://evil.example"}, 403, "web page"),
    ],
)
def test_what_is_no_request_is_refused(client, content, headers, status, why):
    kind = {"content-type": "application/json"} | headers
    answer = client.post("/v1/traces", content=content, headers=kind)
    assert answer.status_code == status
    assert why in answer.text


def test_who_does_not_know_the_token_is_refused(inbox):
    client = TestClient(application(inbox, lambda arrived: None, token="s3cret"))
    assert client.post("/v1/traces", content=body()).status_code == 401
    assert client.post("/v1/traces", content=body(), headers={"authorization": "Bearer no"}).status_code == 401
    assert client.post("/v1/traces", content=body(), headers={"authorization": "Bearer s3cret"}).status_code == 200


# runs sent as they end


@contextmanager
def listening(store, *more):
    """`clew import --listen` as a process; gives its address and a function that waits for a line."""
    command = [sys.executable, "-m", "clew.cli", "import", "--listen", "--port", "0", "--store", str(store), *more]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "NO_COLOR": "1"})
    seen = []

    def line(pattern):
        for text in process.stdout:
            seen.append(text)
            if found := re.search(pattern, text):
                return found
        raise AssertionError(f"{pattern} did not come: {seen} {process.stderr.read()}")

    try:
        yield line(r"ENDPOINT=(\S+)")[1], line, process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_one_store_follows_another_while_runs_are_made(tmp_path):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="did not run: the extra otel is not installed")
    store = open_store(tmp_path / "here.db")
    over = threading.Event()
    said = []
    with listening(tmp_path / "there.db") as (address, line, process):

        def work():
            with open_store(tmp_path / "here.db") as mine:
                chosen = lambda: [Run(mine, run) for run in mine.find("")]  # noqa: E731
                said.append(follow(mine, chosen, address, lambda *told: None, over=over.is_set, pause=over.wait))

        first = record(store, TOLD)
        store.commit()
        thread = threading.Thread(target=work)
        thread.start()
        second = record(store, Transcript(TOLD.messages[:3], "t2", reward=0.0, model="gpt-4o"))
        store.commit()
        over.set()
        thread.join(30)
        process.send_signal(signal.SIGINT)  # what has come is imported, though no ten seconds have passed
        runs = [line(r"run (\w+);")[1] for _ in range(2)]
    assert said == [2]
    with open_store(tmp_path / "there.db") as there:
        assert not there.verify()
        back = {recall(Run(there, run)).task_id: recall(Run(there, run)) for run in runs}
        same(recall(Run(store, first)), back["t1"])
        same(recall(Run(store, second)), back["t2"])


def test_a_receiver_that_does_not_answer_is_tried_again(monkeypatch):
    run, tried, heard = told(), [], []

    def once(runs, url):
        tried.append(url)
        if len(tried) == 1:
            raise Unreachable("it is gone", remedy="")

    monkeypatch.setattr("clew.exchange.telemetry.follow.send", once)
    count = follow(
        run.store, lambda: [run], "http://x", lambda *a: heard.append(a), over=lambda: len(tried) > 1, pause=id
    )
    assert count == 1
    assert [error is None for _, error in heard] == [False, True]
    tried.clear()
    with pytest.raises(Unreachable):
        follow(run.store, lambda: [run], "http://x", lambda *a: None, over=lambda: True)


def test_the_address_answers_an_exporter_of_its_own_kind(tmp_path):
    """What the SDK's exporter of JSON would send, by hand: no package has one."""
    with listening(tmp_path / "there.db", "--token", "s3cret") as (address, line, process):
        data = json.dumps(document(list(spans_of_run(told()))))
        kind = {"content-type": "application/json"}
        assert httpx.post(f"{address}/v1/traces", content=data, headers=kind).status_code == 401
        kind["authorization"] = "Bearer s3cret"
        assert httpx.post(f"{address}/v1/traces", content=data, headers=kind).status_code == 200
        process.send_signal(signal.SIGINT)
        assert line(r"run (\w+);")

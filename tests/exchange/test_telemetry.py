"""OpenTelemetry: runs as spans of the conventions for generative AI, and spans of other programs as runs."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from clew.core.errors import BadInput, BadRecord, Unreachable
from clew.core.values import Message, StopReason, ToolCall, ToolSpec, Usage
from clew.exchange import Transcript, export, import_file, recall, record
from clew.exchange.telemetry.send import endpoint_of, send
from clew.exchange.telemetry.to_spans import provider, spans_of_run
from clew.exchange.transcript import Meter
from clew.harness import Runner
from clew.harness.agents import chatter
from clew.models.fakes import Scripted, tool_call
from clew.store import MemoryStore, Run
from clew.view.terminal import headline, tree
from clew.worlds.toys import Counter, Shop

from .test_transcript import TALK

LOOK = ToolSpec("look", "See what is there.", {"type": "object", "properties": {"at": {"type": "string"}}})
METERS = (
    Meter(Usage(20, 5, 3), 0.001, 0.5, started=1_700_000_000.25, model="gpt-4o-mini"),
    Meter(Usage(40, 2), 0.002, 0.25, started=1_700_000_001.5),
    Meter(Usage(60, 3), 0.25, 1.0, started=1_700_000_002.0),
)
SUMMARY = (
    Message("user", "Summary: there is a door."),
    Message("assistant", "onwards", "thinking \ud800"),
)
TOLD = Transcript(
    TALK,
    "t1",
    (LOOK,),
    1.0,
    {"style": 0.5},
    "gpt-4o",
    METERS,
    others=(SUMMARY,),
    other_meters=((Meter(Usage(9, 1), 0.125, 0.5, started=1_700_000_003.0),),),
)


def same(a: Transcript, b: Transcript) -> None:
    """What bar 5 of telemetry asks for: messages, tools, tokens, cost; and more."""
    assert b.messages == a.messages
    assert b.others == a.others
    assert b.tools == a.tools
    for ours, theirs in zip((a.meters, *a.other_meters), (b.meters, *b.other_meters), strict=True):
        assert [m.usage for m in theirs] == [m.usage for m in ours]
        assert [m.cost for m in theirs] == [m.cost for m in ours]
        assert [m.model for m in theirs] == [m.model for m in ours]
        assert [m.seconds for m in theirs] == pytest.approx([m.seconds for m in ours], abs=1e-6)
    assert (b.model, b.reward, b.scores, b.task_id) == (a.model, a.reward, a.scores, a.task_id)


def imported(path: Path) -> Run:
    store = MemoryStore()
    (name,) = import_file(store, path)
    assert not store.verify()
    return Run(store, name)


def told(it: Transcript = TOLD) -> Run:
    store = MemoryStore()
    run = Run(store, record(store, it))
    store.commit()
    return run


@pytest.mark.parametrize("name", ["run.otlp.jsonl", "run.otlp.json", "run.otlp.jsonl.gz", "spans.json", "spans.jsonl"])
def test_a_run_comes_back_from_a_file_as_it_was(tmp_path, name):
    run = told()
    assert export(run.store, [run], tmp_path / name, "otel") == 1
    back = imported(tmp_path / name)
    same(recall(run), recall(back))
    assert Runner.of(back.store, back).replay(back).calls == len(back.calls)


def test_a_run_of_an_agent_comes_back(tmp_path):
    model = Scripted([tool_call("price", id="p1", item="pen"), "done"])
    runner = Runner("clew.harness.agents:tool_user", Shop(), model, MemoryStore())
    ((run,),) = runner.collect(Shop().sample(1), n=1)
    assert any(call.kind == "act" for call in run.calls)
    export(run.store, [run], tmp_path / "a.otlp.jsonl")
    same(recall(run), recall(imported(tmp_path / "a.otlp.jsonl")))


def test_a_run_is_one_trace_however_often_it_is_exported():
    run = told()
    first, again = list(spans_of_run(run)), list(spans_of_run(Run(run.store, run.id)))
    assert first == again
    assert len({span.id for span in first}) == len(first)
    (trace,) = {span.trace for span in first}
    assert {span.parent for span in first[1:]} == {first[0].id}
    assert trace not in {span.trace for span in spans_of_run(told())}


def test_the_spans_have_the_names_of_the_conventions():
    root, *rest = spans_of_run(told())
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert root.attributes["gen_ai.agent.name"] == "transcript"
    assert root.attributes["clew.reward"] == 1.0
    assert json.loads(root.attributes["gen_ai.tool.definitions"])[0]["name"] == "look"
    chat = next(span for span in rest if span.attributes["gen_ai.operation.name"] == "chat")
    assert chat.name == "chat gpt-4o-mini"
    asked, said = chat.attributes["gen_ai.input.messages"], chat.attributes["gen_ai.output.messages"]
    assert json.loads(asked)[1] == {"role": "user", "parts": [{"type": "text", "content": "what do you see?"}]}
    (reply,) = json.loads(said)
    assert reply["finish_reason"] == "tool_call"
    assert [part["type"] for part in reply["parts"]] == ["reasoning", "tool_call", "tool_call"]
    assert chat.attributes["gen_ai.usage.input_tokens"] == 20
    assert chat.attributes["gen_ai.usage.output_tokens"] == 5
    assert chat.attributes["gen_ai.usage.cache_read.input_tokens"] == 3
    assert chat.end - chat.start == 500_000_000
    tool = next(span for span in rest if span.attributes.get("gen_ai.tool.call.id") == "c1")
    assert tool.name == "execute_tool look"
    assert tool.attributes["gen_ai.tool.call.result"] == "a door"
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"at": "door"}


def test_names_of_the_conventions_are_those_of_the_package():
    names = pytest.importorskip(
        "opentelemetry.semconv._incubating.attributes.gen_ai_attributes",
        reason="did not run: opentelemetry-sdk is not installed",
    )
    known = {value for name, value in vars(names).items() if name.startswith("GEN_AI_") and isinstance(value, str)}
    known |= {"gen_ai.usage.cost"}  # Langfuse's own
    for span in spans_of_run(told()):
        assert {name for name in span.attributes if name.startswith("gen_ai.")} <= known


def test_a_child_run_lies_in_the_trace_of_its_parent(tmp_path):
    async def outer(run):
        await run.chat().ask("first")
        await run.spawn(chatter, "second")

    store = MemoryStore()
    runner = Runner(outer, Counter(), Scripted({"first": "yes", "second": "no"}), store)
    ((run,),) = runner.collect(Counter().sample(1), n=1)
    child = store.run(next(call.child for call in run.calls if call.kind == "spawn"))
    of_run, of_child = list(spans_of_run(run)), list(spans_of_run(child))
    assert {span.trace for span in of_run} == {span.trace for span in of_child}
    assert of_child[0].parent in {span.id for span in of_run}
    export(store, [run, child], tmp_path / "both.otlp.json")
    back = recall(imported(tmp_path / "both.otlp.json"))
    assert {m.text for talk in (back.messages, *back.others) for m in talk} == {"first", "yes", "second", "no"}


def test_a_fork_is_not_paid_for_twice():
    run = told()
    (fork,) = Runner.of(run.store, run, model=Scripted({"": "a wall"})).fork(run, at=4)
    costs = [span.attributes.get("gen_ai.usage.cost") for span in spans_of_run(fork) if span.name.startswith("chat")]
    assert costs[0] is None  # its parent's
    assert sum(span.attributes.get("clew.cost_usd", 0) for span in spans_of_run(fork) if "chat" in span.name) > 0


def test_providers():
    assert provider("https://api.openai.com/v1#gpt-4o") == "openai"
    assert provider("https://api.anthropic.com/v1#claude") == "anthropic"
    assert provider("https://notopenai.com/v1#gpt") == "clew"
    assert provider("./weights") == "clew"


# a real receiver


@pytest.fixture
def collector(tmp_path):
    """A receiver of OTLP over HTTP on loopback, built on the official types; it writes as the collector's file exporter
    does, one request a line. Gives its address, its file, and what it answers (a status).
    """
    needed = "did not run: the extra otel is not installed"
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason=needed)
    from google.protobuf import json_format

    class Receiver(BaseHTTPRequestHandler):
        status, requests = 200, 0

        def do_POST(self):
            Receiver.requests += 1
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            asked = service.ExportTraceServiceRequest.FromString(body)
            data = json_format.MessageToDict(asked)
            for part in data["resourceSpans"]:
                for scope in part["scopeSpans"]:
                    for one in scope["spans"]:  # OTLP writes ids in hex where protobuf's own JSON has base64
                        for name in {"traceId", "spanId", "parentSpanId"} & one.keys():
                            one[name] = base64.b64decode(one[name]).hex()
                        one["kind"] = ["", "INTERNAL", "SERVER", "CLIENT"].index(one["kind"][10:])
            if Receiver.status == 200:
                with open(path, "ab") as file:
                    file.write(json.dumps(data).encode() + b"\n")
            self.send_response(Receiver.status)
            self.end_headers()
            if Receiver.status == 200:
                self.wfile.write(service.ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *args):
            pass

    path = tmp_path / "received.json"
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", path, Receiver
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_collector_receives_a_run_and_it_comes_back_equal(collector):
    address, path, receiver = collector
    run = told()
    assert send([run], address) == 1
    back = imported(path)
    same(recall(run), recall(back))
    send([run], address + "/v1/traces")
    assert receiver.requests == 2
    assert len(import_file(MemoryStore(), path)) == 1  # twice the same ids are one trace
    same(recall(run), recall(imported(path)))


def test_the_file_is_what_the_collector_would_write(collector, tmp_path):
    address, path, _ = collector
    run = told()
    send([run], address)
    export(run.store, [run], tmp_path / "own.otlp.jsonl")

    def spans(file):
        data = [json.loads(line) for line in file.read_text().splitlines()]
        found = [s for one in data for r in one["resourceSpans"] for scope in r["scopeSpans"] for s in scope["spans"]]
        return [{k: v for k, v in s.items() if k != "flags" and v != {}} for s in found]

    assert spans(tmp_path / "own.otlp.jsonl") == spans(path)


def test_what_a_receiver_refuses_is_said_in_a_sentence(collector):
    address, path, receiver = collector
    receiver.status = 401
    with pytest.raises(Unreachable, match="401") as caught:
        send([told()], address)
    assert "OTEL_EXPORTER_OTLP_HEADERS" in caught.value.remedy
    assert not path.exists()


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://x", "http://", "http://x:port", ""])
def test_what_is_no_address(url):
    with pytest.raises(BadInput, match="no address of HTTP"):
        endpoint_of(url)


# spans of other programs


def pairs(attributes):
    def value(v):
        if isinstance(v, bool):
            return {"boolValue": v}
        if isinstance(v, int):
            return {"intValue": str(v)}
        if isinstance(v, float):
            return {"doubleValue": v}
        if isinstance(v, list):
            return {"arrayValue": {"values": [value(one) for one in v]}}
        return {"stringValue": v}

    return [{"key": k, "value": value(v)} for k, v in attributes.items()]


def span(number, attributes, start=0, trace="ab" * 16, parent=""):
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": parent,
        "name": "llm",
        "startTimeUnixNano": str(1_700_000_000_000_000_000 + 1_000_000_000 * start),
        "endTimeUnixNano": str(1_700_000_000_000_000_000 + 1_000_000_000 * start + 500_000_000),
        "attributes": pairs(attributes),
    }


def request(*spans, service="desk"):
    about = {"attributes": pairs({"service.name": service})}
    return {"resourceSpans": [{"resource": about, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


CALL = {"id": "c1", "type": "function", "function": {"name": "price", "arguments": '{"to": "Oslo"}'}}
ASKED = [{"role": "system", "content": "You sell."}, {"role": "user", "content": "Oslo?"}]
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
PRICE = {"role": "tool", "tool_call_id": "c1", "content": "90"}
EXPECTED = (
    Message("system", "You sell."),
    Message("user", "Oslo?"),
    Message("assistant", "", calls=(ToolCall("c1", "price", '{"to": "Oslo"}'),)),
    Message("tool", "90", call_id="c1"),
    Message("assistant", "90 euros."),
)


def openinference(messages, side):
    out = {}
    for i, m in enumerate(messages):
        at = f"llm.{side}_messages.{i}.message"
        out[f"{at}.role"] = m["role"]
        if m.get("content"):
            out[f"{at}.content"] = m["content"]
        if "tool_call_id" in m:
            out[f"{at}.tool_call_id"] = m["tool_call_id"]
        for j, call in enumerate(m.get("tool_calls") or ()):
            inner = f"{at}.tool_calls.{j}.tool_call"
            out |= {f"{inner}.id": call["id"], f"{inner}.function.name": call["function"]["name"]}
            out[f"{inner}.function.arguments"] = call["function"]["arguments"]
    return out


def phoenix(asked, said):
    tool = json.dumps({"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}})
    counts = {"llm.token_count.prompt": 10, "llm.token_count.completion": 4, "llm.cost.total": 0.5}
    kind = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-4o", "llm.tools.0.tool.json_schema": tool}
    return {**kind, **counts, **openinference(asked, "input"), **openinference([said], "output")}


def openllmetry(asked, said):
    out = {"llm.request.type": "chat", "gen_ai.request.model": "gpt-4o", "gen_ai.usage.cost": 0.5}
    out |= {"gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 4}
    for side, messages in (("prompt", asked), ("completion", [said])):
        for i, m in enumerate(messages):
            at = f"gen_ai.{side}.{i}"
            out |= {f"{at}.role": m["role"], f"{at}.content": m.get("content") or ""}
            if "tool_call_id" in m:
                out[f"{at}.tool_call_id"] = m["tool_call_id"]
            for j, call in enumerate(m.get("tool_calls") or ()):
                out |= {f"{at}.tool_calls.{j}.id": call["id"]}
                out |= {f"{at}.tool_calls.{j}.{k}": v for k, v in call["function"].items()}
    return out


def langfuse(asked, said):
    return {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "gpt-4o",
        "langfuse.observation.input": json.dumps({"messages": asked}),
        "langfuse.observation.output": json.dumps(said),
        "langfuse.observation.usage_details": '{"input": 10, "output": 4}',
        "langfuse.observation.cost_details": '{"total": 0.5}',
    }


def conventions(asked, said):
    def part(m):
        if m["role"] == "tool":
            return {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": m["content"]}]}
        texts = [{"type": "text", "content": m["content"]}] if m.get("content") else []
        calls = [
            {"type": "tool_call", "id": c["id"], "name": "price", "arguments": {"to": "Oslo"}}
            for c in m.get("tool_calls") or ()
        ]
        return {"role": m["role"], "parts": texts + calls}

    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": "gpt-4o",
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "You sell."}]),
        "gen_ai.input.messages": json.dumps([part(m) for m in asked if m["role"] != "system"]),
        "gen_ai.output.messages": json.dumps([{**part(said), "finish_reason": "stop"}] if said else []),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cost": 0.5,
    }


@pytest.mark.parametrize("dialect", [phoenix, openllmetry, langfuse, conventions])
def test_spans_of_other_programs_become_runs(tmp_path, dialect):
    first = span(2, dialect(ASKED, CALLED), 1, parent="f" * 16)  # its parent is in no file
    second = span(3, dialect([*ASKED, CALLED, PRICE], {"role": "assistant", "content": "90 euros."}), 3)
    other = span(4, {"http.route": "/desk"}, 0)
    lines = [request(second), request(other), request(first)]  # out of order, over several lines
    (tmp_path / "traces.json").write_text("\n".join(map(json.dumps, lines)))
    it = recall(imported(tmp_path / "traces.json"))
    assert it.messages == EXPECTED
    assert [m.usage for m in it.meters] == [Usage(10, 4)] * 2
    assert [m.cost for m in it.meters] == [0.5, 0.5]
    assert it.meters[0].started == 1_700_000_001
    assert it.model == "gpt-4o"
    if dialect is phoenix:
        assert [tool.name for tool in it.tools] == ["price"]


def test_spans_as_the_sdk_and_phoenix_print_them(tmp_path):
    def printed(number, attributes, at):
        where = {"trace_id": "0x" + "cd" * 16, "span_id": f"0x{number:016x}"}
        times = {"start_time": f"2026-01-01T10:00:0{at}.500000Z", "end_time": f"2026-01-01T10:00:0{at}.750000Z"}
        return {"name": "llm", "context": where, "parent_id": None, **times, "attributes": attributes}

    nested = {"llm": {"input_messages": [{"message": {"role": "user", "content": "hi"}}], "model_name": "m"}}
    nested["llm"]["output_messages"] = [{"message": {"role": "assistant", "content": "ho"}}]
    flat = phoenix([{"role": "user", "content": "hi"}], {"role": "assistant", "content": "ho"})
    for attributes in ({"openinference": {"span": {"kind": "LLM"}}, **nested}, flat):
        (tmp_path / "spans.json").write_text(json.dumps([printed(1, attributes, 1)], indent=2))
        it = recall(imported(tmp_path / "spans.json"))
        assert it.messages == (Message("user", "hi"), Message("assistant", "ho"))
        assert it.meters[0].seconds == pytest.approx(0.25)


def test_messages_in_events(tmp_path):
    events = [
        {"name": "gen_ai.user.message", "attributes": pairs({"content": "hi"})},
        {"name": "gen_ai.choice", "attributes": pairs({"index": 0, "message": '{"content": "ho"}'})},
    ]
    old = {**span(1, {"gen_ai.operation.name": "chat"}), "events": events}
    details = {"gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]'}
    details["gen_ai.output.messages"] = '[{"role": "assistant", "parts": [{"type": "text", "content": "ho"}]}]'
    event = {"name": "gen_ai.client.inference.operation.details", "attributes": pairs(details)}
    new = {**span(1, {"gen_ai.operation.name": "chat"}), "events": [event]}
    for one in (old, new):
        (tmp_path / "e.jsonl").write_text(json.dumps(request(one)))
        assert [m.text for m in recall(imported(tmp_path / "e.jsonl")).messages] == ["hi", "ho"]


def test_reasoning_that_later_prompts_drop_is_kept_and_the_last_result_is_taken_from_its_tool(tmp_path):
    thought = {"role": "assistant", "content": "", "reasoning_content": "dear", "tool_calls": [CALL]}
    first = conventions(ASKED, CALLED)
    first["gen_ai.output.messages"] = json.dumps(
        [{"role": "assistant", "parts": [{"type": "reasoning", "content": "dear"}, {"type": "text", "content": "ok"}]}]
    )
    more = [*ASKED, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go"}]
    second = conventions(more, thought)
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "price", "gen_ai.tool.call.id": "c1"}
    tool["gen_ai.tool.call.result"] = "90"
    spans = [span(1, first, 1), span(2, second, 2), span(3, tool, 3)]
    (tmp_path / "r.jsonl").write_text(json.dumps(request(*spans)))
    it = recall(imported(tmp_path / "r.jsonl"))
    assert [m.role for m in it.messages] == ["system", "user", "assistant", "user", "assistant", "tool"]
    assert it.messages[2] == Message("assistant", "ok", "dear")
    assert it.messages[-1] == Message("tool", "90", call_id="c1")
    assert not it.others


def test_each_trace_is_a_run_and_what_holds_no_messages_says_so(tmp_path):
    one = span(1, phoenix([{"role": "user", "content": "a"}], {"role": "assistant", "content": "b"}), 5)
    two = span(2, phoenix([{"role": "user", "content": "c"}], {"role": "assistant", "content": "d"}), 1, "cd" * 16)
    (tmp_path / "two.jsonl").write_text(json.dumps(request(one, two)))
    store = MemoryStore()
    texts = [recall(Run(store, name)).messages[0].text for name in import_file(store, tmp_path / "two.jsonl")]
    assert texts == ["c", "a"]  # by time
    empty = span(3, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, trace="ef" * 16)
    (tmp_path / "empty.jsonl").write_text(json.dumps(request(one, empty)))
    with pytest.raises(BadRecord, match="1 replies hold no messages") as caught:
        import_file(MemoryStore(), tmp_path / "empty.jsonl")
    assert "CAPTURE_MESSAGE_CONTENT" in caught.value.remedy
    assert len(import_file(MemoryStore(), tmp_path / "empty.jsonl", skip_bad=True)) == 1
    (tmp_path / "http.jsonl").write_text(json.dumps(request(span(4, {"http.route": "/"}))))
    with pytest.raises(BadRecord, match="holds no run"):
        import_file(MemoryStore(), tmp_path / "http.jsonl")


DEEP = "[" * 250 + "]" * 250


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"gen_ai.input.messages": DEEP}, "nested more than 200 deep"),
        ({"gen_ai.input.messages": '{"role": "user"}'}, "no list of objects"),
        ({"gen_ai.input.messages": "not json"}, "Expecting value"),
        ({"gen_ai.input.messages": "[1]"}, "no list of objects"),
        ({"gen_ai.input.messages": '[{"parts": []}]'}, "without a role"),
        ({"gen_ai.input.messages": '[{"role": "user", "clew": {"calls": 7}}]'}, "field clew"),
        ({"gen_ai.input.messages": '[{"role": "user", "clew": [1]}]'}, "field clew"),
        ({"gen_ai.input.messages": '[{"role": "user", "clew": {"text": 7}}]'}, "field clew"),
        ({"langfuse.observation.input": DEEP}, "nested more than 200 deep"),
    ],
)
def test_hostile_messages_are_refused_in_a_sentence(tmp_path, attributes, why):
    (tmp_path / "h.jsonl").write_text(json.dumps(request(span(1, {"gen_ai.operation.name": "chat", **attributes}))))
    store = MemoryStore()
    with pytest.raises(BadRecord, match=why) as caught:
        import_file(store, tmp_path / "h.jsonl")
    assert str(caught.value).startswith("h.jsonl: trace abab")
    assert len(str(caught.value)) < 500
    assert caught.value.remedy
    assert store.run_ids() == []


@pytest.mark.parametrize(
    "raw",
    [
        {"traceId": "zz" * 16},
        {"traceId": "ab"},
        {"spanId": 7},
        {"attributes": 7},
        {"attributes": [7, {"key": 3}, {"key": "gen_ai.operation.name", "value": 4}]},
        {"startTimeUnixNano": "never", "endTimeUnixNano": -4},
        {"startTimeUnixNano": "9" * 4000},
        {"parentSpanId": ["x"], "status": "bad", "events": {"a": 1}},
        {"attributes": pairs({"gen_ai.usage.input_tokens": 1 << 60, "gen_ai.usage.cost": -4.0})},
    ],
)
def test_a_span_of_wrong_types_is_refused_or_harmless(tmp_path, raw):
    good = span(1, phoenix([{"role": "user", "content": "a"}], {"role": "assistant", "content": "b"}))
    bad = {**span(2, phoenix([{"role": "user", "content": "c"}], {"role": "assistant", "content": "d"})), **raw}
    (tmp_path / "w.jsonl").write_text(json.dumps(request(good)) + "\n" + json.dumps(request(bad)))
    found = list[BadRecord]()
    store = MemoryStore()
    runs = import_file(store, tmp_path / "w.jsonl", skip_bad=True, on_bad=found.append)
    assert runs
    assert all(str(error).startswith("w.jsonl:2: ") and error.remedy for error in found)
    assert not store.verify()


def test_a_broken_line_refuses_the_file_unless_it_may_be_skipped(tmp_path):
    good = span(1, phoenix([{"role": "user", "content": "a"}], {"role": "assistant", "content": "b"}))
    (tmp_path / "b.jsonl").write_text(json.dumps(request(good)) + '\n{"resourceSpans": [\n')
    with pytest.raises(BadRecord, match=r"b\.jsonl:2: "):
        import_file(MemoryStore(), tmp_path / "b.jsonl")
    assert len(import_file(MemoryStore(), tmp_path / "b.jsonl", skip_bad=True)) == 1


def test_a_file_of_too_many_spans(tmp_path, monkeypatch):
    monkeypatch.setattr("clew.exchange.telemetry.file.SPANS", 3)
    spans = [
        span(i, phoenix([{"role": "user", "content": "a"}], {"role": "assistant", "content": "b"})) for i in range(4)
    ]
    (tmp_path / "many.jsonl").write_text(json.dumps(request(*spans)))
    with pytest.raises(BadRecord, match="over 3 spans"):
        import_file(MemoryStore(), tmp_path / "many.jsonl")


FAILS = {"code": 2, "message": "429: quota \x1b[31mspent" + "!" * 5000}


def test_a_trace_whose_model_failed_ends_with_a_model_error(tmp_path):
    spans = [
        span(1, conventions(ASKED, None)) | {"status": {"code": 2, "message": "503"}},
        span(2, conventions(ASKED, CALLED), 1),  # asked again: no failure of the run
        span(3, conventions([*ASKED, CALLED, PRICE], None), 2) | {"status": FAILS},
    ]
    for name, some, replies in (("one.jsonl", spans[:1], 0), ("two.jsonl", spans[:2], 1), ("all.jsonl", spans, 1)):
        (tmp_path / name).write_text(json.dumps(request(*some)) + "\n")
        run = imported(tmp_path / name)
        assert sum(call.kind == "ask" for call in run.calls) == replies
        failed = name != "two.jsonl"
        assert run.stop == (StopReason.MODEL_ERROR if failed else StopReason.RETURNED)
        assert (run.calls[-1].error != "") == failed
        runner = Runner.of(run.store, run, model=Scripted(["here", "here"]))
        assert runner.replay(run).calls == len(run.calls)
        if failed:
            (fork,) = runner.fork(run, len(run.calls) - 1)
            assert (fork.reply(len(run.calls) - 1).message.text, fork.stop) == ("here", StopReason.RETURNED)
        export(run.store, [run], tmp_path / "back.otlp.jsonl")
        back = imported(tmp_path / "back.otlp.jsonl")
        assert (back.stop, back.calls[-1].error) == (run.stop, run.calls[-1].error)
        same(recall(run), recall(back))
    assert run.calls[-1].error.startswith("429: quota \x1b[31mspent!")
    assert len(run.calls[-1].error) == 2000
    for full in (True, False):
        shown = str(tree(run, full=full))
        assert "429: quota" in shown
        assert "\x1b" not in shown


def test_a_trace_whose_agent_failed_ends_with_an_agent_error(tmp_path):
    raised = {"name": "exception", "attributes": pairs({"exception.type": "KeyError", "exception.message": "'to'"})}
    root = span(9, {"gen_ai.operation.name": "invoke_agent"}) | {"status": {"code": 2}, "events": [raised]}
    (tmp_path / "a.jsonl").write_text(json.dumps(request(root, span(1, conventions(ASKED, CALLED), 1))) + "\n")
    run = imported(tmp_path / "a.jsonl")
    assert (run.stop, run.calls[-1].error) == (StopReason.AGENT_ERROR, "KeyError: 'to'")
    assert Runner.of(run.store, run).replay(run).calls == len(run.calls)


def test_tokens_that_nobody_counted_are_not_written_as_0(tmp_path):
    run = told(TOLD._replace(meters=(), other_meters=()))
    export(run.store, [run], tmp_path / "a.otlp.jsonl")
    assert "usage" not in (tmp_path / "a.otlp.jsonl").read_text()
    export(run.store, [run], tmp_path / "a.json", "atif")
    assert list(json.loads((tmp_path / "a.json").read_text())["final_metrics"]) == ["total_steps"]
    assert "tokens not counted" in headline(run)
    half = told(TOLD._replace(meters=(Meter(Usage(5)),), others=(), other_meters=()))
    (one,) = [s.attributes for s in spans_of_run(half) if "gen_ai.usage.input_tokens" in s.attributes]
    assert [name for name in one if "usage" in name or "token_count" in name] == [
        "gen_ai.usage.input_tokens",
        "llm.token_count.prompt",
    ]

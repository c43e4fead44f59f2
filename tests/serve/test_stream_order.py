"""Streams through the gateway: live and replayed, a program puts together what the endpoint said, in its order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.responses import Response

from tests.models.server import serving
from tests.serve.foreign import asks, before, collected, only, sse, using

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}],
           "encrypted_content": "sealed"}  # fmt: skip
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}  # fmt: skip


def responses() -> bytes:
    output = [THOUGHT, said("let me add"), CALL]
    events: list[Any] = [{"type": "response.created", "response": {"id": "r", "model": "m"}}]
    for index, item in enumerate(output):
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        if item["type"] == "message":
            place = {"output_index": index, "content_index": 0, "item_id": "msg_1"}
            events += [{"type": "response.output_text.delta", **place, "delta": w} for w in ("let ", "me ", "add")]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    done = {"id": "r", "model": "m", "status": "completed", "output": output}
    return sse(*events, {"type": "response.completed", "response": done}, named=True)


def messages() -> bytes:
    events: list[Any] = [{"type": "message_start", "message": {"model": "m", "role": "assistant", "content": []}}]
    blocks = [
        ({"type": "thinking", "thinking": ""}, [{"type": "thinking_delta", "thinking": "hm"},
                                                {"type": "signature_delta", "signature": "sealed"}]),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": w} for w in ("let ", "me ")]),
        ({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}, []),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "add"}]),
        ({"type": "tool_use", "id": "c1", "name": "add", "input": {}},
         [{"type": "input_json_delta", "partial_json": '{"a": 1}'}]),
    ]  # fmt: skip
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    return sse(*events, named=True)


BODIES: dict[str, tuple[str, Any, Any]] = {
    "responses": ("/responses", {"model": "m", "input": "hi", "stream": True}, responses),
    "messages": ("/messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}],
                               "stream": True}, messages),
}  # fmt: skip


@pytest.mark.parametrize("dialect", list(BODIES))
def test_what_stands_before_the_text_is_sent_before_it_live_as_replayed(dialect: str) -> None:
    path, body, answer = BODIES[dialect]
    with serving() as peer:
        peer.answer = lambda body, count: Response(answer(), media_type="text/event-stream")
        it = before(peer)
        live, events = collected(dialect, using(it, lambda c: c.post(f"/r/one/v1{path}", json=body)).text)
        run = only(it)

        async def again(client: Any) -> str:
            it.replay(run.id)
            return str((await client.post(f"/r/{run.id}/v1{path}", json=body)).text)

        replayed, repeated = collected(dialect, using(it, again))
        assert len(peer.bodies) == 1
    true, first = collected(dialect, answer().decode())
    recorded = it.store.node(asks(run)[0].node_out).message
    assert live.message == replayed.message == true.message == recorded
    assert order(events) == order(repeated) == order(first)
    pieces = [e for e in events if "text" in str(e.get("delta", "") if dialect == "messages" else e["type"])]
    assert len(pieces) > 1, "the text came in pieces"
    assert [json.dumps(e) for e in settled(events)] == [json.dumps(e) for e in settled(repeated)]


def order(events: list[Any]) -> list[str]:
    """The kinds of a reply's parts as they were begun."""
    begun = [
        e.get("item") or e.get("content_block") for e in events if e["type"].endswith(("item.added", "block_start"))
    ]
    return [part["type"] for part in begun]


def settled(events: list[Any]) -> list[Any]:
    """The parts of a reply as its events give them whole: what a client sends back."""
    return [e["item"] for e in events if e["type"] == "response.output_item.done"]

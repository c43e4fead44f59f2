"""What a program sends reaches its endpoint as it came, and the record can say it again to the letter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew.core.records import Cursor
from clew.harness import Runner
from tests.models.server import chat, serving
from tests.serve.foreign import Client, asks, before, bodies, notes, only, using

OURS = {"logprobs", "return_token_ids", "seed"}  # what the gateway asks for besides, of chat endpoints
MARK = {"cache_control": {"type": "ephemeral"}}
ADD = {"type": "object", "properties": {"a": {"type": "integer"}}}
RESPONSES = {
    "model": "m", "instructions": "be brief", "input": [{"role": "user", "content": "hi"}], "store": False,
    "tools": [
        {"type": "function", "name": "add", "strict": True, "parameters": ADD},
        {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read", "parameters": ADD}]},
        {"type": "web_search", "external_web_access": False},
    ],
    "prompt_cache_key": "k", "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low"},
}  # fmt: skip
MESSAGES = {
    "model": "m", "max_tokens": 9, "context_management": {"edits": [{"type": "clear_thinking"}]},
    "system": [{"type": "text", "text": "one"}, {"type": "text", "text": "two", **MARK},
               {"type": "text", "text": "three", **MARK}],
    "tools": [{"name": "add", "input_schema": ADD, **MARK}, {"type": "web_search_20260101", "name": "web_search"}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **MARK}]}],
}  # fmt: skip
CHAT = {
    "model": "m", "messages": [{"role": "developer", "content": "brief"}, {"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "add", "strict": True, "parameters": ADD}},
              {"type": "custom", "custom": {"name": "shell", "format": {"type": "text"}}}],
    "max_completion_tokens": 5, "parallel_tool_calls": False, "unheard_of": {"deep": [1, None]},
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/chat/completions": chat("hello"),
    "/responses": {"model": "m", "output": [{"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "hello", "annotations": []}]}]},
    "/messages": {"model": "m", "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn"},
}  # fmt: skip
SENT = [("/chat/completions", CHAT), ("/responses", RESPONSES), ("/messages", MESSAGES)]


@pytest.mark.parametrize(("path", "body"), SENT)
def test_what_the_gateway_does_not_know_is_passed_on_and_kept(path: str, body: dict[str, Any]) -> None:
    headers = {"anthropic-beta": "context-management", "x-own": "1", "authorization": "Bearer clew:one",
               "x-goog-api-key": "secret", "cookie": "a=b"}  # fmt: skip
    with serving() as peer:
        peer.say(ANSWERS[path])
        it = before(peer)
        got = using(it, lambda c: c.post(f"/r/one/v1{path}?beta=true&api_key=secret", json=body, headers=headers))
        assert got.status_code == 200, got.text
        (arrived,), (sent,) = peer.bodies, peer.headers
    assert {k: v for k, v in arrived.items() if k not in OURS - body.keys()} == body
    assert sent["anthropic-beta"] == "context-management"
    assert sent["x-own"] == "1"
    credential = sent.get("x-api-key") or sent["authorization"].removeprefix("Bearer ")
    assert credential == "upstream-key"
    assert not {"x-goog-api-key", "cookie"} & sent.keys()
    run = only(it)
    assert bodies(run) == [body]
    record = json.dumps([call._asdict() for call in run.calls], default=str)
    assert "context-management" in record
    assert "secret" not in record
    assert Runner.of(it.store, run).replay(run).calls == len(run.calls)


@pytest.mark.parametrize(("path", "body"), SENT)
def test_a_fork_sends_its_first_request_as_the_program_wrote_it(path: str, body: dict[str, Any]) -> None:
    with serving() as peer:
        peer.say(ANSWERS[path])
        it = before(peer)
        using(it, lambda c: c.post(f"/r/one/v1{path}", json=body, headers={"anthropic-beta": "x"}))
        run = only(it)

        async def forked(client: Client) -> int:
            (session,) = it.fork(Cursor(run.id, asks(run)[0].seq))
            now = {"anthropic-beta": "y"}  # what the program sends now, not what it sent when it was recorded
            return (await client.post(f"/r/{session.name}/v1{path}", json=body, headers=now)).status_code

        assert using(it, forked) == 200
        first, second = peer.bodies
        assert {k: v for k, v in second.items() if k != "seed"} == {k: v for k, v in first.items() if k != "seed"}
        assert [headers["anthropic-beta"] for headers in peer.headers] == ["x", "y"]


def test_arguments_in_another_spelling_are_the_same_conversation() -> None:
    function = {"name": "weather", "arguments": '{"city": "Oslo", "days": 2}'}
    call = {"id": "c1", "type": "function", "function": function}
    with serving() as peer:
        peer.say(chat(None, tool_calls=[call]), chat("cold"))  # type: ignore[arg-type]
        it = before(peer)

        async def two(client: Client) -> Any:
            messages: list[Any] = [{"role": "user", "content": "how is it in Oslo?"}]
            got = await client.post("/r/one/v1/chat/completions", json={"model": "m", "messages": messages})
            reply = got.json()["choices"][0]["message"]
            reply["tool_calls"][0]["function"]["arguments"] = '{"city":"Oslo","days":2}'
            messages += [reply, {"role": "tool", "tool_call_id": "c1", "content": "4 degrees"}]
            await client.post("/r/one/v1/chat/completions", json={"model": "m", "messages": messages})
            return messages

        told = using(it, two)
        assert peer.bodies[1]["messages"] == told, "upstream gets the program's spelling"
    run = only(it)
    assert {c.conversation for c in asks(run)} == {0}
    assert notes(run) == []
    assert bodies(run)[1]["messages"] == told


def test_other_arguments_are_another_conversation() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"days": 1}'}}
    with serving() as peer:
        peer.say(chat(None, tool_calls=[call]), chat("cold"))  # type: ignore[arg-type]
        it = before(peer)

        async def two(client: Client) -> None:
            messages: list[Any] = [{"role": "user", "content": "how is it?"}]
            got = await client.post("/r/one/v1/chat/completions", json={"model": "m", "messages": messages})
            reply = got.json()["choices"][0]["message"]
            reply["tool_calls"][0]["function"]["arguments"] = '{"days": true}'
            messages += [reply, {"role": "tool", "tool_call_id": "c1", "content": "4 degrees"}]
            await client.post("/r/one/v1/chat/completions", json={"model": "m", "messages": messages})

        using(it, two)
    assert [c.conversation for c in asks(only(it))] == [0, 1]


def claude(turns: int) -> list[dict[str, Any]]:
    """Requests as Claude Code sends them: the cache mark is always on the last message."""
    history: list[Any] = []
    out = []
    for turn in range(turns):
        history.append(("user", f"step {turn}"))
        last = len(history) - 1
        told = [{"role": role, "content": [{"type": "text", "text": text, **(MARK if i == last else {})}]}
                for i, (role, text) in enumerate(history)]  # fmt: skip
        system = [{"type": "text", "text": "you", **MARK}]
        who = {"user_id": f"session-{turn}"}
        out.append({"model": "m", "max_tokens": 9, "system": system, "messages": told, "metadata": who})
        history.append(("assistant", "hello"))
    return out


def test_a_cache_mark_that_moves_is_no_drift() -> None:
    sent = claude(5)
    with serving() as peer:
        peer.say(ANSWERS["/messages"])
        it = before(peer)

        async def all_of_them(client: Client) -> None:
            for body in sent:
                assert (await client.post("/r/one/v1/messages", json=body)).status_code == 200

        using(it, all_of_them)
        assert peer.bodies == sent
        run = only(it)
        assert {c.conversation for c in asks(run)} == {0}
        assert notes(run) == []
        assert bodies(run) == sent
        asked = len(peer.bodies)

        async def again(client: Client) -> None:
            it.replay(run.id)
            for body in sent:  # who asks is drawn anew
                other = body | {"metadata": {"user_id": "another session"}}
                assert (await client.post(f"/r/{run.id}/v1/messages", json=other)).status_code == 200

        using(it, again)
        assert len(peer.bodies) == asked
    assert not it.store.verify()


def test_settings_that_change_between_requests_are_no_new_conversation() -> None:
    with serving() as peer:
        it = before(peer)

        async def two(client: Client) -> None:
            messages: list[Any] = [{"role": "user", "content": "hi"}]
            for key, choice in (("a", "auto"), ("b", "none")):
                body = {"model": "m", "messages": messages, "prompt_cache_key": key, "tool_choice": choice}
                reply = (await client.post("/r/one/v1/chat/completions", json=body)).json()["choices"][0]["message"]
                messages += [reply, {"role": "user", "content": "more"}]

        using(it, two)
        assert [b["tool_choice"] for b in peer.bodies] == ["auto", "none"]
    assert {c.conversation for c in asks(only(it))} == {0}


@pytest.mark.parametrize("base", ["/r/one/v1", "/r/one", "/v1", ""])
@pytest.mark.parametrize(("path", "body"), SENT)
def test_a_base_url_with_and_without_v1(base: str, path: str, body: dict[str, Any]) -> None:
    with serving() as peer:
        peer.say(ANSWERS[path])
        it = before(peer)
        assert using(it, lambda c: c.post(base + path, json=body)).status_code == 200
        assert peer.paths == [f"/v1{path}"]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("messages", [{"role": "user", "content": "x" * 90 + " on 3 May"}], 'messages[0].text: …"'),
        ("temperature", 0.5, "temperature: 0.5 instead of 1.0"),
        ("tools", [], "tools"),
        ("reasoning_effort", "high", 'reasoning_effort: "high" instead of "low"'),
        ("model", "other", 'model: "chat:other" instead of "chat:m"'),
    ],
)
def test_a_divergence_names_the_field_and_both_values(field: str, value: Any, told: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 90 + " on 2 May"}], "reasoning_effort": "low",
            "tools": CHAT["tools"]}  # fmt: skip
    with serving() as peer:
        it = before(peer)
        using(it, lambda c: c.post("/r/one/v1/chat/completions", json=body))
        run = only(it)

        async def other(client: Client) -> Any:
            it.replay(run.id)
            return await client.post(f"/r/{run.id}/v1/chat/completions", json=body | {field: value})

        got = using(it, other)
    assert got.status_code == 404
    assert told in got.json()["error"]["message"]
    if field == "messages":
        assert "on 3 May" in got.json()["error"]["message"]
        assert "on 2 May" in got.json()["error"]["message"]


@pytest.mark.parametrize(("path", "body"), SENT)
def test_every_spelling_comes_back_from_the_record(path: str, body: dict[str, Any]) -> None:
    """Long conversations of all three dialects, whose clients write what they were told in their own way."""
    field, sent = "input" if path == "/responses" else "messages", list[Any]()
    with serving() as peer:
        peer.say(ANSWERS[path])
        it = before(peer)

        async def talk(client: Client) -> None:
            told = list(body[field])
            for turn in range(4):
                sent.append(body | {field: list(told)})
                got = await client.post(f"/r/one/v1{path}", json=sent[-1])
                assert got.status_code == 200, got.text
                kind = "output_text" if path == "/responses" else "text"
                told.append({"role": "assistant", "content": [{"type": kind, "text": "hello"}]})
                told.append({"role": "user", "content": f"more {turn}"})

        using(it, talk)
    run = only(it)
    assert bodies(run) == sent
    assert {c.conversation for c in asks(run)} == {0}
    assert notes(run) == []

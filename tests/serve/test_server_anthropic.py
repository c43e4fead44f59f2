"""Anthropic's official client, unmodified, against a server on a socket: messages, streams, tools, counts, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clew.serve.gateway.recorder import Recorder
from clew.serve.openai.server import Server
from clew.store import open_store
from tests.serve.serving import LOOK, serving, talker, using

pytest.importorskip("prometheus_client")
SAME: Any = {"model": "m", "max_tokens": 24, "messages": [{"role": "user", "content": "hi"}]}
TOOL: Any = {"name": "look", "description": "looks", "input_schema": LOOK["parameters"]}
SEED: Any = {"extra_body": {"seed": 5}}


@pytest.fixture(scope="module")
def model() -> Any:
    return talker()


@pytest.fixture(scope="module")
def client(model: Any) -> Iterator[Any]:
    anthropic = pytest.importorskip("anthropic", reason="did not run: anthropic is not installed")
    with serving(Server(model, names=("m",), keys=("secret-key",))) as base:
        yield anthropic.Anthropic(base_url=base, api_key="secret-key", max_retries=0)


def test_a_stream_says_what_the_whole_answer_says(client: Any) -> None:
    whole = client.messages.create(**SAME, **SEED, system="Be brief.", stop_sequences=["zzz"])
    with client.messages.stream(**SAME, **SEED, system="Be brief.", stop_sequences=["zzz"]) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    said = "".join(block.text for block in whole.content if block.type == "text")
    assert text == said
    assert (last.stop_reason, last.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert whole.usage.output_tokens == 24
    assert whole.stop_reason == "max_tokens"
    assert (whole.role, whole.type, whole.id[:4]) == ("assistant", "message", "msg_")


@pytest.mark.parametrize("kind", [{"type": "tool", "name": "look"}, {"type": "any"}])
def test_a_tool_that_must_be_called_is_called(client: Any, kind: Any) -> None:
    choice = kind | {"disable_parallel_tool_use": True}
    asked = {**SAME, "max_tokens": 120, "tools": [TOOL], "tool_choice": choice}
    whole = client.messages.create(**asked, **SEED)
    [call] = [block for block in whole.content if block.type == "tool_use"]
    assert (call.name, whole.stop_reason) == ("look", "tool_use")
    assert call.input["at"] in ("left", "right")
    with client.messages.stream(**asked, **SEED) as stream:
        again = stream.get_final_message()
    assert [b.input for b in again.content if b.type == "tool_use"] == [call.input]
    answered = [
        *SAME["messages"],
        {"role": "assistant", "content": [{"type": "tool_use", "id": call.id, "name": "look", "input": call.input}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "a door"}]},
    ]
    more = client.messages.create(**{**SAME, "messages": answered, "tools": [TOOL]}, **SEED)
    assert more.usage.input_tokens + (more.usage.cache_read_input_tokens or 0) > whole.usage.input_tokens


def test_tokens_are_counted_as_a_request_has_them(client: Any) -> None:
    counted = client.messages.count_tokens(model="m", messages=SAME["messages"], system="Be brief.", tools=[TOOL])
    used = client.messages.create(**SAME, system="Be brief.", tools=[TOOL], **SEED).usage
    assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


def test_errors_are_the_clients_own(client: Any) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError, match="no model is called 'other' here"):
        client.messages.create(**{**SAME, "model": "other"})
    with pytest.raises(anthropic.BadRequestError, match="container is not supported"):
        client.messages.create(**SAME, extra_body={"container": "c"})
    with pytest.raises(anthropic.BadRequestError, match="a tool that is no function"):
        client.messages.create(**SAME, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    other = anthropic.Anthropic(base_url=str(client.base_url), api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        other.messages.create(**SAME)


def test_answers_are_recorded_and_a_turn_goes_on_with_its_run(model: Any) -> None:
    store = open_store(":memory:")
    server = Server(model, names=("m",), recorder=Recorder(store, model))

    async def two(http: Any) -> list[Any]:
        first = await http.post("/v1/messages", json={**SAME, "seed": 3})
        told = first.json()["content"]
        turns = [*SAME["messages"], {"role": "assistant", "content": told}, {"role": "user", "content": "and"}]
        return [first, await http.post("/v1/messages", json={**SAME, "messages": turns, "seed": 4})]

    first, second = using(server, two)
    assert (first.status_code, second.status_code) == (200, 200), second.text
    assert first.headers["x-clew-run"] == second.headers["x-clew-run"]
    run = store.run(first.headers["x-clew-run"])
    assert [call.kind for call in run.calls].count("ask") == 2
    assert list(store.verify()) == []

"""The table of docs/serve.md, row by row: what it says of a parameter is what a server does with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest

from clew.serve.gateway.recorder import Recorder
from clew.serve.openai.parameters import RULES
from clew.serve.openai.server import Server
from clew.store import open_store
from tests.serve.serving import HI, LOOK, talker, using

pytest.importorskip("prometheus_client")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "serve.md"
ENDPOINTS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses"}
ENDPOINTS["messages"] = "/v1/messages"
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 1}, "strict": True}}
TOOL = {"type": "function", "function": LOOK}
ANTHROPIC = {"name": "look", "description": "looks", "input_schema": LOOK["parameters"]}
FULL = {
    "chat": HI | {"logprobs": True, "tools": [TOOL]},
    "completions": {"model": "m", "prompt": "hi", "max_tokens": 4, "seed": 3},
    "responses": {"model": "m", "input": "hi", "max_output_tokens": 4, "tools": [{"type": "function", **LOOK}]},
    "messages": {"model": "m", "messages": HI["messages"], "max_tokens": 4, "tools": [ANTHROPIC]},
}
VALUES: dict[str, Any] = {  # a value that is not neutral
    "model": "m", "messages": HI["messages"], "prompt": [1, 2], "input": "so", "instructions": "be so", "max_tokens": 3,
    "max_completion_tokens": 3, "max_output_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "n": 2, "seed": 1,
    "stop": ["x"], "stream": True, "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 1,
    "include": ["message.output_text.logprobs"], "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True,
    "response_format": FORM, "text": {"format": {"type": "text"}}, "structured_outputs": {"regex": "a"},
    "guided_json": {"const": 1}, "guided_regex": "a", "guided_choice": ["a"], "guided_grammar": 'start: "a"',
    "echo": True, "prompt_logprobs": 1, "return_token_ids": True, "return_tokens_as_token_ids": True,
    "continue_final_message": True, "metadata": {"a": "b"}, "presence_penalty": 0.5, "frequency_penalty": 0.5,
    "repetition_penalty": 1.1, "logit_bias": {"3": 5}, "min_p": 0.1, "min_tokens": 2, "ignore_eos": True,
    "allowed_token_ids": [1, 2, 3],
    "use_beam_search": True, "bad_words": ["no"], "add_generation_prompt": "no", "modalities": ["audio"], "best_of": 2,
    "suffix": "end", "truncation": "auto", "background": True, "functions": [LOOK], "function_call": "auto",
    "chat_template_kwargs": {"thinking": False}, "skip_special_tokens": True, "add_special_tokens": True,
    "system": "be so", "stop_sequences": ["x"], "policy": {}, "request_id": "r1", "return_weight_versions": True,
}  # fmt: skip


def table() -> dict[tuple[str, str], str]:
    """What the page says of each (endpoint, parameter)."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|(.*)\|(.*)\|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    return {
        (e, row[0]): cell.strip() for row in rows for e, cell in zip(ENDPOINTS, row[1:], strict=True) if cell.strip()
    }


def test_the_page_lists_every_rule_and_no_other() -> None:
    assert {k: v.split()[0] for k, v in table().items()} == {(e, n): r.what for e in RULES for n, r in RULES[e].items()}


def test_a_server_does_what_the_page_says() -> None:
    server = Server(talker(), names=("m",))

    async def all_of_them(client: httpx.AsyncClient) -> list[str]:
        wrong = []
        for (endpoint, name), said in table().items():
            if name == "previous_response_id":
                continue  # needs a record: below
            value = VALUES.get(name, {"a": 1})
            if (endpoint, name) == ("completions", "logprobs"):
                value = 1
            if endpoint == "messages" and name in ("tools", "tool_choice"):
                value = [ANTHROPIC] if name == "tools" else {"type": "auto"}
            if (endpoint, name) == ("responses", "tools"):
                value = FULL["responses"]["tools"]
            if name == "stop_token_ids":
                value = sorted(server.model.renderer.stop)  # type: ignore[union-attr]
            body = FULL[endpoint] | {name: value}
            got = await client.post(ENDPOINTS[endpoint], json=body)
            warned = name in got.headers.get("x-clew-warning", "")
            did = "ignored" if warned else "supported" if got.status_code == 200 else "refused"
            if did != said or (did == "refused" and got.json()["error"]["param"] != name):
                wrong.append(f"{endpoint} {name}: {did}, {got.text[:200]}")
            for neutral in (None, *RULES[endpoint][name].neutral) if said != "supported" else ():
                got = await client.post(ENDPOINTS[endpoint], json=FULL[endpoint] | {name: neutral})
                if got.status_code != 200 or "x-clew-warning" in got.headers:
                    wrong.append(f"{endpoint} {name} {neutral}: {got.status_code} {got.headers} {got.text[:200]}")
        return wrong

    assert using(server, all_of_them) == []


def test_earlier_responses_are_gone_on_with_where_they_are_recorded() -> None:
    model = talker()
    server = Server(model, names=("m",), recorder=Recorder(open_store(":memory:"), model))

    async def two(client: httpx.AsyncClient) -> list[httpx.Response]:
        first = await client.post("/v1/responses", json=FULL["responses"] | {"tools": []})
        more = {"model": "m", "input": "and", "previous_response_id": first.json()["id"], "max_output_tokens": 2}
        return [first, await client.post("/v1/responses", json=more)]

    first, second = using(server, two)
    assert first.headers["x-clew-run"] == second.headers["x-clew-run"]
    assert second.json()["usage"]["input_tokens"] > first.json()["usage"]["input_tokens"]


def test_every_parameter_that_the_official_client_can_send_has_a_rule() -> None:
    pytest.importorskip("openai")
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase as Chat
    from openai.types.completion_create_params import CompletionCreateParamsBase as Completions
    from openai.types.responses.response_create_params import ResponseCreateParamsBase as Responses

    for endpoint, kind in (("chat", Chat), ("completions", Completions), ("responses", Responses)):
        assert set(get_type_hints(kind)) - set(RULES[endpoint]) == set(), endpoint

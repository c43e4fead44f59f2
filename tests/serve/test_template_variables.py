"""``chat_template_kwargs``: the variables of one request render its prompt and read its reply, and no other's."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

pytest.importorskip("torch")  # the frameworks have an environment without it

from clew.models.local.templated import KEPT, Templated
from clew.models.rendering import ChatTemplateRenderer
from clew.serve.gateway.recorder import Recorder
from clew.serve.openai.server import Server
from clew.store import open_store
from tests.engine.test_rendering import local, tokenizer
from tests.serve.serving import CHAT, HI, using

OPENS = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{%- else -%}
{{ '<think>\n' }}{%- endif %}{%- endif %}"""
QUIET = {"enable_thinking": False}


def thinker(**template: Any) -> Any:
    """A model whose generation prompt opens a thought unless it is told not to."""
    return local(ChatTemplateRenderer(tokenizer(OPENS), (), template))


async def said(client: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    found = (await client.post(CHAT, json={**HI, **more})).json()
    return {**found["choices"][0]["message"], "prompt": found["usage"]["prompt_tokens"]}


async def streamed(client: httpx.AsyncClient, **more: Any) -> tuple[str, str]:
    text, thought = "", ""
    async with client.stream("POST", CHAT, json={**HI, **more, "stream": True}) as reply:
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    text += choice["delta"].get("content") or ""
                    thought += choice["delta"].get("reasoning_content") or choice["delta"].get("reasoning") or ""
    return text, thought


def test_a_request_with_variables_is_answered_as_by_a_server_that_has_them() -> None:
    async def work(client: httpx.AsyncClient) -> list[Any]:
        return [
            await said(client), await said(client, chat_template_kwargs=QUIET), await said(client),
            await streamed(client), await streamed(client, chat_template_kwargs=QUIET),
        ]  # fmt: skip

    plain, quiet, again, plain_pieces, quiet_pieces = using(Server(thinker(), names=("m",)), work)

    async def alone(client: httpx.AsyncClient) -> Any:
        return await said(client)

    always = using(Server(thinker(**QUIET), names=("m",)), alone)
    assert quiet == always
    assert plain == again
    assert quiet["prompt"] > plain["prompt"]
    assert not plain["content"], "what follows an open thought is thought"
    assert quiet["content"]
    assert quiet_pieces == (quiet["content"], "")
    assert plain_pieces[0] == ""
    assert plain_pieces[1]


def test_tokens_are_told_under_the_variables() -> None:
    async def work(client: httpx.AsyncClient) -> list[list[int]]:
        bodies = ({}, {"chat_template_kwargs": QUIET})
        return [
            (await client.post("/tokenize", json={"messages": HI["messages"], **b})).json()["tokens"] for b in bodies
        ]

    model = thinker()
    plain, quiet = using(Server(model, names=("m",)), work)
    assert model.renderer.decode(plain).endswith("<think>\n")
    assert model.renderer.decode(quiet).endswith("</think>\n\n")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"chat_template": "{% for i in range(10**9) %}{% endfor %}"}, "'chat_template' is not free"),
        ({"tokenize": True}, "'tokenize' is not free"), ({"documents": []}, "'documents' is not free"),
        ([1], "no object"), ("on", "no object"), ({"a": "x" * 5000}, "no object of at most 4096"),
    ],
)  # fmt: skip
def test_what_is_no_variable_is_refused(given: Any, told: str) -> None:
    async def work(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(CHAT, json=HI | {"chat_template_kwargs": given})

    found = using(Server(thinker(), names=("m",)), work)
    assert (found.status_code, found.json()["error"]["param"]) == (400, "chat_template_kwargs")
    assert told in found.json()["error"]["message"]


def test_a_model_without_a_template_refuses_them() -> None:
    from clew.models.fakes import Echo
    from clew.models.local import small

    async def work(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(CHAT, json=HI | {"chat_template_kwargs": QUIET})

    for model in (Echo(), small(["hi"], d=32, context=64)):
        found = using(Server(model, names=("m",)), work)
        assert (found.status_code, found.json()["error"]["param"]) == (400, "chat_template_kwargs")


def test_a_recorder_leaves_them_out_and_says_so() -> None:
    model = thinker()

    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.post(CHAT, json=HI | more) for more in ({}, {"chat_template_kwargs": QUIET})]

    server = Server(model, names=("m",), recorder=Recorder(open_store(":memory:"), model))
    plain, quiet = using(server, work)
    assert "x-clew-run" in plain.headers
    assert "x-clew-run" not in quiet.headers
    assert quiet.headers["x-clew-warning"] == "not recorded: its chat template has other variables"


def test_few_renderings_are_kept() -> None:
    model = thinker()
    for n in range(3 * KEPT):
        Templated(model, {"n": n})
    assert len(model.renderings) == KEPT
    assert Templated(model, {"n": 3 * KEPT - 1}).renderer is Templated(model, {"n": 3 * KEPT - 1}).renderer

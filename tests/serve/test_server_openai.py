"""The official client, unmodified, against a server on a socket: what it sends is understood, what it gets it reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from clew.serve.openai.questions import Limits
from clew.serve.openai.server import Server
from tests.serve.serving import LOOK, serving, talker

openai = pytest.importorskip("openai")
pytest.importorskip("prometheus_client")
USER: Any = [{"role": "user", "content": "hi"}]
SAME: Any = {"model": "m", "messages": USER, "seed": 5, "max_tokens": 24}
TOOLS: Any = [{"type": "function", "function": LOOK}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"],
          "additionalProperties": False}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Any:
    return talker()


@pytest.fixture(scope="module")
def client(model: Any) -> Iterator[Any]:
    server = Server(model, names=("m",), keys=("secret-key",), limits=Limits(queue=8))
    with serving(server) as base, openai.OpenAI(base_url=f"{base}/v1", api_key="secret-key", max_retries=0) as found:
        yield found


def test_a_stream_says_what_the_whole_answer_says(client: Any) -> None:
    whole = client.chat.completions.create(**SAME, logprobs=True, top_logprobs=2)
    parts = list(client.chat.completions.create(**SAME, logprobs=True, top_logprobs=2, stream=True,
                                                stream_options={"include_usage": True}))  # fmt: skip
    choice = whole.choices[0]
    deltas = [c.choices[0] for c in parts if c.choices]
    assert "".join(d.delta.content or "" for d in deltas) == choice.message.content
    assert [d.finish_reason for d in deltas if d.finish_reason] == [choice.finish_reason]
    entries = [e for d in deltas if d.logprobs for e in d.logprobs.content]
    assert [e.token for e in entries] == [e.token for e in choice.logprobs.content]
    assert [e.logprob for e in entries] == pytest.approx([e.logprob for e in choice.logprobs.content], abs=1e-4)
    assert len(entries) == whole.usage.completion_tokens == parts[-1].usage.completion_tokens
    assert all(len(e.top_logprobs) == 2 and e.top_logprobs[0].logprob >= e.logprob for e in entries)
    assert {c.id for c in parts} == {parts[0].id}


def test_seeds_choices_and_stops(client: Any) -> None:
    one, again = (client.chat.completions.create(**SAME).choices[0].message.content for _ in range(2))
    three = client.chat.completions.create(**SAME, n=3)
    texts = [c.message.content for c in three.choices]
    assert one == again == texts[0]
    assert len(set(texts)) == 3
    assert [c.index for c in three.choices] == [0, 1, 2]
    assert three.usage.completion_tokens == 72
    streamed: dict[int, str] = {}
    for part in client.chat.completions.create(**SAME, n=3, stream=True):
        for c in part.choices:
            streamed[c.index] = streamed.get(c.index, "") + (c.delta.content or "")
    assert [streamed[i] for i in range(3)] == texts
    stop = one[6:8]
    cut = client.chat.completions.create(**SAME, stop=[stop]).choices[0]
    assert (cut.message.content, cut.finish_reason) == (one.partition(stop)[0], "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_tools(client: Any, stream: bool) -> None:
    asked = {**SAME, "tools": TOOLS, "tool_choice": "required", "max_tokens": 400, "parallel_tool_calls": False}
    if stream:
        with client.chat.completions.stream(**asked) as events:
            choice = events.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**asked).choices[0]
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls"
    assert call.function.name == "look"
    assert json.loads(call.function.arguments)["at"] in ("left", "right")
    told = [*USER, choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "a door"}]  # fmt: skip
    after = client.chat.completions.create(**{**SAME, "messages": told}, tools=TOOLS, tool_choice="none")
    assert after.choices[0].message.tool_calls is None


def test_json_schema(client: Any) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    said = client.chat.completions.create(**{**SAME, "max_tokens": 300}, response_format=form).choices[0].message
    assert 0 <= json.loads(said.content)["n"] <= 99
    free = client.chat.completions.create(**SAME, extra_body={"guided_regex": "[ab]{3}"}).choices[0].message.content
    assert len(free) == 3
    assert set(free) <= {"a", "b"}
    picked = client.chat.completions.create(**SAME, extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert picked.choices[0].message.content in ("yes", "no")


def test_completions(client: Any, model: Any) -> None:
    ids = list(model.renderer.encode("hello"))
    asked: Any = {"model": "m", "prompt": "hello", "max_tokens": 9, "seed": 2, "logprobs": 2}
    whole = client.completions.create(**asked, extra_body={"return_token_ids": True})
    parts = list(client.completions.create(**asked, stream=True))
    choice = whole.choices[0]
    assert choice.prompt_token_ids == ids
    assert model.renderer.decode(choice.token_ids) == choice.text
    assert "".join(c.text for p in parts for c in p.choices) == choice.text
    streamed = [v for p in parts for c in p.choices for v in c.logprobs.token_logprobs]
    assert streamed == pytest.approx(choice.logprobs.token_logprobs, abs=1e-4)
    by_ids = client.completions.create(**{**asked, "prompt": ids})
    assert by_ids.choices[0].text == choice.text
    both = client.completions.create(**{**asked, "prompt": ["hello", "hello"], "n": 2})
    assert [c.text for c in both.choices][::2] == [choice.text] * 2
    assert both.usage.prompt_tokens == 2 * len(ids)


def test_a_prompt_echoed_has_the_logprobs_that_score_gives(client: Any, model: Any) -> None:
    ids = list(model.renderer.encode("hello"))
    want = model.score([ids])[0].tolist()
    echoed = client.completions.create(model="m", prompt=ids, max_tokens=0, echo=True, logprobs=0).choices[0]
    assert echoed.text == "hello"
    assert echoed.logprobs.token_logprobs[0] is None
    assert echoed.logprobs.token_logprobs[1:] == pytest.approx(want, abs=1e-4)
    told = client.completions.create(model="m", prompt=ids, max_tokens=1, extra_body={"prompt_logprobs": 1})
    found = [entry[str(i)]["logprob"] for entry, i in zip(told.choices[0].prompt_logprobs[1:], ids[1:], strict=True)]
    assert found == pytest.approx(want, abs=1e-4)


def test_responses(client: Any) -> None:
    asked: Any = {"model": "m", "input": "hi", "max_output_tokens": 16, "extra_body": {"seed": 4}}
    whole = client.responses.create(**asked, include=["message.output_text.logprobs"], top_logprobs=1)
    part = whole.output[0].content[0]
    assert whole.status == "incomplete"
    assert len(part.logprobs) == whole.usage.output_tokens == 16
    with client.responses.stream(**asked) as events:
        deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert deltas == whole.output_text
    tools: Any = [{"type": "function", "strict": True, **LOOK}]
    with client.responses.stream(
        model="m", input="hi", tools=tools, tool_choice={"type": "function", "name": "look"}, max_output_tokens=400,
        extra_body={"seed": 1},
    ) as events:  # fmt: skip
        done = events.get_final_response()
    (call, *_) = done.output
    assert (call.type, call.name) == ("function_call", "look")
    assert json.loads(call.arguments)["at"] in ("left", "right")
    form: Any = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}
    said = client.responses.create(model="m", input="hi", text=form, max_output_tokens=300, extra_body={"seed": 1})
    assert 0 <= json.loads(said.output_text)["n"] <= 99


def test_errors_are_the_clients_own(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**SAME, logit_bias={"three": 5})
    assert refused.value.param == "logit_bias"
    with pytest.raises(openai.NotFoundError, match="no model is called 'other'"):
        client.chat.completions.create(**{**SAME, "model": "other"})
    with pytest.raises(openai.AuthenticationError, match="API key"):
        client.with_options(api_key="wrong").chat.completions.create(**SAME)
    with pytest.raises(openai.BadRequestError, match="tokens leave no room"):
        client.chat.completions.create(**{**SAME, "messages": [{"role": "user", "content": "hi" * 9999}]})
    with pytest.raises(openai.BadRequestError, match="9 choices"):
        client.chat.completions.create(**SAME, n=9)
    assert [m.id for m in client.models.list()] == ["m"]
    assert client.models.retrieve("m").owned_by == "clew"


def test_our_own_client_gets_the_models_tokens_over_http_and_can_be_served_again(client: Any, model: Any) -> None:
    import asyncio

    from clew.core.values import Sampling
    from clew.models.asking import request
    from clew.models.remote import Remote
    from tests.serve.serving import CHAT, HI, post

    base = str(client.base_url).rstrip("/")
    asked = request(model, "hello", seed=7, sampling=Sampling(9))
    far = Remote(base, "m", "secret-key", renderer=model.renderer)
    near, there = asyncio.run(model.complete(asked)), asyncio.run(far.complete(asked))
    assert there.tokens == near.tokens
    assert there.logprobs == pytest.approx(near.logprobs, abs=1e-4)
    ids = model.renderer.encode("hello")
    assert far.score([ids])[0] == pytest.approx(model.score([ids])[0], abs=1e-4)
    again = Server(Remote(base, "m", "secret-key"), names=("m",))
    said = post(again, CHAT, HI)
    assert said.status_code == 200, said.text
    direct = client.chat.completions.create(**HI)
    assert said.json()["choices"][0]["message"]["content"] == direct.choices[0].message.content
    refused = post(again, CHAT, HI | {"guided_regex": "a"})
    assert refused.json()["error"]["code"] == "unsupported_by_model"
    wrong = post(Server(Remote(base, "m", "no-such-key"), names=("m",)), CHAT, HI)
    assert wrong.status_code in (400, 502)
    assert "secret-key" not in wrong.text


def test_a_client_that_hangs_up_frees_its_row(client: Any, model: Any) -> None:
    import time

    cut = model.engine.stats().counts.cut
    stream = client.chat.completions.create(**{**SAME, "max_tokens": 450}, stream=True, logprobs=True)
    next(iter(stream))
    stream.close()
    end = time.monotonic() + 30
    while model.engine.stats().running and time.monotonic() < end:
        time.sleep(0.01)
    assert model.engine.stats().running == 0
    assert model.engine.stats().counts.cut == cut + 1

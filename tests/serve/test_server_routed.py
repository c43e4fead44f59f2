"""A pool behind a router, served over OpenAI's API: the official client, unmodified, reads it like any model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import clew
from clew.models.compose.decision import decision_of
from clew.serve.gateway.recorder import Recorder
from clew.serve.openai.server import Server
from clew.store import open_store
from tests.models.pool import folder, said, servers, worker

pytest.importorskip("prometheus_client", reason="did not run: the server needs clew[serve]")
pytest.importorskip("torch", reason="did not run: the server of the tests needs torch")

from tests.serve.serving import LOOK, serving

openai = pytest.importorskip("openai", reason="did not run: the openai client is not installed")

USER: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [{"type": "function", "function": LOOK}]
CALLED: Any = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "left"}'}}]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Workers, a client of a server that records, and the store."""
    path = tmp_path_factory.mktemp("pool")
    with servers("small", "large") as (small, large):
        folder(path / "r", [worker(small), worker(large, region="eu")])
        store = open_store(path / "s.db")
        model = clew.model(f"route:{path / 'r'}")
        server = Server(model, names=("pool",), recorder=Recorder(store, model, {"ref": model.ref}))
        with serving(server) as base, openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
            yield small, large, client, store
        store.close()


def test_whole_streamed_and_response(pool: Any) -> None:
    small, _, client, _ = pool
    small.answer = lambda body: said("I am small")
    whole = client.chat.completions.create(model="pool", messages=USER)
    assert whole.choices[0].message.content == "I am small"
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (10, 4, 14)
    options = {"include_usage": True}
    parts = list(client.chat.completions.create(model="pool", messages=USER, stream=True, stream_options=options))
    told = [part.choices[0].delta.content for part in parts if part.choices and part.choices[0].delta.content]
    assert told == ["I ", "am ", "small"]
    assert parts[-1].usage.total_tokens == 14
    response = client.responses.create(model="pool", input="hi")
    assert response.output_text == "I am small"
    assert response.usage.total_tokens == 14


@pytest.mark.parametrize("stream", [False, True])
def test_tools_go_through_and_their_results_come_back(pool: Any, stream: bool) -> None:
    small, _, client, _ = pool
    small.answer = lambda body: said("", tool_calls=CALLED) if len(body["messages"]) == 1 else said("seen")
    asked: Any = {"model": "pool", "messages": USER, "tools": TOOLS}
    if stream:
        with client.chat.completions.stream(**asked) as events:
            choice = events.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**asked).choices[0]
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name, call.function.arguments) == (
        "tool_calls",
        "look",
        '{"at": "left"}',
    )
    turn = [*USER, {"role": "assistant", "tool_calls": [call.model_dump()]}]
    result = {"role": "tool", "tool_call_id": call.id, "content": "a lamp"}
    done = client.chat.completions.create(**asked | {"messages": [*turn, result]})
    assert done.choices[0].message.content == "seen"
    assert [m["role"] for m in small.bodies[-1]["messages"]] == ["user", "assistant", "tool"]
    assert small.bodies[-1]["tools"][0]["function"]["name"] == "look"


def test_a_policy_of_the_request_is_kept_and_the_decision_is_recorded(pool: Any) -> None:
    small, large, client, store = pool
    before = small.accepted
    only: Any = {"policy": {"regions": ["eu"]}}
    raw = client.chat.completions.with_raw_response.create(model="pool", messages=USER, extra_body=only)
    assert raw.parse().choices[0].message.content == "I am large"
    assert small.accepted == before
    run = store.run(raw.headers["x-clew-run"])
    decision = decision_of(next(call for call in run.calls if call.kind == "ask").inner)
    assert decision is not None
    assert (decision.worker, decision.refused) == ("large", {"small": "its region is unknown"})
    for policy, told in (
        ({"regions": ["mars"]}, "no worker may answer"),
        ({"region": "eu"}, "there is no 'region'"),
        ({"deny": ["tiny"]}, "no worker is called 'tiny'"),
        (3, "no JSON object"),
    ):
        with pytest.raises(openai.BadRequestError, match=told):
            client.chat.completions.create(model="pool", messages=USER, extra_body={"policy": policy})
    assert small.accepted == before
    assert large.accepted >= 1


def test_failures_of_workers_reach_the_client_as_the_apis_errors(pool: Any) -> None:
    small, large, client, _ = pool
    small.answer = large.answer = lambda body: (500, {"error": {"message": "down"}})
    with pytest.raises(openai.InternalServerError, match=r"no worker that may answer did"):
        client.chat.completions.create(model="pool", messages=USER)
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="pool", messages=USER)
    with pytest.raises(openai.RateLimitError, match="rest after failures") as busy:
        client.chat.completions.create(model="pool", messages=USER)
    assert int(busy.value.response.headers["retry-after"]) > 20


def test_a_model_that_is_no_router_keeps_no_policy() -> None:
    server = Server(clew.model("echo"), names=("m",))
    with (
        serving(server) as base,
        openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="is no router"),
    ):
        client.chat.completions.create(model="m", messages=USER, extra_body={"policy": {"regions": ["eu"]}})

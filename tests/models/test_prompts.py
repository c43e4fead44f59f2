"""Scores over HTTP: both ways that servers have, against a model that is known."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from starlette.responses import PlainTextResponse

from clew.core.errors import BadInput, Refused, Unreachable
from clew.core.values import Sampling
from clew.models.contract import check_model, check_scores
from clew.models.remote import Price, Remote
from clew.models.remote.limits import RateLimiter

from .helpers import ask
from .server import failing, serving

pytest.importorskip("torch", reason="did not run: torch is not installed")
from clew.models.local import small

IDS = [[1, 9, 8, 7, 10, 2], [1, 7], [3]]


@pytest.fixture(scope="module")
def model() -> Any:
    made = small(["where", "is", "the", "cup", "go", "on"], d=16, layers=1, heads=2, kv_heads=1)
    yield made
    made.close()


@pytest.fixture
def peer() -> Any:
    with serving() as found:
        yield found


def by_prompt_logprobs(model: Any) -> Any:
    """As vLLM answers: None for the first token, then the token's own logprob beside the likeliest one's."""

    def answer(body: dict[str, Any], count: int) -> Any:
        assert (body["max_tokens"], body["prompt_logprobs"]) == (1, 1)
        ids = body["prompt"]
        (scores,) = model.score([ids])
        named: list[Any] = [None]
        for i, value in zip(ids[1:], scores.tolist(), strict=True):
            named.append({"999": {"logprob": -0.01, "rank": 1}, str(i): {"logprob": value, "rank": 2}})
        return {"choices": [{"text": "x", "prompt_logprobs": named}]}

    return answer


def by_echo(model: Any) -> Any:
    """As OpenAI's completions did: refuses the unknown field, echoes with ``echo``."""

    def answer(body: dict[str, Any], count: int) -> Any:
        if "prompt_logprobs" in body:
            return failing(400, "Unrecognized request argument: prompt_logprobs")
        ids = body["prompt"]
        (scores,) = model.score([ids])
        logprobs = {"tokens": [f"token_id:{i}" for i in ids], "token_logprobs": [None, *scores.tolist()]}
        return {"choices": [{"text": "x", "logprobs": logprobs}]}

    return answer


@pytest.mark.parametrize("server", [by_prompt_logprobs, by_echo])
def test_scores_are_those_of_the_model_behind_the_endpoint(peer: Any, model: Any, server: Any) -> None:
    peer.answer = server(model)
    there = Remote(peer.url, "m")
    for found, want in zip(there.score(IDS), model.score(IDS), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, want, atol=1e-6)
    asked = len(peer.bodies)
    there.score(IDS)
    assert len(peer.bodies) == asked + len(IDS), "what the endpoint takes is remembered"
    assert set(peer.paths) == {"/v1/completions"}


def test_scores_inside_an_event_loop(peer: Any, model: Any) -> None:
    peer.answer = by_prompt_logprobs(model)

    async def inside() -> Any:
        return Remote(peer.url, "m").score(IDS[:1])

    np.testing.assert_allclose(asyncio.run(inside())[0], model.score(IDS[:1])[0], atol=1e-6)


def test_the_contract_holds(peer: Any, model: Any) -> None:
    """Generation and scoring through one endpoint that takes ids."""
    score = by_prompt_logprobs(model)

    async def answer(body: dict[str, Any], count: int) -> Any:
        if "prompt_logprobs" in body:
            return score(body, count)
        node = ask("x").path[0]._replace(ids=tuple(body["prompt"]))
        inner = ask(seed=body["seed"], sampling=Sampling(body["max_tokens"], body["temperature"], body["top_p"]))
        done = await model.complete(inner._replace(path=(node,)))
        choice = {"index": 0, "text": done.message.text, "finish_reason": done.finish, "token_ids": list(done.tokens)}
        choice["logprobs"] = {"tokens": ["?"] * len(done.tokens), "token_logprobs": done.logprobs.tolist()}
        usage = {"prompt_tokens": 3, "completion_tokens": len(done.tokens)}
        whole = {"model": "m", "choices": [choice], "usage": usage}
        if not body.get("stream"):
            return whole
        return PlainTextResponse(f"data: {json.dumps(whole)}\n\ndata: [DONE]\n\n", media_type="text/event-stream")

    peer.answer = answer
    there = Remote(peer.url, "m", renderer=model.renderer)
    assert "check_scores" in check_model(there, prompts=("where is the cup", "go on"), same=False)
    peer.answer = lambda body, count: _shifted(score(body, count)) if "prompt_logprobs" in body else answer(body, count)
    with pytest.raises(AssertionError, match="scores differ"):
        check_scores(Remote(peer.url, "m", renderer=model.renderer), ("where is the cup",))


def _shifted(body: dict[str, Any]) -> dict[str, Any]:
    for entry in body["choices"][0]["prompt_logprobs"][1:]:
        for value in entry.values():
            value["logprob"] -= 0.5
    return body


def test_what_cannot_be_scored_is_refused(peer: Any, model: Any) -> None:
    peer.answer = lambda body, count: {"choices": [{"text": "x"}]}
    with pytest.raises(Refused, match=r"no logprobs of a prompt[\s\S]*vLLM"):
        Remote(peer.url, "m").score(IDS)
    peer.answer = lambda body, count: failing(404, "no such route")
    with pytest.raises(Refused, match="no such route"):
        Remote(peer.url, "m").score(IDS)
    peer.answer = lambda body, count: {"choices": [{"prompt_logprobs": [None, {"5": {"logprob": -1}}]}]}
    with pytest.raises(Exception, match="not of the tokens that were sent"):
        Remote(peer.url, "m").score([[1, 7]])
    with pytest.raises(BadInput, match="temperature 1"):
        Remote(peer.url, "m").score(IDS, 0.7)


def test_failures_that_may_pass_are_tried_again_and_money_is_counted(peer: Any, model: Any) -> None:
    good = by_prompt_logprobs(model)
    peer.answer = lambda body, count: failing(503) if count == 0 else good(body, count)
    there = Remote(peer.url, "m", backoff=0.01, price=Price(1e6, 0.0), gate=RateLimiter(max_cost=7.0))
    there.score([IDS[0]])
    assert len(peer.bodies) == 2
    assert there.gate.purse.spent == pytest.approx(6.0)
    with pytest.raises(Refused, match="exceed the budget"):
        there.score([IDS[0]])
    assert len(peer.bodies) == 2
    peer.answer = lambda body, count: failing(503)
    with pytest.raises(Unreachable, match="in 2 attempts"):
        Remote(peer.url, "m", backoff=0.01, attempts=2).score([IDS[0]])


def test_a_server_that_asks_for_a_long_pause_is_not_waited_for(peer: Any) -> None:
    """Scores and completions share one retry loop, which reads what the server asks for."""
    peer.answer = lambda body, count: failing(503, retry_after="3600")
    with pytest.raises(Unreachable, match="asks to wait 3600 s"):
        Remote(peer.url, "m", deadline=30.0).score([IDS[0]])
    assert len(peer.bodies) == 1

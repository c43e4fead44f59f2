"""Endpoints that do not count, or count wrongly: each stops at about the budget, and nothing false is recorded."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.responses import PlainTextResponse, Response

from clew.core.errors import BadRecord, ClewError, Refused
from clew.core.values import Completion, StopReason, Task, Usage
from clew.harness import Runner
from clew.models.dialects import chat as chat_dialect
from clew.models.dialects import completions
from clew.models.dialects import messages as messages_dialect
from clew.models.dialects import responses as responses_dialect
from clew.models.remote import Price, Remote
from clew.models.remote.limits import Purse
from clew.store import open_store
from clew.store.run import Run
from tests.models.helpers import ask
from tests.models.server import Peer, chunks, serving

BUDGET, PRICE = 0.10, Price(10, 30, 1)
REPLY = "word " * 50  # 83 tokens by its characters, of a prompt of 2,000
NO: Any = object()
USAGES: dict[str, Any] = {
    "none at all": NO,
    "null": None,
    "an empty object": {},
    "null fields": {"prompt_tokens": None, "completion_tokens": None},
    "negative": {"prompt_tokens": -500, "completion_tokens": -50},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0},
    "texts": {"prompt_tokens": "500", "completion_tokens": "50"},
    "no numbers of JSON": {"prompt_tokens": float("nan"), "completion_tokens": float("inf")},
    "huge": {"prompt_tokens": 10**30, "completion_tokens": 10**400},
    "more cached than sent": {"prompt_tokens": 10, "completion_tokens": 1,
                              "prompt_tokens_details": {"cached_tokens": 1_000_000}},
    "negative cached": {"prompt_tokens": 500, "completion_tokens": 50,
                        "prompt_tokens_details": {"cached_tokens": -9**9}},
    "the reply alone": {"completion_tokens": 50},
    "honest": {"prompt_tokens": 500, "completion_tokens": 50},
    "honest, as floats": {"prompt_tokens": 500.0, "completion_tokens": 50.0},
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    with serving() as peer:
        yield peer


def answering(usage: Any, text: str = REPLY, **choice: Any) -> Response:
    message = {"role": "assistant", "content": text}
    told: dict[str, Any] = {"choices": [{"message": message, "finish_reason": "stop"} | choice]}
    told |= {} if usage is NO else {"usage": usage}
    return Response(json.dumps(told), media_type="application/json")


async def asking(run: Any) -> None:
    conversation = run.chat(max_tokens=100)
    for _ in range(60):
        conversation = run.chat(max_tokens=100)
        await conversation.ask("q" * 2000)


def spend(peer: Peer, **options: Any) -> tuple[Run, Purse]:
    purse = Purse(BUDGET)
    model = Remote(peer.url, "m", max_cost=purse, price=PRICE, attempts=1, **options)
    (run,) = Runner(asking, None, model, open_store(":memory:")).collect([Task("t", "")], n=1).runs
    return run, purse


@pytest.mark.parametrize("name", list(USAGES))
def test_each_endpoint_stops_at_about_the_budget(server: Peer, name: str) -> None:
    server.answer = lambda body, count: answering(USAGES[name])
    run, purse = spend(server)
    asks = [c for c in run.calls if c.kind == "ask" and not c.error]
    assert run.stop == StopReason.MODEL_ERROR
    assert "could exceed the budget of $0.1" in run.calls[-1].error
    assert 8 <= len(asks) <= 20, "an honest endpoint takes 14"
    assert 0.8 * BUDGET <= purse.spent <= BUDGET
    assert all(0 < c.cost < 0.01 for c in asks)
    assert sum(c.cost for c in asks) == pytest.approx(purse.spent)
    for call in asks:
        assert 0 <= call.usage.cached <= call.usage.prompt < 1 << 30
        assert 0 <= call.usage.completion < 1 << 30
    honest = name in ("honest", "honest, as floats", "negative cached")
    assert (asks[0].usage[:2] == (500, 50)) is honest
    assert ("estimated by the texts" in run.calls[-1].error) is not honest, "what is no measurement is told"


def test_what_is_charged_for_an_endpoint_that_does_not_count_is_told_once(
    server: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = lambda body, count: answering(NO)
    with caplog.at_level(logging.WARNING, "clew.models"):
        spend(server)
    assert [r.getMessage() for r in caplog.records if r.name == "clew.models"] == [
        f"{server.url} counts no tokens: what it costs is estimated by the texts that are sent and received"
    ]


def test_streams_that_nobody_counts_or_waits_for_are_paid_too(server: Peer) -> None:
    server.answer = lambda body, count: chunks(*["word "] * 50, usage=False)
    run, purse = spend(server, stream=True)
    assert 8 <= len([c for c in run.calls if c.kind == "ask"]) <= 20
    assert 0.8 * BUDGET <= purse.spent <= BUDGET
    server.answer = lambda body, count: chunks(*["word "] * 50, gap=0.02)
    model = Remote(server.url, "m", max_cost=BUDGET, price=PRICE, attempts=1)

    async def leaving() -> int:
        for count in range(60):
            try:
                stream: Any = model.stream(ask("q" * 2000))
                async for _ in stream:
                    break
                await stream.aclose()
            except Refused:
                return count
        return 60

    assert 5 <= asyncio.run(leaving()) <= 20
    assert model.gate.purse.spent <= BUDGET


@pytest.mark.parametrize("answer", ["<html>", '{"choices": [{"message": 3}]}', '{"choices": [], "usage": 7}'])
def test_answers_that_cannot_be_read_are_not_free(server: Peer, answer: str) -> None:
    server.answer = lambda body, count: PlainTextResponse(answer)
    model = Remote(server.url, "m", max_cost=BUDGET, price=PRICE, attempts=1)

    def sent() -> bool:
        try:
            asyncio.run(model.complete(ask("q" * 2000)))
        except ClewError as error:
            return "budget" not in error.message
        return True

    assert sum(sent() for _ in range(60)) <= 20


def test_an_endpoint_that_refuses_costs_nothing(server: Peer) -> None:
    server.answer = lambda body, count: PlainTextResponse("no", 400)
    model = Remote(server.url, "m", max_cost=BUDGET, price=PRICE, attempts=1)
    for _ in range(30):
        with pytest.raises(Refused):
            asyncio.run(model.complete(ask("q" * 2000)))
    assert model.gate.purse.spent == 0


READERS = {"chat": chat_dialect, "responses": responses_dialect, "messages": messages_dialect}


@pytest.mark.parametrize("dialect", list(READERS))
@pytest.mark.parametrize("value", [-1, 10**400, 1 << 31, float("inf"), float("nan"), 1.5, "7", True, [3], None])
def test_no_dialect_reads_a_number_of_tokens_that_is_none(dialect: str, value: Any) -> None:
    names = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "cache_read_input_tokens")
    assert READERS[dialect].usage_from_wire(dict.fromkeys(names, value)) == Usage()


def test_a_price_is_never_below_nothing() -> None:
    assert Price(10, 30, 1).cost(Usage(10, 1, 1_000_000)) == pytest.approx(40e-6)


WRONG: dict[str, list[Any]] = {
    "NaN": [-0.5, float("nan")],
    "infinite": [-0.5, float("inf")],
    "infinite below": [-0.5, float("-inf")],
    "too large for a float": [-0.5, 1e300],
    "positive": [-0.5, 0.7],
    "null": [-0.5, None],
    "one for all": [-0.5],
}


def scored(server: Peer, values: list[Any], text: str = "a b", **choice: Any) -> Completion:
    entries = [{"token": "a", "logprob": value} for value in values]
    counts = {"prompt_tokens": 3, "completion_tokens": 999 if len(values) == 1 else len(values)}
    server.answer = lambda body, count: answering(counts, text, logprobs={"content": entries}, **choice)
    return asyncio.run(Remote(server.url, "m", attempts=1).complete(ask("q")))


@pytest.mark.parametrize("name", list(WRONG))
def test_logprobs_that_are_none_are_left_out_with_a_word(
    server: Peer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "clew.models"):
        done = scored(server, WRONG[name])
    assert done.message.text == "a b"
    assert done.logprobs is None
    (told,) = [r.getMessage() for r in caplog.records if r.name == "clew.models"]
    assert "logprobs of such replies are left out" in told


def test_true_logprobs_are_kept(server: Peer) -> None:
    done = scored(server, [-0.5, 0.0, -9999.0])
    np.testing.assert_array_equal(done.logprobs, np.array([-0.5, 0.0, -9999.0], np.float32))


@pytest.mark.parametrize("ids", [[-1, 5], [1.5, 2], ["a", "b"], "ab", [1 << 40, 2], [True, 2]])
def test_token_ids_that_are_none_refuse_the_reply(server: Peer, ids: Any) -> None:
    with pytest.raises(Refused, match=r"token ids that are not valid|none of the chat dialect"):
        scored(server, [-0.5, -0.25], token_ids=ids)


def test_scores_of_a_prompt_that_are_none_are_refused() -> None:
    for value in (float("nan"), float("inf"), 2.0, 1e300):
        body = {"choices": [{"prompt_logprobs": [None, {"7": {"logprob": value}}]}]}
        with pytest.raises(BadRecord, match="the server gave a logprob of"):
            completions.scores_from_wire(body, [5, 7], False)

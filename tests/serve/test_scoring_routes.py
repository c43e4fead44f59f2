"""Embeddings, similarities and probabilities of next tokens over HTTP: what the weights themselves say."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("prometheus_client")

import torch

from clew.models.fakes import Markov
from clew.models.remote.embedder import embedder_of
from clew.serve.openai.questions import Limits
from clew.serve.openai.server import Server
from tests.serve.serving import post, serving, talker, using

TEXTS = ["hello there", "bye", "where is it?"]


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    found = talker()
    yield found
    found.close()


@pytest.fixture
def server(model: Any) -> Server:
    return Server(model, names=("m",))


def whole(model: Any, ids: tuple[int, ...]) -> Any:
    with torch.no_grad():
        return model.module(input_ids=torch.tensor([ids]), output_hidden_states=True)


def vector(model: Any, text: str) -> np.ndarray:
    """The last token's state behind the last norm, by the module itself."""
    return whole(model, model.renderer.encode(text)).hidden_states[-1][0, -1].numpy()


def embedded(server: Server, **body: Any) -> np.ndarray:
    answer = post(server, "/v1/embeddings", {"model": "m", **body})
    assert answer.status_code == 200, answer.text
    data = answer.json()["data"]
    assert [one["index"] for one in data] == [*range(len(data))]
    return np.array([one["embedding"] for one in data])


def refusal(server: Server, path: str, **body: Any) -> dict[str, Any]:
    answer = post(server, path, {"model": "m", **body})
    assert 400 <= answer.status_code < 500, answer.text
    return dict(answer.json()["error"], status=answer.status_code)


def test_an_embedding_is_the_state_of_the_last_token_and_of_length_one(server: Server, model: Any) -> None:
    truth = np.array([vector(model, text) for text in TEXTS])
    np.testing.assert_allclose(embedded(server, input=TEXTS, normalize=False), truth, atol=1e-5)
    unit = truth / np.linalg.norm(truth, axis=1, keepdims=True)
    found = embedded(server, input=TEXTS)
    np.testing.assert_allclose(found, unit, atol=1e-5)
    np.testing.assert_allclose(embedded(server, input=TEXTS[1]), found[1:2], atol=1e-6)
    ids = [list(model.renderer.encode(text)) for text in TEXTS]
    np.testing.assert_allclose(embedded(server, input=ids), found, atol=1e-6)
    np.testing.assert_allclose(embedded(server, input=ids[0]), found[:1], atol=1e-6)
    many = embedded(server, input=[f"number {i}" for i in range(150)])
    np.testing.assert_allclose(many[[0, 149]], embedded(server, input=["number 0", "number 149"]), atol=1e-6)
    assert len({row.tobytes() for row in many}) == 150


def test_base64_is_what_the_official_client_asks_for_and_reads(server: Server, model: Any) -> None:
    found = embedded(server, input=TEXTS)
    told = post(server, "/v1/embeddings", {"model": "m", "input": TEXTS, "encoding_format": "base64"}).json()
    read = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in told["data"]]
    np.testing.assert_allclose(read, found, atol=1e-7)
    tokens = sum(len(model.renderer.encode(text)) for text in TEXTS)
    assert told["usage"]["prompt_tokens"] == told["usage"]["total_tokens"] == tokens
    openai = pytest.importorskip("openai")
    with serving(server) as base, openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
        answer = client.embeddings.create(model="m", input=TEXTS)
        np.testing.assert_allclose([one.embedding for one in answer.data], found, atol=1e-7)
        ours = embedder_of(f"{base}/v1#m")
        np.testing.assert_allclose(ours.texts(TEXTS, 30), found, atol=1e-6)


@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2")])
@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_a_score_is_the_cosine_of_two_embeddings(server: Server, names: tuple[str, str], path: str) -> None:
    one, many = names
    vectors = embedded(server, input=TEXTS)
    told = post(server, path, {"model": "m", one: TEXTS[0], many: TEXTS}).json()
    np.testing.assert_allclose([row["score"] for row in told["data"]], vectors @ vectors[0], atol=1e-5)
    pairs = post(server, path, {"model": "m", one: TEXTS[:2], many: TEXTS[1:]}).json()
    truth = (vectors[:2] * vectors[1:]).sum(1)
    np.testing.assert_allclose([row["score"] for row in pairs["data"]], truth, atol=1e-5)
    assert "cannot be paired" in refusal(server, path, **{one: TEXTS[:2], many: TEXTS})["message"]


def law(model: Any, prompt: tuple[int, ...]) -> np.ndarray:
    return whole(model, prompt).logits[0, -1].double().softmax(-1).numpy()


@pytest.mark.parametrize("first", [False, True])
def test_probabilities_of_labels_are_those_of_the_model(server: Server, model: Any, first: bool) -> None:
    query, items, labels = "is it left?", [" yes", " no", " so"], [3, 250, 17]
    ask = {"model": "m", "query": query, "items": items, "label_token_ids": labels, "item_first": first}
    prompts = [model.renderer.encode(item + query if first else query + item) for item in items]
    true = np.array([law(model, tuple(prompt))[labels] for prompt in prompts])
    among = true / true.sum(1, keepdims=True)
    for soft, truth in ((None, among), (True, among), (False, true)):
        told = post(server, "/generative_scoring", ask | ({} if soft is None else {"apply_softmax": soft})).json()
        np.testing.assert_allclose([row["score"] for row in told["data"]], truth[:, 0], rtol=1e-4)
    np.testing.assert_allclose(post(server, "/v1/score", ask).json()["scores"], true, rtol=1e-4)
    softly = post(server, "/v1/score", ask | {"apply_softmax": True}).json()
    np.testing.assert_allclose(softly["scores"], among, rtol=1e-4)
    parts = [list(model.renderer.encode(item)) for item in items]
    ids = ask | {"query": list(model.renderer.encode(query)), "items": parts}
    joined = [(*part, *ids["query"]) if first else (*ids["query"], *part) for part in parts]
    truth = [law(model, row)[labels] for row in joined]
    np.testing.assert_allclose(post(server, "/v1/score", ids).json()["scores"], truth, rtol=1e-4)


def test_what_cannot_be_done_is_refused_in_one_sentence(server: Server, model: Any) -> None:
    for wrong, says in (
        ({"input": ""}, "an empty text"),
        ({"input": []}, "0 texts"),
        ({"input": ["a"] * 2049}, "2049 texts"),
        ({"input": {"a": 1}}, "is no text"),
        ({"input": [1, model.vocabulary]}, "outside the vocabulary"),
        ({"input": [-1]}, "outside the vocabulary"),
        ({"input": "a", "dimensions": 8}, "dimensions is 8"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format is 'int8'"),
        ({"input": "a", "normalize": "so"}, "normalize is 'so'"),
        ({"input": "a", "truncate_prompt_tokens": 4}, "truncate_prompt_tokens is not supported"),
        ({"input": "a", "pooling": "mean"}, "'pooling' is no parameter"),
        ({"input": "a", "label_token_ids": [1]}, "'label_token_ids' is no parameter"),
    ):
        assert says in refusal(server, "/v1/embeddings", **wrong)["message"]
    assert refusal(server, "/v1/embeddings", input="a b " * 200_000)["code"] == "context_length_exceeded"
    assert refusal(server, "/v1/embeddings", input=[3] * (model.context + 1))["code"] == "context_length_exceeded"
    ask: dict[str, Any] = {"query": "a", "items": ["b"], "label_token_ids": [1]}
    for more, says in (
        ({"label_token_ids": []}, "no list of different token ids"),
        ({"label_token_ids": [1, 1]}, "no list of different token ids"),
        ({"label_token_ids": [model.vocabulary]}, "outside the vocabulary"),
        ({"query": ["a", "b"]}, "query is a list"),
        ({"items": ["b"] * 300, "label_token_ids": [*range(8)]}, "300 items with 8 labels"),
        ({"query": [3] * 300, "items": [[3] * 300]}, "600 tokens; this server takes at most 511 here"),
    ):
        assert says in refusal(server, "/generative_scoring", **(ask | more))["message"]
    assert "under two names" in refusal(server, "/score", text_1="a", text_2="b", queries="a", documents="b")["message"]
    assert "no pairs" in refusal(server, "/score")["message"]
    assert refusal(server, "/v1/embeddings", model="other", input="a")["status"] == 404
    fake = Server(Markov(tokens=True), names=("m",))
    assert refusal(fake, "/v1/embeddings", input="a")["code"] == "unsupported_by_model"
    warned = post(server, "/v1/embeddings", {"model": "m", "input": "a", "user": "me"})
    assert warned.headers["x-clew-warning"] == "ignored user"


def test_too_many_at_once_are_told_to_come_back(model: Any) -> None:
    server = Server(model, names=("m",), limits=Limits(queue=2))

    async def crowd(client: httpx.AsyncClient) -> list[int]:
        body = {"model": "m", "input": [f"number {i}" for i in range(400)]}
        answers = await asyncio.gather(*[client.post("/v1/embeddings", json=body) for _ in range(6)])
        return sorted(answer.status_code for answer in answers)

    codes = using(server, crowd)
    assert set(codes) == {200, 429}
    assert codes.count(200) >= 2

"""An embedding endpoint: what is sent, what is made of the answer, and that no answer, or none at all, does harm."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import numpy as np
import pytest
from starlette.responses import Response

from clew.core.errors import BadInput, ContextOverflow, Refused, Unreachable
from clew.models.remote.embedder import NUMBERS, Embedder, embedder_of, vectors_of
from tests.models.server import Peer, failing, serving


@pytest.fixture(scope="module")
def served():
    with serving(("embeddings",)) as peer:
        yield peer


@pytest.fixture
def peer(served: Peer) -> Peer:
    served.bodies.clear()
    served.headers.clear()
    served.answer = lambda body, count: embedded(body["input"])
    return served


def embedded(texts: list[str]) -> dict[str, Any]:
    rows = [{"index": at, "embedding": [float(len(text)), 3.0]} for at, text in enumerate(texts)]
    return {"data": rows[::-1], "usage": {"prompt_tokens": 5}}


def test_texts_go_out_and_vectors_come_back_in_their_order(peer: Peer) -> None:
    model = Embedder(f"{peer.url}/", "small", lambda: "sk-secret", said=("query: ", "item: "))
    found = model.texts(["a", "abcdefg"], 5.0)
    assert found.dtype == np.float32
    assert np.allclose((found * found).sum(axis=1), 1.0)
    assert np.allclose(found[:, 0] / found[:, 1], [7 / 3, 13 / 3])
    assert model.query("why", 5.0).shape == (2,)
    assert peer.bodies == [
        {"model": "small", "input": ["item: a", "item: abcdefg"]},
        {"model": "small", "input": ["query: why"]},
    ]
    assert peer.headers[0]["authorization"] == "Bearer sk-secret"
    assert model.tokens == 10
    assert model.ref == f"{peer.url}#small?query: |item: "
    assert "secret" not in repr(model)


def test_a_reference_names_endpoint_and_model() -> None:
    assert embedder_of("http://localhost:8000/v1#nomic").ref == "http://localhost:8000/v1#nomic"
    assert embedder_of("openai:small@http://u:pw@h/v1").ref == "http://h/v1#small"
    assert embedder_of(" openai:small ").endpoint.url.endswith("/v1")
    for wrong in ("", "small", "http://localhost:8000/v1", "http://u:pw@h/v1", "anthropic:x", "openai:", "ftp://x#m"):
        with pytest.raises(BadInput) as caught:
            embedder_of(wrong)
        assert "pw" not in caught.value.message
    for settings in ({"seconds": 0}, {"attempts": 0}, {"rest": -1}):
        with pytest.raises(BadInput):
            Embedder("http://h/v1", "m", **settings)


def test_one_failure_is_tried_again_and_after_more_it_is_left_alone(peer: Peer) -> None:
    model = Embedder(peer.url, "m", rest=60.0)
    peer.say(failing(503), embedded(["x"]))
    assert model.query("x", 5.0).shape == (2,)
    peer.say(failing(500, "the disk is full"))
    sent = len(peer.bodies)
    for _ in range(3):
        with pytest.raises(Unreachable, match="the disk is full"):
            model.query("x", 5.0)
    assert len(peer.bodies) == sent + 2, "two attempts, then it is not asked"
    peer.say(failing(404, "no such model"))
    with pytest.raises(Refused, match="no such model"):
        Embedder(peer.url, "m").query("x", 5.0)
    peer.say(failing(400, "This model's maximum context length is 512 tokens"))
    with pytest.raises(ContextOverflow):
        Embedder(peer.url, "m").query("x", 5.0)
    peer.say(embedded(["x"]))
    assert Embedder(peer.url, "m").query("x", 5.0).shape == (2,)


def test_a_slow_endpoint_is_given_up_in_time(peer: Peer) -> None:
    async def never() -> Any:
        await asyncio.sleep(30)

    peer.answer = lambda body, count: never()
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"no vectors of 1 texts within 0\.2 s"):
        Embedder(peer.url, "m").query("x", 0.2)
    with pytest.raises(Unreachable, match=r"within 0\.3 s"):
        Embedder(peer.url, "m", seconds=0.3).query("x", math.inf)
    assert time.monotonic() - began < 15, "of 60 s that its answers take"


def row(*numbers: object, index: int = 0) -> dict[str, Any]:
    return {"index": index, "embedding": list(numbers)}


HOSTILE: dict[str, tuple[Any, str]] = {
    "no list": ({"data": "x"}, "without a list"),
    "no rows": ({"data": [1, 2]}, "without a list"),
    "too few": ({"data": [row(1)]}, "1 vectors for 2 texts"),
    "too many": ({"data": [row(1)] * 3}, "3 vectors for 2 texts"),
    "one place twice": ({"data": [row(1), row(1)]}, "which vector is of which"),
    "another place": ({"data": [row(1), row(1, index=7)]}, "which vector is of which"),
    "a place in words": ({"data": [row(1), row(1) | {"index": "1"}]}, "which vector is of which"),
    "packed": ({"data": [row(1), {"index": 1, "embedding": "AAAA"}]}, "no list of 1 to"),
    "empty": ({"data": [row(1), row(index=1)]}, "no list of 1 to"),
    "words": ({"data": [row(1), row("one", index=1)]}, "no list of 1 to"),
    "booleans": ({"data": [row(1), row(True, index=1)]}, "no list of 1 to"),
    "too long": ({"data": [row(1), row(*[1] * (NUMBERS + 1), index=1)]}, "no list of 1 to"),
    "two lengths": ({"data": [row(1), row(1, 2, index=1)]}, "several lengths"),
    "NaN": ({"data": [row(1), row(math.nan, index=1)]}, "NaN or infinity"),
    "infinity": ({"data": [row(1), row(math.inf, index=1)]}, "NaN or infinity"),
    "beyond a float": ({"data": [row(1), row(10**400, index=1)]}, "NaN or infinity"),
    "its square": ({"data": [row(1), row(1e200, index=1)]}, "NaN or infinity"),
    "zeros": ({"data": [row(1), row(0.0, index=1)]}, "zeros alone"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_that_is_no_vectors_is_refused_in_one_sentence(name: str) -> None:
    told, said = HOSTILE[name]
    with pytest.raises(Refused, match=said) as caught:
        vectors_of(told, 2, "http://h/v1")
    assert caught.value.message.startswith("http://h/v1 ")
    assert "\n" not in caught.value.message
    assert caught.value.remedy


def test_what_is_no_json_or_too_large_is_refused(peer: Peer) -> None:
    peer.answer = lambda body, count: Response('{"data": [' + "1, " * 700_000)
    with pytest.raises(Refused, match=r"more than 3\d\d,\d\d\d bytes"):
        Embedder(peer.url, "m").query("x", 20.0)
    for said in ("[1]", "hello", "[" * 100_000):
        peer.answer = lambda body, count, said=said: Response(said)
        with pytest.raises(Refused, match="did not answer with JSON"):
            Embedder(peer.url, "m").query("x", 20.0)
    huge = vectors_of({"data": [row(*[1e-30] * NUMBERS)]}, 1, "u")
    assert huge.shape == (1, NUMBERS)
    assert np.isfinite(huge).all()
    assert vectors_of({"data": [{"embedding": [1]}, {"embedding": [2]}]}, 2, "u").tolist() == [[1.0], [1.0]]

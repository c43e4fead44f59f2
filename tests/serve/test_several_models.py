"""Several models behind one server: each answers to its own name, in every route, and in one recorded run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from clew.harness import Runner
from clew.models.fakes import Markov
from clew.serve.gateway.recorder import Recorder
from clew.serve.openai.server import Server
from clew.store import Run, open_store
from tests.serve.serving import CHAT, HI, post, talker, using


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    found = talker()
    yield found
    found.close()


def words(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def test_each_name_is_answered_by_its_own_model(model: Any) -> None:
    other = Markov(tokens=True)
    both = Server(model, names=("m",), beside={"n": other})
    for name, alone in (("m", Server(model, names=("m",))), ("n", Server(other, names=("n",)))):
        asked = HI | {"model": name}
        assert words(post(both, CHAT, asked)) == words(post(alone, CHAT, asked))
        for path, body in (
            ("/tokenize", {"model": name, "prompt": "hello"}),
            ("/v1/messages/count_tokens", {"model": name, "messages": HI["messages"]}),
        ):
            assert post(both, path, body).json() == post(alone, path, body).json()
    unnamed, named = ({"prompt": "hello"}, {"model": "m", "prompt": "hello"})
    assert post(both, "/tokenize", unnamed).json() == post(both, "/tokenize", named).json()
    assert post(both, "/v1/embeddings", {"model": "m", "input": "a"}).status_code == 200
    assert "gives no hidden states" in post(both, "/v1/embeddings", {"model": "n", "input": "a"}).text
    lost = post(both, CHAT, HI | {"model": "o"})
    assert lost.status_code == 404
    assert "Ask for m or n" in lost.json()["error"]["message"]

    async def listed(client: Any) -> Any:
        one = await client.get("/v1/models/n")
        return (await client.get("/v1/models")).json()["data"], one.json(), (await client.get("/metrics")).text

    rows, one, metrics = using(both, listed)
    assert [(row["id"], row.get("max_model_len")) for row in rows] == [("m", model.context), ("n", None)]
    assert one["id"] == "n"
    assert 'clew_engine{model="m",what="running"}' in metrics


def test_a_run_of_two_models_is_recorded_with_each_and_replays(model: Any, tmp_path: Any) -> None:
    store, other = open_store(tmp_path / "s.db"), Markov(tokens=True)
    recorder = Recorder(store, model, beside={"n": other})
    server = Server(model, names=("m",), beside={"n": other}, recorder=recorder)

    async def talk(client: Any) -> list[str]:
        asked = [HI | {"model": name} for name in ("m", "n", "m")]
        return [words(await client.post(f"/r/both{CHAT}", json=body)) for body in asked]

    told = using(server, talk)
    assert told[1] == words(post(Server(other, names=("n",)), CHAT, HI | {"model": "n"}))
    run = Run(store, store.find("tag:both")[0])
    asks = [call for call in run.calls if call.kind == "ask"]
    assert [call.setup.model for call in asks if call.setup] == [model.ref, other.ref, model.ref]
    assert [store.node(call.node_out).message.text for call in asks] == told
    assert Runner.of(store, run).replay(run).calls == len(run.calls)

"""A fleet: the answers of local weights, conversations that keep to an endpoint, and endpoints that die."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("prometheus_client")

from clew.core.errors import BadInput, Refused, Unreachable
from clew.core.values import Sampling
from clew.harness import Runner
from clew.models.asking import request
from clew.models.contract import check_model
from clew.models.fleet import Fleet
from clew.models.local import Local
from clew.serve.openai.server import Server
from clew.worlds.toys import Counter
from tests.models.server import serving as peer_serving
from tests.serve.fleet_servers import servers, tiny, twin
from tests.serve.serving import serving


@pytest.fixture(scope="module")
def model() -> Iterator[Local]:
    made = tiny()
    yield made
    made.close()


def test_a_fleet_answers_as_the_weights_do(model: Local) -> None:
    with servers(twin(model), twin(model)) as urls:
        fleet = Fleet(urls, model.renderer)
        assert "check_tokens" in check_model(fleet, ("go north", "look"), same=False)
        asked = request(model, "go north", seed=7, sampling=Sampling(max_tokens=20))
        here, there = asyncio.run(model.complete(asked)), asyncio.run(fleet.complete(asked))
    assert there.tokens == here.tokens
    assert there.logprobs is not None
    assert np.abs(there.logprobs - here.logprobs).max() < 1e-5
    assert there.inner == ()


def test_a_conversation_keeps_to_an_endpoint_and_runs_spread(model: Local) -> None:
    with servers(twin(model), twin(model)) as urls:
        fleet = Fleet(urls, model.renderer)

        async def turns() -> None:
            for turn in range(3):
                asks = [request(model, "look", seed=turn, run=f"r{k}", conversation=0) for k in range(4)]
                await asyncio.gather(*[fleet.complete(ask) for ask in asks])

        asyncio.run(turns())
    homes = {holder: member.where for holder, member in fleet._homes.items()}
    assert len(homes) == 4
    assert sorted(list(homes.values()).count(url) for url in urls) == [2, 2]


def test_a_dead_endpoint_leaves_its_runs_to_the_others_with_one_note(model: Local) -> None:
    notes: list[str] = []
    with ExitStack() as first, servers(twin(model)) as (second,):
        (dying,) = first.enter_context(servers(twin(model)))
        fleet = Fleet([dying, second], model.renderer, note=notes.append, backoff=0.01)

        async def work() -> list[Any]:
            asks = [[request(model, "go", seed=k, run=f"r{k}", conversation=t) for k in range(6)] for t in range(2)]
            before = await asyncio.gather(*[fleet.complete(ask) for ask in asks[0]])
            await asyncio.to_thread(first.close)
            again = [ask._replace(conversation=0) for ask in asks[1]]
            return [before, await asyncio.gather(*[fleet.complete(ask) for ask in again])]

        before, after = asyncio.run(work())
        assert [one.tokens for one in before] == [one.tokens for one in after]
    assert len(notes) == 1
    assert dying in notes[0]
    with pytest.raises(Unreachable, match="none of 2 endpoints answers"):
        asyncio.run(fleet.complete(request(model, "go")))


def test_an_endpoint_that_came_back_is_asked_again(model: Local) -> None:
    notes: list[str] = []
    with servers(twin(model), twin(model)) as urls:
        fleet = Fleet(urls, model.renderer, note=notes.append)
        fleet.members[0].until = 1e-9  # it failed, long ago
        done = asyncio.run(fleet.complete(request(model, "go", run="r", conversation=0)))
    assert done.tokens
    assert notes == [f"{urls[0]} answers again"]
    assert not fleet.members[0].down


def test_runs_of_a_world_over_a_fleet_are_recorded_and_replay(model: Local) -> None:
    with servers(twin(model), twin(model)) as urls:
        fleet = Fleet(urls, model.renderer, ref=model.ref, training=True)
        runner = Runner("clew.harness.agents:player", Counter(), fleet, sampling={"max_tokens": 4})
        groups = runner.collect(Counter().sample(2), 2)
    asks = [call for run in groups.runs for call in run.calls if call.kind == "ask"]
    assert asks
    assert all(call.logprobs is not None and call.setup.model == "tiny" for call in asks)


def test_a_fleet_of_nothing_and_of_one_twice_is_refused(model: Local) -> None:
    with pytest.raises(BadInput, match="a fleet of nothing"):
        Fleet([], model.renderer)
    with pytest.raises(BadInput, match="Give the URL of each server once"):
        Fleet(["http://a", "http://a/v1/"], model.renderer)


def test_an_endpoint_without_token_ids_is_named(model: Local) -> None:
    with peer_serving() as peer:
        peer.answer = lambda body, count: {"choices": [{"index": 0, "text": "go", "finish_reason": "stop"}]}
        fleet = Fleet([peer.url], model.renderer)
        with pytest.raises(Refused, match="without token ids") as error:
            asyncio.run(fleet.complete(request(model, "go")))
    assert "vLLM 0.10.2 or later" in error.value.remedy


def test_logprobs_that_no_trainer_can_use_are_refused(model: Local) -> None:
    with servers(twin(model)) as urls:
        fleet = Fleet(urls, model.renderer, training=True)
        with pytest.raises(Refused, match="no logprobs of the distribution"):
            asyncio.run(fleet.complete(request(model, "go", sampling=Sampling(temperature=0.7))))


def test_where_all_servers_of_a_training_are_lost_its_runs_wait_until_one_is_there(model: Local) -> None:
    notes: list[str] = []
    with ExitStack() as first:
        (url,) = first.enter_context(servers(twin(model)))
        fleet = Fleet([url], model.renderer, note=notes.append, training=True, backoff=0.01)

        async def work() -> Any:
            before = await fleet.complete(request(model, "go", run="r", conversation=0))
            await asyncio.to_thread(first.close)
            lost = asyncio.ensure_future(fleet.complete(request(model, "go", run="r", conversation=0)))
            while not fleet.members[0].down:
                await asyncio.sleep(0.01)
            held = twin(model)
            with serving(Server(held, names=("m",)), int(url.rpartition(":")[2])):
                fleet.members[0].until = 1e-9
                found = before, await lost
            held.close()
            return found

        before, after = asyncio.run(work())
    assert before.tokens == after.tokens
    assert len(notes) == 2
    assert "its runs wait until it is there again" in notes[0]
    assert notes[1] == f"{url} answers again"
    assert fleet.answers

"""Replies under a grammar, top_p and top_k that a fleet samples train: gradients are those of a direct computation.

The masks come over HTTP, from `clew serve` by the route of token ids and by completions. A server that tells none is
refused with the flag that is missing.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed (pip install 'clew[local]')")
pytest.importorskip("llguidance", reason="did not run: llguidance is not installed (pip install 'clew[local]')")
pytest.importorskip("prometheus_client")

import torch

from clew.core.errors import BadInput, Refused
from clew.core.values import Sampling
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.asking import request
from clew.models.dialects import token_route
from clew.models.fleet import Fleet
from clew.models.fleet.control import Control
from clew.models.kept import unpack
from clew.models.local import Local
from clew.train.rows import rows
from clew.worlds.household import Household
from tests.models.server import failing
from tests.models.server import serving as peer_serving
from tests.serve.fleet_servers import servers
from tests.train.test_kept_rows import _lead, directly, gradients, stepped

WAYS = {
    "grammar": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "grammar": "regex:[a-z ]{3,12}"},
    "lark, top_k": {"temperature": 0.8, "top_p": 1.0, "top_k": 30, "grammar": "lark:start: /[a-m ]/ /[a-z ]+/"},
}


@pytest.fixture
def lead():
    made = _lead(0, True)
    yield made
    made.close()


def copied(model: Local) -> Local:
    return Local(copy.deepcopy(model.module), renderer=model.renderer, ref=model.ref, steady=True)


def house() -> Household:
    return Household(rooms=2, receptacles=2, objects=2, closed=1, steps=2)


@pytest.mark.whole
@pytest.mark.parametrize(("way", "by_ids"), [("grammar", True), ("grammar", False), ("lark, top_k", True)])
def test_gradients_are_those_of_the_law_that_the_server_told(lead, way, by_ids, monkeypatch):
    if not by_ids:
        there = Control.there
        hidden = lambda self, path: _none() if path == token_route.PATH else there(self, path)  # noqa: E731
        monkeypatch.setattr(Control, "there", hidden)
    sampling = WAYS[way]
    with servers(copied(lead), copied(lead)) as urls:
        fleet = Fleet(urls, lead.renderer, ref="lead", training=True)
        runner = Runner(player, house(), fleet, sampling={"max_tokens": 8, **sampling})
        groups = runner.collect(house().sample(1), n=3, seed=1)
        assert {member.remote.dialect for member in fleet.members} == {"generate" if by_ids else "completions"}
    asks = [call for run in groups.runs for call in run.calls if call.kind == "ask"]
    values = {(call.run, call.seq): float(i % 3) - 0.9 for i, call in enumerate(asks)}
    made = rows(groups, values, also={"entropy": 0.02})
    assert made
    assert all(row.kept and not row.held for row in made)
    assert any(len(left) not in (0, 262) for call in asks for left in unpack(call.kept))
    loss, old = directly(lead, made, sampling)
    np.testing.assert_allclose(np.concatenate([row.old[row.sampled] for row in made]), old, atol=1e-6)
    want = gradients(lead, loss)
    got, report = stepped(lead, made)
    assert report.mismatch < 1e-6
    assert {name for name in want if want[name].abs().max() > 1e-4} >= {"model.embed_tokens.weight", "lm_head.weight"}
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, atol=1e-6, rtol=1e-6)


async def _none() -> bool:
    return False


def answered(**choice: Any) -> Any:
    """A server of the route of ids, whose answers have these fields."""
    whole = {"index": 0, "token_ids": [5], "finish_reason": "length", **choice}
    content = [{"token_id": whole["token_ids"][0], "logprob": -1.0}]
    return lambda sent, count: (
        {"choices": [{"logprobs": {"content": content}, **whole}]} if sent.get("token_ids") else failing(422)
    )


@pytest.mark.parametrize("asked", [{"grammar": "regex:[a-z]+"}, {"top_k": 3}], ids=str)
def test_a_server_that_tells_no_mask_is_refused_with_the_flag(lead, asked):
    sampling = Sampling(max_tokens=1, **asked)
    with peer_serving(["completions"], ["inference/v1/generate"]) as peer:
        peer.answer = answered()
        fleet = Fleet([peer.url], lead.renderer, model="m", training=True)
        with pytest.raises(Refused, match="did not say which tokens") as error:
            asyncio.run(fleet.complete(request(lead, "go", sampling=sampling)))
        assert "--return-sampling-mask" in error.value.remedy
        sent = peer.bodies[-1]["sampling_params"]
        assert sent.get("structured_outputs") == ({"regex": "[a-z]+"} if "grammar" in asked else None)
        peer.answer = answered(sampling_mask=[[5, 7]])
        with pytest.raises(Refused, match="no logprobs of the distribution"):  # raw ones are of another law
            asyncio.run(fleet.complete(request(lead, "go", sampling=sampling)))
        peer.answer = answered(sampling_mask=[[7, 5]], sampling_mask_logprobs=[[-2.0, -0.25]])
        done = asyncio.run(fleet.complete(request(lead, "go", sampling=sampling)))
    assert [ids.tolist() for ids in unpack(done.kept)] == [[5, 7]]
    assert done.logprobs.tolist() == [-0.25]


def test_a_reply_that_an_update_ended_goes_on_with_its_sets_and_begins_anew_under_a_grammar(lead):
    ended = answered(token_ids=[6], finish_reason="abort", sampling_mask=[[6, 8]], sampling_logprobs=[-0.5])
    whole = answered(sampling_mask=[[5, 7]], sampling_logprobs=[-0.25])
    for settings, tokens, sets in [({"top_k": 2}, (6, 5), [[6, 8], [5, 7]]), ({"grammar": "regex:a+"}, (5,), [[5, 7]])]:
        with peer_serving(["completions"], ["inference/v1/generate"]) as peer:
            sent = list[Any]()

            def answer(body: Any, count: int, sent: Any = sent) -> Any:
                found = (ended if not sent else whole)(body, count)
                sent += [body["token_ids"]] if body.get("token_ids") else []
                return copy.deepcopy(found)

            peer.answer = answer
            fleet = Fleet([peer.url], lead.renderer, model="m", training=True)
            asked = request(lead, "go", sampling=Sampling(max_tokens=2, **settings))
            done = asyncio.run(fleet.complete(asked))
        assert done.tokens == tokens
        assert [ids.tolist() for ids in unpack(done.kept)] == sets
        assert len(done.logprobs) == len(tokens)
        assert (sent[1] == sent[0]) == ("grammar" in settings)


def test_a_servers_processed_logprobs_are_found_out(lead):
    """Two short replies at two temperatures tell whether logprobs are of the law in force."""
    ids = answered(sampling_mask=[[5, 7]])

    def answer(sent: Any, count: int) -> Any:
        if "prompt" in sent:
            top = {"a": -0.5 / sent["temperature"], "b": -3.0}
            return {"choices": [{"text": "a", "logprobs": {"top_logprobs": [top]}, "finish_reason": "length"}]}
        return ids(sent, count)

    with peer_serving(["completions"], ["inference/v1/generate"]) as peer:
        peer.answer = answer
        fleet = Fleet([peer.url], lead.renderer, model="m", training=True)
        asks = [request(lead, "go", seed=k, sampling=Sampling(max_tokens=1, top_k=2)) for k in range(3)]
        found = [asyncio.run(fleet.complete(ask)) for ask in asks]
    assert [done.logprobs.tolist() for done in found] == [[-1.0]] * 3
    assert sum("prompt" in sent for sent in peer.bodies) == 2


def test_a_given_beginning_under_a_grammar_is_not_sent(lead):
    with servers(copied(lead)) as urls:
        fleet = Fleet(urls, lead.renderer, training=True)
        asked = request(lead, "go", sampling=Sampling(grammar="regex:[a-z]+"))._replace(forced=(5,))
        with pytest.raises(BadInput, match="whose beginning is given"):
            asyncio.run(fleet.complete(asked))

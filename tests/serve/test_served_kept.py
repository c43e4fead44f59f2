"""Replies under top_p and top_k that come over HTTP train as local ones do: the same tokens, sets and logprobs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("prometheus_client")

import clew
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.kept import unpack
from clew.models.local import small
from clew.models.remote import Remote
from clew.serve.openai.server import Server
from clew.worlds.household import Household
from tests.serve.serving import serving


class Seeded:
    """Local weights that draw by the 31 bits of a seed that are sent to a server."""

    version = 0

    def __init__(self, model):
        self.model, self.ref, self.renderer = model, model.ref, model.renderer

    async def complete(self, request):
        return await self.model.complete(request._replace(seed=request.seed & 0x7FFFFFFF))


@pytest.mark.parametrize("stream", [False, True])
def test_local_and_served_rollouts_give_equal_masks_and_train(stream):
    house = Household(rooms=2, receptacles=2, objects=2, closed=1, steps=3)
    model = small(house.vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=256, ref="tiny", steady=True)
    sampling = {"max_tokens": 4, "top_p": 0.9, "top_k": 20, "temperature": 0.8}
    with serving(Server(model, names=("tiny",))) as base:
        far = Remote(f"{base}/v1", "tiny", renderer=model.renderer, stream=stream)
        both = [
            Runner(player, house, m, sampling=sampling).collect(house.sample(1), n=2, seed=3)
            for m in (Seeded(model), far)
        ]
    near, there = ([c for run in groups.runs for c in run.calls if c.kind == "ask"] for groups in both)
    assert len(near) == len(there) > 2
    for one, other in zip(near, there, strict=True):
        assert one.node_out == other.node_out
        assert one.kept == other.kept
        assert all(0 < len(ids) <= 20 for ids in unpack(one.kept))
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-6)
    values = {(c.run, c.seq): 1.0 for c in there}
    made = clew.rows(both[1], values)
    assert all(row.kept for row in made)
    assert Trainer(model).step(made).mismatch < 1e-5
    model.close()

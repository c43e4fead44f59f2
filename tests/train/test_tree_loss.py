"""A tree's loss, each token once, is the loss of its leaves as rows of their own: value and gradient, in float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from clew.credit.tree import tree as credit
from clew.harness import Runner
from clew.harness.agents import player
from clew.harness.trees import grow
from clew.models.local import Local, small
from clew.train.rows import rows
from clew.worlds.sums import Sums


class Odd(Sums):
    """Judged by the words' ids, so that a model that has learnt nothing has a signal."""

    async def judge(self, task, run, world):  # type: ignore[no-untyped-def]
        return {"reward": float(sum(run.reply(1).ids) % 2)}


@pytest.fixture
def model() -> Iterator[Local]:
    made = small(Sums(3, 3).vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=64, ref="tiny", seed=1)
    yield made
    made.close()


def surrogate(module: torch.nn.Module, ids: np.ndarray, weights: np.ndarray) -> torch.Tensor:
    """Minus the sum over tokens of weight x ratio to the present policy, whose gradient is the policy gradient."""
    logits = module(torch.tensor(ids[None].astype(np.int64))).logits[0, :-1]
    logp = logits.log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:].astype(np.int64))]
    return -(torch.tensor(weights[1:], dtype=torch.float64) * (logp - logp.detach()).exp()).sum()


def test_tree_loss_is_row_loss(model: Local) -> None:
    runner = Runner(player, Odd(3, 3), model, sampling={"max_tokens": 14})
    tasks = Odd(3, 3).sample(3)
    groups = grow.collect(runner, tasks, grow.Growth(leaves=10, selector="random", settings=(("floor", 0.0),)), 3)
    inside = [run for run in groups.runs if run.parent is not None and run.parent.token > 0]
    assert len(inside) > 8
    assert all(group.signal for group in groups)

    packed = rows(groups, credit(groups, baseline="group"))
    module = model.module.double()
    module.zero_grad()
    trees = sum(surrogate(module, row.ids, row.weights["pg"]) for row in packed)
    trees.backward()  # type: ignore[union-attr]
    mine = [p.grad.clone() for p in module.parameters()]

    module.zero_grad()
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for group in groups:
        advantage = (group.rewards - group.rewards.mean()) / group.rewards.std()
        for run, a in zip(group, advantage, strict=True):
            path = run.conversation()
            ids = np.array([t for node in path for t in node.ids or ()])
            weights = np.zeros(len(ids))
            reply = len(path[-1].ids or ()) - run.calls[1].head
            weights[-reply:] = a
            total, tokens = total + surrogate(module, ids, weights), tokens + reply
    total.backward()
    decoded = sum(int(row.sampled.sum()) for row in packed)
    assert decoded < 0.8 * tokens, "the rows of leaves repeat what the tree holds once"
    assert float((trees - total).detach()) / tokens == pytest.approx(0.0, abs=1e-6)
    for a, p in zip(mine, module.parameters(), strict=True):
        assert torch.allclose(a / tokens, p.grad / tokens, atol=1e-6)
    assert max(float(a.abs().max()) for a in mine) > 1e-2

"""The fast ways to a logprob agree with the module's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from clew.fit import norms
from clew.fit.collate import applies, collate, plan
from clew.fit.forward import Scorer

from .helpers import VOCABULARY, logprobs, module, rows


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_padded_batches_give_the_logprobs_of_single_rows(temperature):
    net = module()
    made = rows(net, 7, temperature=temperature)
    micro = collate(made, 0, torch.device("cpu"))
    logp, _ = Scorer(net)(micro.ids, micro.at, micro.target, micro.temperature)
    wanted = np.concatenate([logprobs(net, r.ids, temperature)[applies(r, "pg")] for r in made])
    np.testing.assert_allclose(logp.detach().numpy(), wanted, atol=2e-6)
    assert (micro.current == micro.known).all()
    assert not collate(made, 1, torch.device("cpu")).current.any()


def test_chunks_give_the_same_values_and_gradients():
    net = module()
    ids = torch.randint(3, VOCABULARY, (3, 17))
    at, target = torch.arange(40), torch.randint(3, VOCABULARY, (40,))
    results = []
    for chunk in (1 << 24, 7 * VOCABULARY):
        net.zero_grad()
        logp, entropy = Scorer(net, chunk)(ids, at, target, entropy=True)
        (logp.sum() - 0.3 * entropy.sum()).backward()
        results.append([logp.detach(), entropy.detach(), *[p.grad.clone() for p in net.parameters()]])
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(whole, parts, atol=1e-5, rtol=1e-5)


def test_a_head_that_does_more_than_multiply_takes_the_whole_forward_pass():
    class Capped(type(module())):
        def forward(self, **inputs):
            out = super().forward(**inputs)
            out.logits = torch.tanh(out.logits * 50) * 3
            return out

    plain = module()
    capped = Capped(plain.config)
    assert Scorer(plain).direct
    scorer = Scorer(capped)
    assert not scorer.direct
    ids = torch.randint(3, VOCABULARY, (1, 9))
    logp, _ = scorer(ids, torch.arange(8), ids[0, 1:])
    logits = capped(input_ids=ids, use_cache=False).logits[0, :-1]
    torch.testing.assert_close(logp, logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0])


def test_entropy_is_that_of_the_distribution():
    net = module()
    ids = torch.randint(3, VOCABULARY, (1, 9))
    _, entropy = Scorer(net)(ids, torch.arange(8), ids[0, 1:], entropy=True)
    spread = torch.distributions.Categorical(logits=net(input_ids=ids, use_cache=False).logits[0, :-1])
    torch.testing.assert_close(entropy, spread.entropy())


def test_own_rmsnorm_has_the_gradients_of_the_plain_formula():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    w = torch.randn(8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: norms.RMSNorm.apply(x, w, 1e-6), (x, w))
    plain = w * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    torch.testing.assert_close(norms.RMSNorm.apply(x, w, 1e-6), plain)


def test_norms_are_swapped_only_inside_and_only_where_they_agree():
    net = module()
    layers = norms.find(net)
    assert len(layers) == 2 * 4 + 1
    before = [layer.forward.__func__ for layer in layers]
    with norms.swapped(layers):
        assert all("forward" in vars(layer) for layer in layers)
    assert [layer.forward.__func__ for layer in layers] == before

    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.variance_epsilon = nn.Parameter(torch.ones(8)), 1e-6

        def forward(self, x):
            return nn.functional.layer_norm(x, (8,), self.weight)

    assert norms.find(Centred()) == []


def test_plan_covers_every_row_once_within_the_bound():
    made = rows(module(), 40)
    for bound in (20, 64, 10_000):
        parts = plan(made, bound)
        assert sorted(i for part in parts for i in part) == list(range(40))
        assert all(len(p) == 1 or max(len(made[i].ids) for i in p) * len(p) <= bound for p in parts)
    assert len(plan(made, 20)) > len(plan(made, 64)) > len(plan(made, 10_000))


def test_rows_of_one_set_stay_together():
    made = rows(module(), 12)
    for i, row in enumerate(made):
        row.set = f"pair{i // 2}"
    for part in plan(made, 30):
        assert all(i ^ 1 in part for i in part)

"""Losses against hand computation, and against their definitions by a finite difference."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from clew.core.errors import BadInput
from clew.fit.collate import Tokens
from clew.train.losses import entropy, kl, pg, pg_sequence, sft


def tokens(logp, old, weights, mask=None, row=None, **more):
    logp = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    row = torch.tensor(row if row is not None else [0] * len(logp))
    mask = torch.tensor(mask if mask is not None else [True] * len(logp))
    old, weights = torch.tensor(old, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)
    more = {k: torch.tensor(v, dtype=torch.float64) if k in ("ref", "entropy") else v for k, v in more.items()}
    return Tokens(logp, old, weights, mask, row, int(row.max()) + 1, **more)


def test_pg_by_hand():
    # ratios 1.5 (clipped for A > 0, kept for A < 0), 0.5 (kept for A > 0, clipped for A < 0), 1
    logs = [math.log(1.5), math.log(1.5), math.log(0.5), math.log(0.5), 0.0]
    t = tokens(logs, [0.0] * 5, [2.0, -2.0, 2.0, -2.0, 3.0])
    total, count = pg(t)
    assert total.item() == pytest.approx(-(1.2 * 2 - 1.5 * 2 + 0.5 * 2 - 0.8 * 2 + 3))
    assert count.item() == 5
    total.backward()
    assert t.logp.grad.tolist() == pytest.approx([0, 1.5 * 2, -0.5 * 2, 0, -3])
    wide = pg(t, clip=(0.2, 0.6))[0].item()
    assert wide == pytest.approx(-(1.5 * 2 - 1.5 * 2 + 0.5 * 2 - 0.8 * 2 + 3))


def test_on_policy_gradient_is_reinforce():
    logp, weights = [-1.0, -2.0, -0.5], [0.7, -1.1, 0.0]
    for loss in (pg, partial(pg, correction="truncate"), partial(pg, correction="mask")):
        t = tokens(logp, logp, weights)
        loss(t)[0].backward()
        assert t.logp.grad.tolist() == pytest.approx([-w for w in weights])


def test_tokens_outside_the_mask_give_nothing():
    t = tokens([-1.0, -400.0, -2.0], [-1.0, 400.0, -2.0], [1.0, 9.0, 1.0], [True, False, True])
    total, count = pg(t)
    total.backward()
    assert (total.item(), count.item()) == (pytest.approx(-2.0), 2)
    assert t.logp.grad.tolist() == pytest.approx([-1, 0, -1])


def test_correction_truncates_and_masks_the_mismatch_weight():
    logs = [math.log(3.0), math.log(1.25), math.log(0.25)]
    t = tokens(logs, [0.0] * 3, [1.0, 1.0, 1.0])
    assert pg(t, correction="truncate")[0].item() == pytest.approx(-(2 + 1.25 + 0.25))
    assert pg(t, correction="mask")[0].item() == pytest.approx(-1.25)
    near = torch.tensor([0.0, 0.0, 0.0], dtype=torch.float64)  # the trainer at its old weights agrees with the sampler
    t = t._replace(targets={"proximal": near})
    assert pg(t, correction="truncate")[0].item() == pytest.approx(pg(t)[0].item())


def test_sequence_mean_by_hand():
    t = tokens([0.0] * 5, [0.0] * 5, [1.0, 1.0, 1.0, 4.0, 9.0], [True, True, True, True, False], [0, 0, 0, 1, 2])
    total, count = pg_sequence(t)
    assert total.item() == pytest.approx(-(1 + 4))
    assert count.item() == 2  # the third row has no token
    assert pg(t)[0].item() == pytest.approx(-7)


def test_sequence_ratio_is_shared_and_clipped_as_one():
    gaps = [0.3, -0.1, 0.1, 0.9, 0.7]
    t = tokens(gaps, [0.0] * 5, [1.0, 1.0, 1.0, 1.0, 1.0], row=[0, 0, 0, 1, 1])
    total, _ = pg_sequence(t, ratio="sequence")
    first, second = math.exp(0.1), 1.2  # exp(0.8) is clipped
    assert total.item() == pytest.approx(-(first + second))
    total.backward()
    assert t.logp.grad.tolist() == pytest.approx([-first / 3] * 3 + [0, 0])


def test_kl_estimators_by_hand():
    d = [0.5, -0.25]
    t = tokens([-1.0, -2.0], [0.0, 0.0], [1.0, 2.0], ref=[-0.5, -2.25])
    assert kl(t, "k1")[0].item() == pytest.approx(-(d[0] + 2 * d[1]))
    assert kl(t, "k2")[0].item() == pytest.approx(d[0] ** 2 / 2 + d[1] ** 2)
    assert kl(t)[0].item() == pytest.approx(sum(w * (math.exp(x) - x - 1) for w, x in zip([1, 2], d, strict=True)))
    with pytest.raises(BadInput, match="reference"):
        kl(t._replace(ref=None))


def test_k3_is_unbiased_and_k2_pulls_towards_the_reference():
    p, q = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.2, 0.6]).double()
    t = tokens(p.log().tolist(), [0.0] * 3, p.tolist(), ref=q.log().tolist())
    assert kl(t)[0].item() == pytest.approx((p * (p / q).log()).sum().item())
    t = tokens([-1.0], [0.0], [1.0], ref=[-0.5])
    kl(t, "k2")[0].backward()
    assert t.logp.grad.item() == pytest.approx(-0.5)


def test_sft_is_a_weighted_mean_and_entropy_a_bonus():
    t = tokens([-1.0, -3.0, -5.0], [0.0] * 3, [1.0, 0.2, 0.0], [True, True, False], entropy=[0.5, 1.0, 2.0])
    total, count = sft(t)
    assert total.item() / count.item() == pytest.approx((1 + 0.6) / 1.2)
    assert entropy(t)[0].item() == pytest.approx(-(0.5 + 0.2))


@pytest.mark.parametrize("loss", [pg, pg_sequence, kl, sft, partial(pg_sequence, ratio="sequence", clip=9.0)])
def test_gradients_match_finite_differences(loss):
    torch.manual_seed(1)
    base = tokens(
        (-torch.rand(6)).tolist(), (-torch.rand(6)).tolist(), torch.randn(6).tolist(), row=[0, 0, 1, 1, 1, 2],
        ref=(-torch.rand(6)).tolist(),
    )  # fmt: skip
    if (
        getattr(loss, "keywords", {}).get("ratio") == "sequence"
    ):  # its value is that of the sequence only at equal tokens
        step = 1e-6
        moved = base._replace(logp=base.logp + step * torch.ones(6))
        slope = (loss(moved)[0] - loss(base)[0]).item() / step
        loss(base)[0].backward()
        assert base.logp.grad.sum().item() == pytest.approx(slope, rel=1e-4)
    else:
        assert torch.autograd.gradcheck(lambda x: loss(base._replace(logp=x))[0], base.logp)

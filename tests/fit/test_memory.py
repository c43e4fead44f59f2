"""What saves memory changes no numbers: activations computed again; and float32 masters of bfloat16 weights."""

from __future__ import annotations

import pytest
import torch

from clew.core.errors import BadInput
from clew.fit.trainer import Trainer

from .helpers import Served, module, rows


def test_recomputed_activations_give_the_same_bits():
    plain, again = Served(), Served()
    made = [rows(plain.module, 5, seed) for seed in range(3)]
    one, other = (Trainer(net, recompute=net is again, shared_prefixes="off") for net in (plain, again))
    calls = []
    again.module.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    for batch in made:
        for row in batch:
            row.version = -1
        reports = one.step(batch), other.step(batch)
        assert reports[0].grad_norm == reports[1].grad_norm
    assert len(calls) == 6  # forward, and again
    for name, weight in plain.weights().items():
        assert torch.equal(again.weights()[name], weight), name


def test_a_model_that_cannot_recompute_is_refused():
    model = Served()
    model.module.supports_gradient_checkpointing = False
    with pytest.raises(BadInput, match="Qwen3ForCausalLM cannot recompute activations"):
        Trainer(model, recompute=True)


def test_masters_keep_the_updates_that_bfloat16_loses(tmp_path):
    made = rows(module(), 5)
    for row in made:
        row.version = -1
    plain, kept = Served(dtype=torch.bfloat16), Served(dtype=torch.bfloat16)
    start = kept.weights()
    lost, trainer = Trainer(plain, lr=1e-6, precision="bfloat16"), Trainer(kept, lr=1e-6, masters=True)
    for _ in range(3):
        lost.step(made)
        trainer.step(made)
    moved = dict(trainer.module.named_parameters())
    name = "model.layers.0.mlp.up_proj.weight"
    assert moved[name].dtype == torch.float32
    assert kept.weights()[name].dtype == torch.bfloat16
    steps = (moved[name].detach() - start[name].float()).abs()
    assert 1e-6 < float(steps.max()) < 1e-5
    still = (plain.weights()[name] == start[name]).float().mean()
    assert still > 0.9  # most of what each step did was rounded away
    assert torch.equal(kept.weights()[name], moved[name].detach().bfloat16())
    trainer.save(tmp_path / "here")
    again = Trainer(Served(seed=3, dtype=torch.bfloat16), lr=1e-6, masters=True)
    again.load(tmp_path / "here")
    for one in (trainer, again):
        one.step(made)
    for name, parameter in trainer.module.named_parameters():
        assert torch.equal(dict(again.module.named_parameters())[name], parameter), name

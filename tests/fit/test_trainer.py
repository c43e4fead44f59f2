"""The trainer: normalisation, resume, parity of sampler and trainer, adapters."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.fit.collate import applies
from clew.fit.trainer import Trainer
from clew.train.losses import kl, pg, pg_sequence

from .helpers import Served, logprobs, module, rows, scored


def gradient(trainer: Trainer, made: list[LossRow]) -> list[torch.Tensor]:
    """The gradient of a step, caught before the optimiser."""
    caught: list[torch.Tensor] = []
    trainer.optimizer.step = lambda scale=1.0: caught.extend(p.grad.clone() for p in trainer.module.parameters())
    trainer.step(made)
    return caught


def test_first_step_follows_the_reinforce_gradient_written_out():
    model = Served()
    made = rows(model.module, 5)
    expected = torch.autograd.grad(
        -sum((scored(model.module, r) * torch.from_numpy(r.weights["pg"][1:])).sum() for r in made)
        / sum(int(r.sampled[1:].sum()) for r in made),
        list(model.module.parameters()),
    )
    for caught, wanted in zip(gradient(Trainer(model, clip=None), made), expected, strict=True):
        torch.testing.assert_close(caught, wanted, atol=1e-6, rtol=1e-4)


def test_one_step_of_adamw_is_torchs():
    model, twin = Served(), Served()
    made = rows(model.module, 5)
    Trainer(model, lr=1e-3, clip=None).step(made)
    reference = torch.optim.AdamW(twin.module.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0)
    count = sum(int(r.sampled[1:].sum()) for r in made)
    (-sum((scored(twin.module, r) * torch.from_numpy(r.weights["pg"][1:])).sum() for r in made) / count).backward()
    reference.step()
    for name, weight in twin.weights().items():
        torch.testing.assert_close(model.weights()[name], weight, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("loss", [pg, pg_sequence, partial(pg_sequence, ratio="sequence")])
def test_micro_batches_do_not_change_the_gradient(loss):
    grads = []
    for bound in (20, 60, 100_000):
        model = Served()
        made = rows(model.module, 11)
        for i, row in enumerate(made):  # two components with counts of their own, in different rows
            row.old = row.old + np.float32(0.01)
            row.version = -1
            if i % 3 == 0:
                row.weights["sft"] = np.linspace(0, 1, len(row.ids), dtype=np.float32)
        trainer = Trainer(model, losses={"pg": loss}, batch_tokens=bound)
        grads.append(gradient(trainer, made))
    for other in grads[1:]:
        for a, b in zip(grads[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


def test_each_component_is_divided_by_its_own_count():
    model = Served()
    made = rows(model.module, 6)
    alone = Trainer(Served()).step(made).loss["pg"]
    for row in made[:2]:
        row.weights["sft"] = np.ones(len(row.ids), np.float32)
    both = Trainer(model).step(made).loss
    assert both["pg"] == pytest.approx(alone, abs=1e-6)
    nll = [-logprobs(Served().module, row.ids)[1:] for row in made[:2]]
    assert both["sft"] == pytest.approx(float(np.concatenate(nll).mean()), rel=1e-5)


def test_zero_weights_count_and_missing_streams_do_not():
    model = Served()
    row = rows(model.module, 1)[0]
    dead = LossRow(row.ids, row.sampled, {"pg": np.zeros_like(row.weights["pg"])}, row.old)
    silent = LossRow(row.ids, row.sampled, {}, row.old)
    one = Trainer(Served()).step([row]).loss["pg"]
    assert Trainer(Served()).step([row, dead]).loss["pg"] == pytest.approx(one / 2, rel=1e-5)
    assert Trainer(Served()).step([row, silent]).loss["pg"] == pytest.approx(one, rel=1e-5)
    assert applies(silent, "pg").sum() == 0


def test_kl_and_entropy_components():
    model = Served()
    made = rows(model.module, 4)
    for row in made:
        row.ref = logprobs(module(9), row.ids)
        row.weights = {"kl": row.sampled.astype(np.float32), "entropy": 0.5 * row.sampled.astype(np.float32)}
    report = Trainer(model, losses={"kl": partial(kl, estimator="k1")}).step(made)
    gap = [(logprobs(Served().module, r.ids) - r.ref)[applies(r, "kl")] for r in made]
    assert report.loss["kl"] == pytest.approx(float(np.concatenate(gap).mean()), rel=1e-4)
    assert -0.5 * np.log(40) < report.loss["entropy"] < 0


def test_a_step_serves_new_weights_and_reports():
    model = Served()
    made = rows(model.module, 6)
    before = model.weights()
    report = Trainer(model).step(made)
    assert (report.step, report.version, model.version, report.rows) == (1, 1, 1, 6)
    assert any(not torch.equal(w, before[name]) for name, w in model.weights().items())
    assert report.ratio["mean"] == pytest.approx(1, abs=1e-4)
    assert report.ratio["outside"] == 0
    assert report.mismatch is not None
    assert report.mismatch < 1e-5
    assert report.tokens == sum(len(r.ids) for r in made)
    assert set(report.metrics()) >= {"loss/pg", "ratio/max", "mismatch", "grad_norm", "cpu_seconds"}


def test_a_duplicated_end_token_is_caught_in_the_first_batch():
    model = Served()
    made = rows(model.module, 4)
    row, at = made[2], 4
    doubled = np.insert(row.ids, at, row.ids[at])
    made[2] = LossRow(
        doubled,
        np.insert(row.sampled, at, False),
        {"pg": np.insert(row.weights["pg"], at, 0)},
        np.insert(row.old, at, np.nan),
    )
    before = model.weights()
    with pytest.raises(BadInput, match="sampler and trainer disagree") as error:
        Trainer(model).step(made)
    assert "end token twice" in str(error.value)
    assert all(torch.equal(w, before[name]) for name, w in model.weights().items())
    assert model.version == 0


def test_stale_rows_are_not_taken_for_a_mismatch_and_tolerance_can_be_set():
    model = Served()
    made = rows(model.module, 4)
    for row in made:
        row.old = row.old + np.float32(0.02)
    assert Trainer(Served(), tolerance=0.05).step(made).mismatch == pytest.approx(0.02, abs=1e-4)
    for row in made:
        row.version = -1
    report = Trainer(Served()).step(made)
    assert report.mismatch is None
    assert report.ratio["mean"] == pytest.approx(np.exp(-0.02), abs=1e-4)


def test_temperature_is_that_of_the_sampling():
    model = Served()
    made = rows(model.module, 4, temperature=0.6)
    assert Trainer(model).step(made).mismatch < 1e-5
    for row in made:
        row.temperature = 1.0
    with pytest.raises(BadInput, match="disagree"):
        Trainer(Served()).step(made)


@pytest.mark.parametrize("settings", [{}, {"optimizer": "muon"}, {"lora": {"r": 2}}])
def test_two_steps_saved_and_two_more_are_four_bit_for_bit(tmp_path, settings):
    made = [rows(module(), 5, seed) for seed in range(4)]
    for batch in made:
        for row in batch:
            row.version = -1
    whole = Served()
    trainer = Trainer(whole, **settings)
    for batch in made:
        trainer.step(batch)
    first = Trainer(Served(), **settings)
    for batch in made[:2]:
        first.step(batch)
    torch.manual_seed(77)
    first.save(tmp_path / "here", {"iteration": 2, "name": "t"})
    noise = torch.rand(3)
    resumed = Trainer(Served(0 if "lora" in settings else 5), **settings)
    assert resumed.load(tmp_path / "here") == {"iteration": 2, "name": "t"}
    assert torch.equal(torch.rand(3), noise)
    assert (resumed.steps, resumed.model.version) == (2, 2)
    for batch in made[2:]:
        report = resumed.step(batch)
    assert (report.step, report.version) == (4, 4)
    for name, weight in whole.weights().items():
        assert torch.equal(resumed.model.weights()[name], weight), name


def test_saved_weights_are_a_folder_that_from_pretrained_loads(tmp_path):
    model = Served()
    trainer = Trainer(model, lora={"r": 2})
    trainer.step(rows(model.module, 4))
    trainer.save(tmp_path / "here")
    loaded = type(model.module).from_pretrained(tmp_path / "here")
    ids = np.array([3, 4, 5, 6, 7], np.int32)
    assert not any("lora" in name for name in loaded.state_dict())
    np.testing.assert_allclose(logprobs(loaded, ids), logprobs(model.module, ids), atol=1e-5)
    assert np.abs(logprobs(loaded, ids) - logprobs(module(), ids)).max() > 1e-5


def test_lora_trains_adapters_only():
    model = Served()
    base = model.weights()
    trainer = Trainer(model, lora={"r": 2}, lr=1e-2)
    trainable = [name for name, p in model.module.named_parameters() if p.requires_grad]
    assert trainable
    assert all("lora_" in name for name in trainable)
    made = rows(model.module, 4)
    for _ in range(2):
        trainer.step(made)
    after = {name.replace("base_layer.", ""): w for name, w in model.weights().items()}
    assert all(torch.equal(after[name], w) for name, w in base.items())
    assert any(after[name].abs().sum() > 0 for name in after if "lora_B" in name)


def test_muon_takes_the_hidden_matrices():
    trainer = Trainer(Served(), optimizer="muon")
    muon, _ = trainer.optimizer.parts
    assert isinstance(muon, torch.optim.Muon)
    taken = {id(p) for group in muon.param_groups for p in group["params"]}
    names = {name for name, p in trainer.module.named_parameters() if id(p) in taken}
    assert len(names) == 14
    assert all(name.startswith("model.layers.") and name.endswith("proj.weight") for name in names)
    assert sum(len(g["params"]) for p in trainer.optimizer.parts for g in p.param_groups) == len(
        list(trainer.module.parameters())
    )


def test_learning_happens_and_the_rate_can_be_scaled():
    model = Served()
    made = rows(model.module, 6)
    for row in made:
        row.weights = {"sft": np.ones(len(row.ids), np.float32)}
    trainer = Trainer(model, lr=1e-2)
    losses = [trainer.step(made).loss["sft"] for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    still = model.weights()
    trainer.step(made, lr_scale=0.0)
    assert all(torch.equal(w, still[name]) for name, w in model.weights().items())


def test_bad_rows_name_what_is_wrong():
    model = Served()
    good = rows(model.module, 1)[0]
    trainer = Trainer(model)
    with pytest.raises(BadInput, match="at least one row"):
        trainer.step([])
    with pytest.raises(BadInput, match="'pg' has weights that are not finite"):
        trainer.step([LossRow(good.ids, good.sampled, {"pg": good.weights["pg"] + np.nan}, good.old)])
    with pytest.raises(BadInput, match="without the sampler's logprob"):
        trainer.step([LossRow(good.ids, good.sampled, good.weights, good.old + np.nan)])
    with pytest.raises(BadInput, match="values for"):
        trainer.step([LossRow(good.ids, good.sampled[:-1], good.weights, good.old)])
    with pytest.raises(BadInput, match="no weight stream"):
        trainer.step([LossRow(good.ids, good.sampled, {}, good.old)])
    with pytest.raises(BadInput, match="optimiser"):
        Trainer(model, optimizer="sgd")
    with pytest.raises(BadInput, match="lora"):
        Trainer(Served(), lora={"rank": 3})


def test_half_precision_trains_within_its_own_tolerance():
    model = Served()
    made = rows(model.module, 6)
    report = Trainer(model, precision="bfloat16").step(made)
    assert 1e-6 < report.mismatch < 0.05
    assert all(p.dtype == torch.float32 for p in model.module.parameters())
    with pytest.raises(BadInput, match="disagree"):
        Trainer(Served(), precision="bfloat16", tolerance=1e-6).step(made)

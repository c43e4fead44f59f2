"""LoRA adapters out and in: peft loads what a trainer saves, a trainer goes on with what peft saved."""

from __future__ import annotations

import json
import pickle

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from clew.core.errors import BadInput
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.agents import player
from clew.models.local import Local, small
from clew.train.rows import rows as policy_rows
from clew.worlds.household import Household

from .helpers import Served, logprobs, module, rows

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft's own
IDS = np.arange(3, 23).astype(np.int32)


def trained(model: Served, steps: int = 3, **settings: object) -> Trainer:
    trainer = Trainer(model, lr=2e-2, **settings)  # type: ignore[arg-type]
    for seed in range(steps):
        trainer.step(rows(model.module, 4, seed, version=-1))
    return trainer


def test_peft_loads_and_merges_what_was_saved(tmp_path):
    model = Served()
    trained(model, lora={"r": 4, "lora_alpha": 16, "target_modules": ["q_proj", "down_proj"]}).save(tmp_path / "c")
    mine = logprobs(model.module, IDS)
    assert np.abs(mine - logprobs(module(), IDS)).max() > 1e-3, "it has learnt"
    wrapped = peft.PeftModel.from_pretrained(module(), tmp_path / "c" / "adapter")
    np.testing.assert_allclose(logprobs(wrapped, IDS), mine, atol=1e-6)
    merged = wrapped.merge_and_unload()
    np.testing.assert_allclose(logprobs(merged, IDS), mine, atol=1e-5)
    exported = type(model.module).from_pretrained(tmp_path / "c")  # the checkpoint itself is the merged export
    np.testing.assert_allclose(logprobs(exported, IDS), mine, atol=1e-5)
    assert peft.PeftConfig.from_pretrained(tmp_path / "c" / "adapter").base_model_name_or_path == "served"


def of_peft(folder, seed=3, **settings):
    """An adapter as peft makes and saves it, with weights that change what the model says."""
    torch.manual_seed(seed)
    config = peft.LoraConfig(**{"r": 3, "lora_alpha": 7, "target_modules": ["q_proj", "v_proj"], **settings})
    wrapped = peft.get_peft_model(module(), config)
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    wrapped.save_pretrained(folder)
    return logprobs(wrapped, IDS)


@pytest.mark.parametrize("settings", [{}, {"use_rslora": True}, {"target_modules": "all-linear", "r": 2}])
def test_what_peft_saved_is_taken_up_trained_on_and_handed_back(tmp_path, settings):
    said = of_peft(tmp_path / "peft", **settings)
    model = Served()
    trainer = Trainer(model, lr=1e-2, adapter=tmp_path / "peft")
    np.testing.assert_allclose(logprobs(model.module, IDS), said, atol=1e-6)
    assert model.version == 1, "runs of these weights are not runs of the base"
    made = rows(model.module, 4, version=1)
    trainer.step(made)  # the rows say what this module samples: a trainer of other weights would refuse them
    base = {n: p for n, p in model.module.named_parameters() if "lora_" not in n}
    assert all(torch.equal(p, module().get_parameter(n.replace("base_layer.", ""))) for n, p in base.items())
    trainer.save(tmp_path / "c")
    now = logprobs(model.module, IDS)
    assert np.abs(now - said).max() > 1e-4
    again = peft.PeftModel.from_pretrained(module(), tmp_path / "c" / "adapter")
    np.testing.assert_allclose(logprobs(again, IDS), now, atol=1e-6)
    further = Served()
    Trainer(further, adapter=tmp_path / "c" / "adapter")
    np.testing.assert_allclose(logprobs(further.module, IDS), now, atol=1e-6)


def test_a_training_from_an_adapter_goes_on_to_the_same_bits(tmp_path):
    of_peft(tmp_path / "peft")
    made = [rows(module(), 4, seed, version=-1) for seed in range(4)]
    whole, first, second = Served(), Served(), Served()
    settings = {"lr": 1e-2, "adapter": tmp_path / "peft"}
    trainer = Trainer(whole, **settings)
    for batch in made:
        trainer.step(batch)
    half = Trainer(first, **settings)
    for batch in made[:2]:
        half.step(batch)
    half.save(tmp_path / "half")
    rest = Trainer(second, **settings)
    rest.load(tmp_path / "half")
    for batch in made[2:]:
        rest.step(batch)
    assert all(torch.equal(w, second.weights()[name]) for name, w in whole.weights().items())


def test_dropout_of_adapters_is_kept_out_of_the_check_and_goes_on_to_the_same_bits(tmp_path):
    lora = {"r": 2, "lora_dropout": 0.5}
    made = [rows(module(), 4, seed, version=-1) for seed in range(4)]

    def steps(model: Served, batches: list, begun=None) -> Trainer:
        torch.manual_seed(11)
        trainer = Trainer(model, lr=2e-2, lora=lora)
        if begun is not None:
            trainer.load(begun)
        for batch in batches:
            trainer.step(batch)
        return trainer

    whole, other = Served(), Served()
    steps(whole, made)
    steps(Served(), made[:2]).save(tmp_path / "half")
    steps(other, made[2:], tmp_path / "half")
    assert all(torch.equal(w, other.weights()[name]) for name, w in whole.weights().items())
    model = Served()
    trainer = Trainer(model, lora=lora)
    with torch.no_grad():
        for name, parameter in model.module.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.5)
    model.module.eval()  # as a sampler has it
    assert trainer.step(rows(model.module, 4)).mismatch < 1e-4
    with pytest.raises(BadInput, match="disagree"):
        Trainer(Served(), lora=lora).step(rows(model.module, 4))


def test_the_engine_samples_from_the_adapter(tmp_path):
    house = Household(rooms=2, receptacles=2, objects=2, closed=1, steps=4)
    made = small(house.vocabulary(), 16, 1, 2, 1, context=256, seed=1, ref="base")
    made.save(tmp_path / "base")
    wrapped = peft.get_peft_model(made.module, peft.LoraConfig(r=2, target_modules="all-linear"))
    torch.manual_seed(0)
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    wrapped.save_pretrained(tmp_path / "adapter")
    model = Local(tmp_path / "base")
    trainer = Trainer(model, adapter=tmp_path / "adapter")
    groups = Runner(player, house, model, sampling={"max_tokens": 3}).collect(house.sample(2), 2)
    asks = {(c.run, c.seq): 1.0 for run in groups.runs for c in run.calls if c.kind == "ask"}
    found = policy_rows(groups, asks)
    assert trainer.step(found).mismatch < 1e-4
    plain = Trainer(Local(tmp_path / "base"))
    for row in found:
        row.version = 0
    with pytest.raises(BadInput, match="disagree"):
        plain.step(found)
    for one in (model, plain.model, made):
        one.close()


def changed(folder, **settings):
    config = folder / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"peft_type": "IA3"}, "kind 'IA3'"),
        ({"bias": "all"}, "bias='all'"),
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"(a+)+$": 2}}, "rank_pattern"),
        ({"lora_alpha": "8"}, "lora_alpha is '8'"),
    ],
)
def test_adapters_that_are_not_served_are_refused(tmp_path, settings, told):
    of_peft(tmp_path)
    changed(tmp_path, **settings)
    with pytest.raises(BadInput, match=told) as refused:
        Trainer(Served(), adapter=tmp_path)
    assert refused.value.remedy


def test_an_adapter_of_another_base_is_refused(tmp_path):
    of_peft(tmp_path / "a")
    other = small(["a", "b"], 32, 2, 2, 1, context=64)
    with pytest.raises(BadInput, match=r"of another base model: 'model.layers.0.self_attn.q_proj' is"):
        Trainer(other, adapter=tmp_path / "a")
    other.close()
    weights = load_file(tmp_path / "a" / "adapter_model.safetensors")
    moved = {name.replace("layers.1", "layers.7"): tensor for name, tensor in weights.items()}
    save_file(moved, tmp_path / "a" / "adapter_model.safetensors")
    with pytest.raises(BadInput, match="which this model does not have"):
        Trainer(Served(), adapter=tmp_path / "a")


def test_folders_that_are_no_adapters_are_refused_and_pickles_are_not_read(tmp_path):
    with pytest.raises(BadInput, match="holds no adapter"):
        Trainer(Served(), adapter=tmp_path / "nowhere")
    of_peft(tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    kept = load_file(weights)
    weights.write_bytes(b"\xff" * 64)
    with pytest.raises(BadInput, match="cannot be read"):
        Trainer(Served(), adapter=tmp_path)
    save_file({name: tensor for name, tensor in kept.items() if "lora_A" in name}, weights)
    with pytest.raises(BadInput, match="not served"):
        Trainer(Served(), adapter=tmp_path)
    weights.unlink()

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (tmp_path / "adapter_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(BadInput, match="a pickle, which can run code"):
        Trainer(Served(), adapter=tmp_path)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "adapter_config.json").write_text("[" * 10_000)
    with pytest.raises(BadInput, match="is not JSON"):
        Trainer(Served(), adapter=tmp_path)
    with pytest.raises(BadInput, match="has its own rank"):
        Trainer(Served(), adapter=tmp_path, lora={"r": 2})

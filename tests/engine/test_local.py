"""Loading, saving, scoring, families with and without a fast forward, adapters."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers

from clew.core.errors import BadInput, UnknownName
from clew.models.engine.forwards.fast import Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.local import Local, small
from clew.models.rendering import WordRenderer
from tests.engine.helpers import WORDS, Talk, ask, expected, sharpen

Make = Callable[..., Local]
SIZES: dict[str, Any] = {
    "vocab_size": 47, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
FAST = {
    "llama": transformers.LlamaConfig(**SIZES, tie_word_embeddings=False),
    "llama3-rope": transformers.LlamaConfig(
        **SIZES, attention_bias=True, mlp_bias=True,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "mistral": transformers.MistralConfig(**SIZES, sliding_window=None),
    "qwen2": transformers.Qwen2Config(**SIZES),
    "qwen3": transformers.Qwen3Config(**SIZES, head_dim=24, tie_word_embeddings=True),
}  # fmt: skip
SLOW = {
    "bloom": transformers.BloomConfig(vocab_size=47, hidden_size=32, n_layer=2, n_head=4),
    "qwen2-dynamic-rope": transformers.Qwen2Config(
        **SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    ),
}


def built(config: Any, **options: Any) -> Local:
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_config(config)
    sharpen(module, by=0.1)
    return Local(module, renderer=WordRenderer(WORDS), ref="built", **options)


def played(model: Local, turns: int = 3) -> list[Talk]:
    """Several talks of several turns; each reply checked against the module's own forward."""
    talks = [Talk(model, f"r{i}").say(" ".join(WORDS[i : i + 3 + i])) for i in range(4)]
    for number in range(turns):
        requests = [t.request(10 * number + i) for i, t in enumerate(talks)]
        for talk, request, answer in zip(talks, requests, ask(model, requests), strict=True):
            np.testing.assert_allclose(answer.logprobs, expected(model.module, request, answer.tokens or ()), atol=1e-4)
            talk.take(answer)
            talk.say("w3 w4")
    return talks


@pytest.mark.parametrize("family", FAST)
def test_fast_forward_agrees_with_the_modules_own(family: str) -> None:
    model, slow = built(FAST[family]), built(FAST[family], fast=False)
    assert isinstance(model.engine._batch.forward, Fast)
    assert isinstance(slow.engine._batch.forward, Generic)
    assert [t.ids for t in played(model)] == [t.ids for t in played(slow)]


@pytest.mark.parametrize("family", SLOW)
def test_other_families_take_the_generic_path(family: str) -> None:
    model = built(SLOW[family])
    assert type(model.engine._batch.forward) is Generic
    assert model.engine._batch.forward.reuses
    played(model)
    with pytest.raises(BadInput, match="no fast forward"):
        built(SLOW[family], fast=True)


def test_a_module_without_past_key_values_is_computed_whole() -> None:
    config = transformers.MambaConfig(vocab_size=47, hidden_size=32, num_hidden_layers=2, state_size=4)
    model = built(config, context=128)
    talks = [Talk(model, f"r{i}").say(" ".join(WORDS[i : i + 3 + i])) for i in range(3)]
    for number in range(2):
        for talk in talks:
            request = talk.request(number)
            answer = ask(model, [request])[0]
            np.testing.assert_allclose(answer.logprobs, expected(model.module, request, answer.tokens or ()), atol=1e-4)
            talk.take(answer)
            talk.say("w3 w4")


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft's, about transformers
def test_adapters_are_served_merged() -> None:
    model = built(FAST["qwen3"])
    plain = ask(model, [Talk(model).say("w1 w2").request(3)])[0]
    wrapped = peft.get_peft_model(model.module, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))
    sharpen(wrapped, 5, 0.2)
    served = Local(wrapped, renderer=model.renderer, ref="lora")
    assert isinstance(served.engine._batch.forward, Fast)
    played(served)
    assert ask(served, [Talk(served).say("w1 w2").request(3)])[0].tokens != plain.tokens


def test_scores_are_logprobs_of_the_modules_forward_and_of_the_sampler(make: Make) -> None:
    model = make()
    rows = [Talk(model, f"{i}").say(" ".join(WORDS[: i + 1])).ids for i in range(5)]
    for row, found in zip(rows, model.score(rows, 0.5), strict=True):
        with torch.no_grad():
            logp = (model.module(torch.tensor([row])).logits[0] / 0.5).log_softmax(-1)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, [float(logp[i, t]) for i, t in enumerate(row[1:])], atol=1e-5)
    talk = Talk(model).say("w1 w2 w3")
    answer = ask(model, [talk.request(5, max_tokens=20)])[0]
    assert answer.tokens is not None
    assert answer.logprobs is not None
    scored = model.score([[*talk.ids, *talk.renderer.head(), *answer.tokens]])[0][-len(answer.tokens) :]
    assert np.abs(scored - answer.logprobs).max() < 1e-4
    for bad in ([[]], [[1] * 300]):
        with pytest.raises(BadInput, match="Give 1 to 256 tokens a row"):
            model.score(bad)


def test_saved_weights_load_here_and_in_transformers(make: Make, tmp_path: Path) -> None:
    model = make()
    model.save(tmp_path / "kept")
    again = Local(tmp_path / "kept")
    assert again.renderer.ref == model.renderer.ref
    assert again.ref == str(tmp_path / "kept")
    one, two = (ask(m, [Talk(m).say("w1 w2").request(3)])[0] for m in (model, again))
    assert one.tokens == two.tokens
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "kept")
    assert tuple(tokenizer.encode("w1 nowhere w2")) == model.renderer.encode("w1 nowhere w2")
    transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "kept")


@pytest.mark.parametrize("source", ["/nowhere/at/all", "./missing"])
def test_a_wrong_path_is_named_with_a_remedy(source: str) -> None:
    with pytest.raises(UnknownName, match=source) as error:
        Local(source)
    assert error.value.remedy


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"config\.json"):
        Local(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "no-such-thing"}')
    with pytest.raises(UnknownName, match="no causal language model"):
        Local(tmp_path)


OWN_CODE = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M", "AutoTokenizer": ["evil.T", None]}


@pytest.mark.parametrize(
    ("file", "added", "gone", "said"),
    [
        ("config.json", {"model_type": "evilmodel", "auto_map": OWN_CODE}, "", "own .auto_map in config.json"),
        ("tokenizer_config.json", {"auto_map": OWN_CODE}, "tokenizer.json", "own .auto_map in tokenizer_config.json"),
        ("config.json", {"attn_implementation": "evil/kernel"}, "", "code to be fetched .config.json: evil/kernel"),
        ("config.json", {}, "model.safetensors", "holds no safetensors, and a pickle of weights"),
    ],
)
def test_no_code_of_a_folder_is_run_and_nobody_is_asked_whether_it_may(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    added: Mapping[str, object],
    gone: str,
    said: str,
) -> None:
    folder = hostile(make, tmp_path, monkeypatch, file, added)
    if gone:
        (folder / gone).unlink()
        torch.save({"x": torch.zeros(1)}, folder / "pytorch_model.bin")
    with pytest.raises(BadInput, match=said) as error:
        Local("kept")
    assert error.value.remedy
    assert "trust_remote_code" not in str(error.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_folder_that_needs_none_of_the_code_that_it_names_loads_without(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    hostile(make, tmp_path, monkeypatch, file, {"auto_map": OWN_CODE})
    played(Local("kept"))
    assert not (tmp_path / "ran").exists()


def hostile(make: Make, place: Path, monkeypatch: pytest.MonkeyPatch, file: str, added: Mapping[str, object]) -> Path:
    """A saved model with code beside it, where whatever transformers asks is answered with yes, as by ``yes |``."""
    make().save(place / "kept")
    monkeypatch.chdir(place)
    monkeypatch.setattr("builtins.input", lambda *asked: "y")
    said = json.loads((place / "kept" / file).read_text())
    (place / "kept" / file).write_text(json.dumps(said | added))
    (place / "kept" / "evil.py").write_text("with open('ran', 'w') as file:\n    file.write('x')\n")
    return place / "kept"


def test_a_module_without_a_way_to_render_is_refused() -> None:
    module = transformers.AutoModelForCausalLM.from_config(FAST["qwen2"])
    with pytest.raises(BadInput, match="no tokenizer"):
        Local(module)
    with pytest.raises(BadInput, match="do not fit"):
        small(WORDS, d=30)


def test_small_is_the_size_that_was_measured() -> None:
    model = small([f"w{i}" for i in range(50)])
    assert 0.09e6 < sum(p.numel() for p in model.module.parameters()) < 0.11e6
    again = small([f"w{i}" for i in range(50)])
    for a, b in zip(model.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(a, b)


def test_half_precision_runs_and_stays_near_the_module(make: Make) -> None:
    model = make(dtype="bfloat16")
    talk = Talk(model).say("w1 w2")
    answer = ask(model, [talk.request(1)])[0]
    np.testing.assert_allclose(
        answer.logprobs, expected(model.module, talk.request(1), answer.tokens or ()), atol=0.3
    )  # fmt: skip


def test_completions_in_two_event_loops(make: Make) -> None:
    model = make()
    request = Talk(model).say("w1").request(1)
    first = asyncio.run(model.complete(request))
    second = asyncio.run(model.complete(request))
    assert first.tokens == second.tokens


EXITS = """
import sys, time, torch
from clew.core.records import Request
from clew.core.values import Sampling
from clew.models.local import small
from tests.models.helpers import path
torch.set_num_threads(1)
models = [small(["a", "b", "c", "d"], seed=seed) for seed in range(6)]
for model in models:
    asked = [Request(path(["a b"], model.renderer), Sampling(max_tokens=400), seed=i) for i in range(8)]
    model.submit(asked, lambda results: None)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.whole
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.1])
def test_a_process_that_ends_while_engines_compute_ends_well(seconds: float) -> None:
    done = subprocess.run([sys.executable, "-c", EXITS, str(seconds)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")

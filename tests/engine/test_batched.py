"""Decoders of many families in one batched forward: their replies are those of transformers, whatever runs beside."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from clew.models.engine.forwards.batched import Batched, objection
from clew.models.engine.forwards.generic import Generic
from clew.models.local import Local
from clew.models.rendering import WordRenderer
from tests.engine.drafters import Blind
from tests.engine.helpers import WORDS, Talk, ask, sharpen
from tests.engine.test_local import built, played

SIZES: dict[str, Any] = {"vocab_size": 47, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
WIDE: dict[str, Any] = {
    **SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0,
}  # fmt: skip
HEADS: dict[str, Any] = {**WIDE, "head_dim": 8}
FAMILIES = {
    "gpt2": transformers.GPT2Config(vocab_size=47, n_embd=32, n_layer=3, n_head=4, n_positions=128),
    "mistral-window": transformers.MistralConfig(**HEADS, sliding_window=8),
    "gemma2": transformers.Gemma2Config(**HEADS, sliding_window=8, query_pre_attn_scalar=8),
    "gemma3": transformers.Gemma3TextConfig(**HEADS, sliding_window=8, query_pre_attn_scalar=8),
    "qwen3-moe": transformers.Qwen3MoeConfig(
        **HEADS, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2
    ),
    "mixtral": transformers.MixtralConfig(**HEADS, num_local_experts=4),
    "phi3": transformers.Phi3Config(**WIDE),
    "phi": transformers.PhiConfig(**WIDE),
    "gpt-oss": transformers.GptOssConfig(**HEADS, num_local_experts=4, sliding_window=8),
    "olmo2": transformers.Olmo2Config(**WIDE),
    "cohere2": transformers.Cohere2Config(**HEADS, sliding_window=8),
    "deepseek-v3": transformers.DeepseekV3Config(
        **{**WIDE, "num_key_value_heads": 4}, moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2,
        n_group=1, topk_group=1, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
        v_head_dim=12, first_k_dense_replace=1,
    ),
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:.*rope_parameters.*")


def greedy(module: torch.nn.Module, prompt: list[int], count: int) -> list[int]:
    """What transformers' own ``generate`` replies to one prompt."""
    model: Any = module
    end = {"eos_token_id": None, "pad_token_id": 0}
    out = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, **end)
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_replies_of_a_batch_are_those_of_generate(family: str) -> None:
    model = built(FAMILIES[family])
    assert type(model.engine._batch.forward) is Batched
    talks = [Talk(model, f"r{i}").say(" ".join(WORDS[i : i + 2 + 3 * i])) for i in range(8)]
    requests = [talk.request(max_tokens=20, temperature=0.0) for talk in talks]
    end = min(model.renderer.stop)
    for request, answer in zip(requests, ask(model, requests), strict=True):
        prompt = [*(i for node in request.path for i in node.ids or ()), *request.head]
        want = greedy(model.module, prompt, 20)
        assert list(answer.tokens or ()) == want[: want.index(end) + 1 if end in want else 20]


@pytest.mark.parametrize("family", FAMILIES)
def test_talks_that_go_on_are_sampled_as_row_by_row(family: str) -> None:
    """Prefixes are used again, which reach behind a window, and each logprob is that of the module's own forward."""
    model, slow = built(FAMILIES[family]), built(FAMILIES[family], fast=False)
    assert type(slow.engine._batch.forward) is Generic
    assert [talk.ids for talk in played(model, 4)] == [talk.ids for talk in played(slow, 4)]
    assert model.engine.stats().counts.cached > 50


def test_drafts_are_verified_in_one_pass() -> None:
    plain, drafted = (built(FAMILIES["mistral-window"], **how) for how in ({}, {"draft": Blind(47)}))
    talks = [Talk(plain, f"r{i}").say(" ".join(WORDS[i : i + 9])) for i in range(4)]
    requests = [talk.request(i, max_tokens=30, temperature=0.0) for i, talk in enumerate(talks)]
    assert [a.tokens for a in ask(plain, requests)] == [a.tokens for a in ask(drafted, requests)]
    assert drafted.engine.drafted is not None


def test_new_weights_are_served_and_the_module_keeps_its_own_attention() -> None:
    model = built(FAMILIES["gemma3"])
    request = Talk(model, "r").say("w1 w2 w3").request(temperature=0.0)
    before = ask(model, [request])[0]
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.copy_(weight.flip(0))
    assert ask(model, [request])[0].tokens == before.tokens, "until they are published"
    model.publish()
    after = ask(model, [request])[0]
    assert after.tokens != before.tokens
    prompt = [*(i for node in request.path for i in node.ids or ()), *request.head]
    assert list(after.tokens or ())[:4] == greedy(model.module, prompt, 8)[:4]
    config: Any = model.module.config
    assert config._attn_implementation == "sdpa"


def test_the_weights_are_held_once_beside_the_module() -> None:
    forward = built(FAMILIES["mixtral"]).engine._batch.forward
    assert isinstance(forward, Batched)
    mine, run = forward.module.state_dict(), forward._run.state_dict()
    assert {name: t.data_ptr() for name, t in mine.items()} == {name: t.data_ptr() for name, t in run.items()}


CANNOT = {
    "neither sdpa nor eager": ("gpt2", lambda module: setattr(module.config, "_attn_implementation", "flash")),
    "layers of other kinds: chunked_attention": (
        "gemma3", lambda module: module.config.layer_types.__setitem__(0, "chunked_attention")
    ),
    "depend on the longest row": ("mixtral", lambda module: module.config.rope_parameters.update(rope_type="dynamic")),
    "ask for more than can be replaced": (
        "gemma3", lambda module: [setattr(block.self_attn, "sliding_window", None) for block in module.model.layers]
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", CANNOT)
def test_what_cannot_be_batched_is_found_out(why: str) -> None:
    """The last: windows that only masks of the module's own know, which are longer than any row of the trial."""
    family, change = CANNOT[why]
    module: Any = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(FAMILIES[family]))
    module.config.sliding_window = 4096 if "replaced" in why else getattr(module.config, "sliding_window", None)
    change(module)
    assert why in objection(module, 128)


def test_a_steady_model_takes_its_own_forward() -> None:
    assert type(built(FAMILIES["gpt2"], steady=True).engine._batch.forward) is Generic


def test_half_precision_stays_near() -> None:
    module: Any = transformers.AutoModelForCausalLM.from_config(FAMILIES["phi3"])
    sharpen(module, by=0.05)
    model = Local(module.to(torch.bfloat16), renderer=WordRenderer(WORDS), ref="half")
    assert type(model.engine._batch.forward) is Batched
    request = Talk(model, "r").say("w1 w2 w3").request(7)
    answer = ask(model, [request])[0]
    prompt = [*(i for node in request.path for i in node.ids or ()), *request.head]
    with torch.no_grad():
        logits = module(torch.tensor([[*prompt, *(answer.tokens or ())]])).logits[0].float()
    said = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(-1, torch.tensor(answer.tokens)[:, None])[:, 0]
    np.testing.assert_allclose(answer.logprobs, said.numpy(), atol=0.1)

"""EAGLE-3 drafters in the layouts in which others publish them: their laws worked out by hand, replies exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch as tensor_files
import torch
import torch.nn.functional as F
import transformers

from clew.core.errors import BadInput
from clew.core.values import Sampling
from clew.models.drafters import load
from clew.models.engine.speculation.lengths import Fixed
from clew.models.local import Local
from clew.models.rendering import WordRenderer
from clew.models.sampling import Laws
from tests.engine.helpers import WORDS, Talk, ask, sharpen

WIDTH, HEADS, KV, DIM, FEED, SMALL, THETA = 32, 4, 2, 8, 40, 20, 5e4
LAYOUTS = ["authors", "speculators", "speculators-norms"]


def target(dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=47, hidden_size=WIDTH, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=128,
    )  # fmt: skip
    module = transformers.LlamaForCausalLM(config).to(dtype).eval()
    sharpen(module, by=0.1)
    return module


def publish(folder: Path, layout: str, seed: int = 1) -> dict[str, torch.Tensor]:
    """Write a drafter of random weights as its authors do, or as ``speculators`` does; gives its tensors."""
    generator = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * 0.3

    layer = "midlayer" if layout == "authors" else "layers.0"
    ids = torch.randperm(47, generator=generator)[:SMALL].sort().values
    tensors = {
        "fc.weight": some(WIDTH, 3 * WIDTH), "norm.weight": 1 + some(WIDTH), "lm_head.weight": some(SMALL, WIDTH) * 4,
        "d2t": ids - torch.arange(SMALL), "t2d": torch.zeros(47, dtype=torch.bool).index_fill(0, ids, True),
        f"{layer}.self_attn.q_proj.weight": some(HEADS * DIM, 2 * WIDTH),
        f"{layer}.self_attn.k_proj.weight": some(KV * DIM, 2 * WIDTH),
        f"{layer}.self_attn.v_proj.weight": some(KV * DIM, 2 * WIDTH),
        f"{layer}.self_attn.o_proj.weight": some(WIDTH, HEADS * DIM),
        f"{layer}.mlp.gate_proj.weight": some(FEED, WIDTH), f"{layer}.mlp.up_proj.weight": some(FEED, WIDTH),
        f"{layer}.mlp.down_proj.weight": some(WIDTH, FEED), f"{layer}.hidden_norm.weight": 1 + some(WIDTH),
        f"{layer}.input_layernorm.weight": 1 + some(WIDTH),
        f"{layer}.post_attention_layernorm.weight": 1 + some(WIDTH),
    }  # fmt: skip
    sizes = {
        "hidden_size": WIDTH, "intermediate_size": FEED, "num_attention_heads": HEADS, "num_key_value_heads": KV,
        "head_dim": DIM, "rms_norm_eps": 1e-5, "vocab_size": 47, "model_type": "llama",
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    if layout == "authors":
        config = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": SMALL, "rope_theta": THETA, **sizes}
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        config = {
            "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": SMALL,
            "eagle_aux_hidden_state_layer_ids": [1, 3, 6], "norm_before_residual": layout.endswith("norms"),
            "speculators_config": {"algorithm": "eagle3", "proposal_methods": [{"speculative_tokens": 4}]},
            "transformer_layer_config": {**sizes, "rope_parameters": {"rope_type": "default", "rope_theta": THETA}},
        }  # fmt: skip
        tensors["embed_tokens.weight"] = some(47, WIDTH)
        if layout.endswith("norms"):
            for name in ("q", "k"):
                tensors[f"layers.0.self_attn.{name}_norm.weight"] = 1 + some(DIM)
        tensor_files.save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return tensors


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def turned(z: torch.Tensor) -> torch.Tensor:
    """Rotary positions 0, 1, ... of z [T, heads, dim] (2104.09864), halves apart as Llama has them."""
    angle = torch.outer(torch.arange(len(z)).double(), THETA ** -(torch.arange(0, DIM, 2).double() / DIM))
    cos, sin = (torch.cat((f(angle), f(angle)), -1)[:, None].to(z) for f in (torch.cos, torch.sin))
    low, high = z.chunk(2, -1)
    return z * cos + torch.cat((-high, low), -1) * sin


def chain(tensors: dict[str, torch.Tensor], table: torch.Tensor, hidden: torch.Tensor, ids: list[int], n: int) -> Any:
    """Greedy proposals behind ids, whose first len(ids) - 1 have tapped states ``hidden``: 2503.01840, by hand."""
    w = {k.replace("midlayer.", "layers.0."): v.double() for k, v in tensors.items() if v.is_floating_point()}
    a, m = "layers.0.self_attn.", "layers.0.mlp."
    states, tokens, out = list(hidden.double() @ w["fc.weight"].T), list(ids[1:]), []
    normed = a + "q_norm.weight" in w
    for _ in range(n):
        h = torch.stack(states)
        e = norm(table[tokens].double(), w["layers.0.input_layernorm.weight"])
        y = torch.cat((e, norm(h, w["layers.0.hidden_norm.weight"])), -1)
        q, k, v = ((y @ w[f"{a}{x}_proj.weight"].T).view(len(y), -1, DIM) for x in "qkv")
        if normed:
            q, k = norm(q, w[a + "q_norm.weight"]), norm(k, w[a + "k_norm.weight"])
        q, k, v = (z.transpose(0, 1)[None] for z in (turned(q), turned(k), v))
        k, v = (z.repeat_interleave(HEADS // KV, 1) for z in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1).flatten(1)
        x = (norm(h, w["layers.0.hidden_norm.weight"]) if normed else h) + attended @ w[a + "o_proj.weight"].T
        z = norm(x, w["layers.0.post_attention_layernorm.weight"])
        x = (
            x
            + (F.silu(z @ w[m + "gate_proj.weight"].T) * (z @ w[m + "up_proj.weight"].T)) @ w[m + "down_proj.weight"].T
        )
        best = int((norm(x[-1], w["norm.weight"]) @ w["lm_head.weight"].T).argmax())
        out.append(best + int(tensors["d2t"][best]))
        states, tokens = [*states, x[-1]], [*tokens, out[-1]]
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
def test_proposals_are_those_worked_out_by_hand(layout: str, tmp_path: Path) -> None:
    net, tensors = target(), publish(tmp_path, layout)
    drafter: Any = load(tmp_path, net)
    assert drafter.taps == ((1, 3, 4) if layout == "authors" else (0, 2, 5))
    ids = np.random.default_rng(0).integers(3, 47, 12).tolist()
    with torch.no_grad():
        states = net.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    hidden = torch.cat([states[t + 1][0] for t in drafter.taps], -1)
    drafter.resize(2, 64)
    drafter.extend(np.array([1]), [ids], np.array([0]), hidden)
    greedy = Laws.of([Sampling(temperature=0.0)])
    found = drafter.propose(np.array([1]), np.array([9]), np.array([12]), greedy, np.zeros((1, drafter.block)))
    table = tensors.get("embed_tokens.weight", net.get_input_embeddings().weight.detach())
    assert found.tokens[0].tolist() == chain(tensors, table, hidden, [*ids, 9], drafter.block)
    assert drafter.block == (5 if layout == "authors" else 4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_replies_are_exact_whatever_it_proposes(layout: str, tmp_path: Path) -> None:
    publish(tmp_path, layout)
    plain, drafted = (
        Local(
            target(torch.float64),
            renderer=WordRenderer(WORDS),
            ref="t",
            **({} if alone else {"draft": load(tmp_path, target(torch.float64)), "lengths": Fixed(3)}),
        )
        for alone in (True, False)
    )
    talks = [Talk(plain, f"r{i}").say(" ".join(WORDS[i : i + 5])) for i in range(4)]
    requests = [talk.request(i, max_tokens=24, temperature=0.0) for i, talk in enumerate(talks)]
    assert [a.tokens for a in ask(plain, requests)] == [a.tokens for a in ask(drafted, requests)]
    assert drafted.engine.drafted is not None
    assert sum(drafted.engine.drafted.proposed) > 20
    sampled = ask(drafted, [talk.request(i, max_tokens=24) for i, talk in enumerate(talks)])
    assert all(np.isfinite(answer.logprobs).all() for answer in sampled)


WRONG = {
    "has lm_head.weight of shape (20, 31)": lambda c, t: t.update({"lm_head.weight": torch.zeros(SMALL, 31)}),
    "d2t of the drafter": lambda c, t: t["d2t"].fill_(100),
    "reads states [1, 3, 60]": lambda c, t: c.update(eagle_aux_hidden_state_layer_ids=[1, 3, 60]),
    "scales its rotary positions": lambda c, t: c["transformer_layer_config"].update(rope_scaling={"factor": 8}),
    "does not say its sizes": lambda c, t: c["transformer_layer_config"].pop("num_attention_heads"),
    "holds no tensors of an EAGLE-3 drafter": lambda c, t: t.pop("fc.weight"),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_does_not_fit_is_named(said: str, tmp_path: Path) -> None:
    tensors = publish(tmp_path, "speculators")
    config = json.loads((tmp_path / "config.json").read_text())
    WRONG[said](config, tensors)
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensor_files.save_file({k: v.contiguous() for k, v in tensors.items()}, tmp_path / "model.safetensors")
    with pytest.raises(BadInput) as refused:
        load(tmp_path, target())
    assert said in str(refused.value)

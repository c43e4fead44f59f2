"""Decoders of other families in the engine's batched forward, against `transformers.generate` one by one.

    python benchmarks/families.py [--families gpt2,gemma2] [--requests 32] [--prompt 64] [--reply 64] [--rounds 3]
        [--json FILE]

One process, one thread, malloc's trim and mmap thresholds raised; untrained modules of 8 layers, d=256, 4 heads over 2
of keys, feed-forward 768 (experts: 4 of 384, 2 at a time), windows of 32 where a family has them, 1,024 words, float32.
Replies run to their limit at temperature 1, on fresh prompts, so that no prefix is cached. Arms, taken in turn in every
round: all requests at once through `Local.complete`, prefill included, and `module.generate(do_sample=True)`, one
request after the other (a few of them: the rate is per token). The first round is not counted.

Printed for each family: tokens per second of process time of both, and the ratio within a round, as median [lowest,
highest] over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import transformers

from clew.core.records import Node, Request
from clew.core.values import Message, Sampling
from clew.models.local import Local
from clew.models.rendering import WordRenderer

WORDS, FEW = 1024, 3
SIZES: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4}
WIDE: dict[str, Any] = {
    **SIZES, "intermediate_size": 768, "num_key_value_heads": 2, "max_position_embeddings": 1024, "pad_token_id": 0,
}  # fmt: skip
HEADS: dict[str, Any] = {**WIDE, "head_dim": 64}
EXPERTS: dict[str, Any] = {**HEADS, "intermediate_size": 384, "num_experts_per_tok": 2}
FAMILIES = {
    "gpt2": transformers.GPT2Config(vocab_size=WORDS, n_embd=256, n_layer=8, n_head=4, n_positions=1024),
    "mistral-window": transformers.MistralConfig(**HEADS, sliding_window=32),
    "gemma2": transformers.Gemma2Config(**HEADS, sliding_window=32),
    "gemma3": transformers.Gemma3TextConfig(**HEADS, sliding_window=32),
    "phi3": transformers.Phi3Config(**WIDE),
    "qwen3-moe": transformers.Qwen3MoeConfig(**EXPERTS, moe_intermediate_size=384, num_experts=4),
    "mixtral": transformers.MixtralConfig(**EXPERTS, num_local_experts=4),
}


def measured(family: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both arms in turn."""
    torch.manual_seed(0)
    module: Any = transformers.AutoModelForCausalLM.from_config(FAMILIES[family]).eval()
    renderer = WordRenderer([f"w{i}" for i in range(WORDS - 7)])
    renderer.stop = frozenset()  # replies run to their limit
    model = Local(module, renderer=renderer, ref=family)
    rng, rates = np.random.default_rng(0), {"batched": [], "generate": []}  # type: ignore[var-annotated]
    for number in range(options.rounds + 1):
        arms = [("batched", options.requests), ("generate", min(FEW, options.requests))]
        for arm, count in arms if number % 2 else arms[::-1]:
            prompts = [rng.integers(7, WORDS, options.prompt).tolist() for _ in range(count)]
            began = time.process_time()
            if arm == "batched":
                asyncio.run(together(model, prompts, options.reply))
            else:
                for prompt in prompts:
                    alone(module, prompt, options.reply)
            rates[arm].append(count * options.reply / (time.process_time() - began))
    model.close()
    ratios = [a / b for a, b in zip(rates["batched"][1:], rates["generate"][1:], strict=True)]
    return {"family": family, "forward": type(model.engine._batch.forward).__name__} | {
        name: spread(values) for name, values in {**{k: v[1:] for k, v in rates.items()}, "ratio": ratios}.items()
    }


async def together(model: Local, prompts: list[list[int]], reply: int) -> None:
    async def one(prompt: list[int], seed: int) -> None:
        node = Node(b"", b"", Message("user", ""), tuple(prompt), model.renderer.ref, b"")
        answer = await model.complete(Request((node,), Sampling(max_tokens=reply), seed))
        assert len(answer.tokens or ()) == reply

    await asyncio.gather(*(one(prompt, seed) for seed, prompt in enumerate(prompts)))


def alone(module: Any, prompt: list[int], reply: int) -> None:
    given = torch.tensor([prompt])
    how = {"max_new_tokens": reply, "min_new_tokens": reply, "do_sample": True, "eos_token_id": None, "pad_token_id": 0}
    out = module.generate(given, attention_mask=torch.ones_like(given), **how)
    assert out.shape[1] == len(prompt) + reply


def spread(values: list[float]) -> list[float]:
    return [statistics.median(values), min(values), max(values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--reply", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    for setting in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: keep freed memory, for both arms alike
        libc.mallopt(setting, 1 << 30)
    found = []
    for family in options.families.split(","):
        found.append(one := measured(family, options))
        told = "  ".join(
            f"{k} {one[k][0]:.1f} [{one[k][1]:.1f}, {one[k][2]:.1f}]" for k in ("batched", "generate", "ratio")
        )
        print(f"{family:15s} {one['forward']:8s} {told}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

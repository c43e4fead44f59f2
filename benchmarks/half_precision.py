"""How far half precision is from float32: the engine's forward beside the module's own, over the same rounded weights.

    python benchmarks/half_precision.py [--rows 8] [--length 100] [--seeds 3]

Untrained modules of 8 layers, d=256, 4 heads over 2 of keys, 1,024 words, matrices doubled so that logits differ;
qwen3 and llama take the engine's own forward, gemma3 (windows of 32) its own blocks. The weights are rounded to half
precision once. What is right is what the rounded weights give in float32 arithmetic. Printed for each family and type,
over all tokens of all seeds: root mean square error of log-probabilities (nats) and share of places whose likeliest
token is the right one, for ours and for transformers' own forward in that type.
"""

from __future__ import annotations

import argparse
import copy
import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import transformers

from clew.models.engine.forwards.choosing import forward_of

WORDS = 1024
SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512, "pad_token_id": 0,
}  # fmt: skip
FAMILIES = {
    "qwen3": transformers.Qwen3Config(**SIZES),
    "llama": transformers.LlamaConfig(**SIZES),
    "gemma3": transformers.Gemma3TextConfig(**SIZES, sliding_window=32),
}


@torch.no_grad()
def errors(family: str, dtype: torch.dtype, seed: int, options: argparse.Namespace) -> torch.Tensor:
    """[2 (ours, theirs), 2 (mean squared error, share of likeliest tokens that are right)]."""
    torch.manual_seed(seed)
    module: Any = transformers.AutoModelForCausalLM.from_config(FAMILIES[family]).float().eval()
    for weight in module.parameters():
        weight.mul_(2 if weight.ndim > 1 else 1)
    half = module.to(dtype)
    exact = copy.deepcopy(half).float()
    rng = np.random.default_rng(seed)
    ids = [rng.integers(1, WORDS, options.length).tolist() for _ in range(options.rows)]
    forward = forward_of(half, 512)
    forward.use(forward.read())
    forward.resize(options.rows, options.length + 1)
    ours = forward.verify(np.arange(options.rows), ids, np.zeros(options.rows, np.int64))
    theirs, right = (torch.cat([net(torch.tensor([row])).logits[0] for row in ids]) for net in (half, exact))
    law = right.double().log_softmax(-1)
    out = []
    for logits in (ours, theirs):
        apart = logits.double().log_softmax(-1) - law
        same = (logits.argmax(-1) == right.argmax(-1)).double().mean()
        out.append(torch.stack([apart.square().mean(), same]))
    return torch.stack(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for family in FAMILIES:
        for dtype in (torch.bfloat16, torch.float16):
            every = torch.stack([errors(family, dtype, seed, options) for seed in range(options.seeds)]).mean(0)
            told = [f"{who} error {mse**0.5:.4f}, likeliest right {same:.4f}" for who, (mse, same) in
                    zip(("ours", "theirs"), every.tolist(), strict=True)]  # fmt: skip
            print(f"{family:8s} {str(dtype).removeprefix('torch.'):9s} {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main()

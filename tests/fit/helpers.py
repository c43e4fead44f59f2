"""A transformer of a few thousand weights, and rows on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from clew.core.records import LossRow
from clew.fit.forward import Scorer

VOCABULARY = 40


def module(seed: int = 0, dtype: torch.dtype = torch.float32) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=128, tie_word_embeddings=True, use_cache=False,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).to(dtype)


class Served:
    """What a Trainer needs of a model; counts how often new weights were handed over."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        self.module, self.version, self.ref = module(seed, dtype), 0, "served"

    def publish(self, version: int | None = None) -> int:
        self.version = self.version + 1 if version is None else version
        return self.version

    def save(self, path: Path) -> None:
        self.module.save_pretrained(path)

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in self.module.named_parameters()}


def logprobs(net: torch.nn.Module, ids: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """float32 [T], nats, 0 for the first token: by the module's own whole forward pass."""
    with torch.no_grad():
        tokens = torch.from_numpy(ids.astype(np.int64))
        logits = net(input_ids=tokens[None], use_cache=False).logits[0, :-1] / temperature
        chosen = logits.log_softmax(-1).gather(-1, tokens[1:, None])[:, 0]
    return np.concatenate([[0.0], chosen.float().numpy()]).astype(np.float32)


def rows(net: torch.nn.Module, n: int = 6, seed: int = 0, temperature: float = 1.0, version: int = 0) -> list[LossRow]:
    """Rows of 5 to 20 random tokens, about half of them sampled, with true logprobs and one advantage a row."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        ids = rng.integers(3, VOCABULARY, int(rng.integers(5, 21))).astype(np.int32)
        sampled = rng.random(len(ids)) < 0.5
        sampled[:2] = False, True
        old = np.where(sampled, logprobs(net, ids, temperature), np.nan).astype(np.float32)
        weight = np.where(sampled, rng.normal(), 0).astype(np.float32)
        out.append(LossRow(ids, sampled, {"pg": weight}, old, version=version, temperature=temperature))
    return out


def scored(net: torch.nn.Module, row: LossRow) -> torch.Tensor:
    """Logprobs [T - 1] of a row's tokens, with gradient, by the Scorer."""
    ids = torch.from_numpy(row.ids.astype(np.int64))
    return Scorer(net)(ids[None], torch.arange(len(ids) - 1), ids[1:])[0]

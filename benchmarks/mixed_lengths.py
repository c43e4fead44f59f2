"""One long row among short ones: what the cache holds, and what a token of each costs.

    python benchmarks/mixed_lengths.py [--long 8000] [--short 200] [--rows 32] [--rounds 5] [--json FILE]

One process, one thread; an untrained Qwen2 of 4 layers, d=256, 4 heads over 2 of keys, feed-forward 688, 512 words,
float32. Ours: a batch of the engine that has prefilled all rows, over steps of one sampled token for each. The peer:
`transformers`' own forward, one token for each row over a padded `DynamicCache` (of random numbers, as prefilling 32
padded rows takes minutes), its arg max taken. The arms take turns of 8 steps; so do both with equally long rows, the
control, where blocks can save nothing. Printed: positions of the cache by the sum of the rows' lengths, milliseconds of
process time a step as median [lowest, highest] over the rounds, and the ratio. Then the time of one search for a shared
prefix among rows that share nothing, by their number.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from clew.core.records import Node, Request
from clew.core.values import Message, Sampling
from clew.models.engine.forwards.choosing import forward_of
from clew.models.engine.live_batch import Batch
from clew.models.engine.slots import Slots
from clew.models.engine.state import Result, Waiting
from clew.models.rendering import WordRenderer

WORDS, STEPS = 512, 8


def request(rng: np.random.Generator, length: int) -> Waiting:
    ids = tuple(rng.integers(7, WORDS, length).tolist())
    node = Node(b"", b"", Message("user", ""), ids, "", b"")
    asked = Request((node,), Sampling(max_tokens=4000), int(rng.integers(1 << 30)))
    return Waiting(asked, 0, lambda _: None, 0.0)


class Ours:
    def __init__(self, module: Any, lengths: list[int]) -> None:
        renderer = WordRenderer([f"w{i}" for i in range(WORDS - 7)])
        renderer.stop = frozenset()
        forward = forward_of(module, module.config.max_position_embeddings)
        self.batch = Batch(forward, renderer, "", False, 2 * len(lengths), 4 << 30)
        self.batch.use(0, forward.read())
        rng, self.results = np.random.default_rng(0), list[Result]()
        assert not self.batch.admit([request(rng, n) for n in lengths], self.results)
        self.positions = self.batch.room()[2]

    def step(self) -> None:
        self.batch.step(self.results)
        assert not self.results


class Padded:
    """The peer's decode: every row as long as the longest."""

    def __init__(self, module: Any, lengths: list[int]) -> None:
        c, longest = module.config, max(lengths)
        width = c.hidden_size // c.num_attention_heads
        self.module, self.cache = module, DynamicCache(config=c)
        for layer in range(c.num_hidden_layers):
            part = torch.randn(len(lengths), c.num_key_value_heads, longest, width)
            self.cache.update(part, part.clone(), layer)
        self.mask = (torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]).long()
        self.last, self.at = torch.zeros(len(lengths), 1, dtype=torch.long), torch.tensor(lengths)[:, None]
        self.positions = len(lengths) * longest

    @torch.inference_mode()
    def step(self) -> None:
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], 1)
        given = {"input_ids": self.last, "attention_mask": self.mask, "position_ids": self.at}
        self.last = self.module(**given, past_key_values=self.cache).logits[:, -1:].argmax(-1)
        self.at = self.at + 1


def measure(lengths: list[int], rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=WORDS, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2 * max(lengths),
    )  # fmt: skip
    module = Qwen2ForCausalLM(config).eval()
    arms: dict[str, Ours | Padded] = {"ours": Ours(module, lengths), "padded": Padded(module, lengths)}
    took: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name, arm in arms.items():
            began = time.process_time()
            for _ in range(STEPS):
                arm.step()
            if number:
                took[name].append((time.process_time() - began) / STEPS * 1e3)
    ratios = [b / a for a, b in zip(*took.values(), strict=True)]
    return {"positions": {name: arm.positions / sum(lengths) for name, arm in arms.items()}, "ms": took, "x": ratios}


def search(rows: int) -> float:
    """Microseconds of one search among rows of which none begins as the one looked for."""
    slots, rng = Slots(), np.random.default_rng(0)
    slots.resize(rows, 256)
    for row in range(rows):
        slots.write(row, 0, rng.integers(0, WORDS, 200))
        slots.length[row] = slots.ready[row] = 200
    wanted = rng.integers(0, WORDS, 200).astype(np.int32)
    times = []
    for _ in range(200):
        began = time.perf_counter()
        slots.match(wanted, 0)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):7.2f} [{min(values):.2f}, {max(values):.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", type=int, default=8000)
    parser.add_argument("--short", type=int, default=200)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write every figure to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = {
        f"one of {options.long} among {options.rows - 1} of {options.short}": [options.long]
        + [options.short] * (options.rows - 1),
        f"control, {options.rows} of {options.short}": [options.short] * options.rows,
    }
    found: dict[str, Any] = {}
    for title, lengths in cases.items():
        found[title] = one = measure(lengths, options.rounds)
        print(title)
        for name in ("ours", "padded"):
            print(f"  {name:7} {one['positions'][name]:6.2f} x their lengths   {spread(one['ms'][name])} ms a step")
        print(f"  padded by ours {spread(one['x'])}")
    found["search_us"] = {rows: search(rows) for rows in (32, 256, 2048)}
    print("one search, us: " + ", ".join(f"{us:.0f} among {rows}" for rows, us in found["search_us"].items()))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

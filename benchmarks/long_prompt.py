"""One long prompt beside streams: how long the streams wait, and how much later the prompt is done than alone.

    python benchmarks/long_prompt.py [--prompt 8000] [--streams 8] [--rounds 5] [--family qwen3,gemma3] [--json FILE]

One process, one thread; an untrained module of 8 layers, d=256, 4 heads over 2 of keys, feed-forward 768, 1,024 words,
float32: qwen3 takes the engine's own forward, gemma3 (windows of 32) its own blocks. Streams of 16 tokens of prompt run
to their limit. When each has given 30 tokens, the prompt comes, and asks for one token. In the same round it is asked
alone, with no stream beside it. The first round is not counted.

Printed, as median [lowest, highest] over the rounds: the median gap between two tokens of a stream before the prompt
comes and while it is there, the largest gap while it is there as a multiple of the median one then and before, and the
prompt's time beside the streams by its time alone.
"""

from __future__ import annotations

import argparse
import asyncio
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

WORDS, BEFORE = 1024, 30
SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 16_384, "pad_token_id": 0,
}  # fmt: skip
FAMILIES = {
    "qwen3": transformers.Qwen3Config(**SIZES),
    "gemma3": transformers.Gemma3TextConfig(**SIZES, sliding_window=32),
}


class Arms:
    """The model, and both ways to ask."""

    def __init__(self, family: str, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        renderer = WordRenderer([f"w{i}" for i in range(WORDS - 7)])
        renderer.stop = frozenset()  # replies run to their limit
        module: Any = transformers.AutoModelForCausalLM.from_config(FAMILIES[family])
        self.model, self.options, self.rng = (
            Local(module, renderer=renderer, ref=family),
            options,
            np.random.default_rng(0),
        )

    def request(self, length: int, reply: int) -> Request:
        ids = tuple(self.rng.integers(7, WORDS, length).tolist())
        node = Node(b"", b"", Message("user", ""), ids, self.model.renderer.ref, b"")
        return Request((node,), Sampling(max_tokens=reply), int(self.rng.integers(1 << 30)))

    async def alone(self) -> float:
        began = time.perf_counter()
        await self.model.complete(self.request(self.options.prompt, 1))
        return time.perf_counter() - began

    async def beside(self) -> dict[str, float]:
        """Streams, and the prompt when each has given ``BEFORE`` tokens."""
        times: list[list[float]] = [[] for _ in range(self.options.streams)]
        come, over = asyncio.Event(), asyncio.Event()

        async def stream(own: list[float]) -> None:
            async for _ in self.model.stream(self.request(16, 4000)):
                own.append(time.perf_counter())
                if all(len(one) >= BEFORE for one in times):
                    come.set()
                if over.is_set():
                    return

        running = [asyncio.ensure_future(stream(own)) for own in times]
        await come.wait()
        began = time.perf_counter()
        await self.model.complete(self.request(self.options.prompt, 1))
        ended = time.perf_counter()
        over.set()
        await asyncio.gather(*running)
        gaps = [np.diff([t for t in own if t <= ended + 1]) for own in times]
        ends = [np.array([t for t in own if t <= ended + 1])[1:] for own in times]
        early = np.concatenate([g[e < began] for g, e in zip(gaps, ends, strict=True)])
        late = np.concatenate([g[(e >= began) & (e <= ended)] for g, e in zip(gaps, ends, strict=True)])
        return {"seconds": ended - began, "before": np.median(early), "there": np.median(late), "worst": late.max()}


def measured(family: str, options: argparse.Namespace) -> dict[str, Any]:
    arms, found = Arms(family, options), []
    for number in range(options.rounds + 1):
        if number % 2:
            one, alone = asyncio.run(arms.beside()), asyncio.run(arms.alone())
        else:
            alone, one = asyncio.run(arms.alone()), asyncio.run(arms.beside())
        told = {"gap before": 1e3 * one["before"], "gap beside": 1e3 * one["there"]}
        told |= {"largest gap by the median beside": one["worst"] / one["there"]}
        told |= {"largest gap by the median before": one["worst"] / one["before"]}
        found.append({**told, "alone": alone, "prompt beside by alone": one["seconds"] / alone})
    arms.model.close()
    return {name: spread([one[name] for one in found[1:]]) for name in found[0]}


def spread(values: list[float]) -> list[float]:
    return [float(statistics.median(values)), float(min(values)), float(max(values))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=8000)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--family", default=",".join(FAMILIES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {family: measured(family, options) for family in options.family.split(",")}
    for family, told in found.items():
        print(family)
        for name, values in told.items():
            print("    {:34s} {:8.2f} [{:.2f}, {:.2f}]".format(name, *values))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""The engine as a server: many requests at once and one alone, against `transformers.generate` and bare forward passes.

    python benchmarks/engine.py [--requests 32] [--prompt 64] [--reply 128] [--rounds 9] [--arms NAMES] [--json FILE]

One process, one thread, malloc's trim and mmap thresholds raised; an untrained Qwen3 of 8 layers, d=256, 4 heads over 2
of keys, feed-forward 768, 1,024 words, float32. Replies run to their limit at temperature 1. Arms, taken in turn in
every round, on fresh prompts, so that no prefix is cached:

    complete   all requests at once through `Local.complete`, prefill included
    streams    the same through `Local.stream`, every piece read
    held       the same through `complete`, every fourth reply held to a grammar (over a byte-level tokenizer)
    generate   `module.generate(do_sample=True)`, one request after the other (a few of them: the rate is per token)
    module     bare steps of the module's own batched forward over its own cache, at the lengths the replies pass
               through; no prefill, no sampling, no bookkeeping
    bare       the same of the engine's forward
    one, bare1, generate: a single request, bare steps of the engine's forward at batch 1, and `generate` again

Printed: tokens per second of process time (all threads) and of wall time as median [lowest, highest] over the rounds,
and ratios within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from clew.core.records import Node, Request
from clew.core.values import Completion, Message, Sampling
from clew.models.local import Local, small
from clew.models.rendering import ChatTemplateRenderer

CHAT = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"""
ARMS = ("complete", "streams", "held", "bare", "module", "generate", "one", "bare1")
FEW = 4  # requests of `generate` in a round
Arm = Callable[[np.random.Generator], int]  # does its work; gives the tokens sampled


def served() -> tuple[Local, Local]:
    """The same weights twice: over words, and over a byte-level tokenizer that can be held to a grammar."""
    import tokenizers
    import transformers

    model = small([f"w{i}" for i in range(1024 - 7)], d=256, layers=8, heads=4, kv_heads=2, context=1024)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pairs = [(a, b) for a in alphabet[33:90] for b in alphabet[33:90]][: 1024 - 256 - 2]
    words = {text: i for i, text in enumerate([*alphabet, *(a + b for a, b in pairs)])}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(words, pairs))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    bytes_ = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
    bytes_.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    bytes_.chat_template = CHAT
    both = Local(model.module, renderer=model.renderer), Local(model.module, renderer=ChatTemplateRenderer(bytes_))
    for local in both:
        local.engine._batch._stops[:] = False  # replies run to their limit
    return both


class Arms:
    """What is measured. The module, its renderer and its weights are the same for all."""

    def __init__(self, requests: int, prompt: int, reply: int) -> None:
        self.requests, self.prompt, self.reply = requests, prompt, reply
        self.model, self.chat = served()
        self.forward = self.model.engine._batch.forward
        self.module = self.model.module

    def asked(self, rng: np.random.Generator, count: int, grammar: str = "") -> list[Request]:
        rows = rng.integers(8, 1000, (count, self.prompt)).tolist()
        nodes = [Node(b"", b"", Message("user", ""), tuple(row), "", b"") for row in rows]
        free, held = Sampling(self.reply), Sampling(self.reply, grammar=grammar)
        seeds = rng.integers(1 << 62, size=count).tolist()
        return [
            Request((node,), held if grammar and i % 4 == 0 else free, seed, deadline=None)
            for i, (node, seed) in enumerate(zip(nodes, seeds, strict=True))
        ]

    def complete(self, rng: np.random.Generator) -> int:
        return answered(self.model, self.asked(rng, self.requests))

    def one(self, rng: np.random.Generator) -> int:
        return answered(self.model, self.asked(rng, 1))

    def held(self, rng: np.random.Generator) -> int:
        return answered(self.chat, self.asked(rng, self.requests, "regex:[a-z0-9 ,.]{2000,}"))

    def streams(self, rng: np.random.Generator) -> int:
        async def read(request: Request) -> int:
            return sum([len(i.tokens or ()) async for i in self.model.stream(request) if not isinstance(i, Completion)])

        async def everything(requests: list[Request]) -> int:
            return sum(await asyncio.gather(*[read(r) for r in requests]))

        return asyncio.run(everything(self.asked(rng, self.requests)))

    def generate(self, rng: np.random.Generator) -> int:
        for row in rng.integers(8, 1000, (FEW, 1, self.prompt)):
            out = self.module.generate(
                torch.from_numpy(row), do_sample=True, top_k=0, max_new_tokens=self.reply, min_new_tokens=self.reply,
                pad_token_id=0,
            )  # fmt: skip
            assert out.shape[1] == self.prompt + self.reply
        return FEW * self.reply

    def bare(self, rng: np.random.Generator, rows: int = 0) -> int:
        many = np.arange(rows or self.requests)
        if self.forward.rows < len(many) or self.forward.size < self.prompt + self.reply:
            raise RuntimeError("the engine has not run yet")
        for step in range(self.reply):
            self.forward.decode(many, rng.integers(8, 1000, len(many)), np.full(len(many), self.prompt + step))
        return len(many) * self.reply

    def bare1(self, rng: np.random.Generator) -> int:
        return self.bare(rng, 1)

    @torch.inference_mode()
    def steps(self, rng: np.random.Generator) -> Callable[[], int]:
        """`module`: its cache is filled before the clock starts."""
        rows = torch.from_numpy(rng.integers(8, 1000, (self.requests, self.prompt)))
        cache = self.module(input_ids=rows, use_cache=True, logits_to_keep=1).past_key_values
        tokens = torch.from_numpy(rng.integers(8, 1000, (self.reply, self.requests, 1)))

        def run() -> int:
            with torch.inference_mode():
                for given in tokens:
                    self.module(input_ids=given, past_key_values=cache, use_cache=True)
            return self.requests * self.reply

        return run


def answered(model: Local, requests: list[Request]) -> int:
    async def everything() -> list[Completion]:
        return await asyncio.gather(*[model.complete(r) for r in requests])

    return sum(len(done.tokens or ()) for done in asyncio.run(everything()))


def measure(arms: Arms, names: list[str], rounds: int) -> dict[str, list[tuple[int, float, float]]]:
    """By arm, for each round after a first that is not counted: tokens, process seconds, wall seconds."""
    found: dict[str, list[tuple[int, float, float]]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = names[number % len(names) :] + names[: number % len(names)] if number else names
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        for name in turn:
            rng = np.random.default_rng([number, names.index(name)])
            work = arms.steps(rng) if name == "module" else lambda name=name, rng=rng: getattr(arms, name)(rng)
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            tokens = work()
            took = time.process_time() - cpu, time.perf_counter() - wall
            if number:
                found[name].append((tokens, *took))
    return found


def spread(values: list[float], digits: int = 2) -> str:
    return f"{statistics.median(values):8.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


RATIOS = (
    ("complete", "generate", "aggregate against generate, one after the other (bar: at least 8)"),
    ("complete", "bare", "against bare steps of the engine's forward (bar: at least 0.7)"),
    ("complete", "module", "against bare steps of the module's own batched forward"),
    ("streams", "complete", "streamed against answered in one"),
    ("held", "complete", "every fourth reply held to a grammar against none"),
    ("one", "generate", "one request alone against generate"),
    ("one", "bare1", "one request alone against bare steps at batch 1"),
)


def report(found: dict[str, list[tuple[int, float, float]]]) -> dict[str, object]:
    rates = {name: [[t / cpu for t, cpu, _ in rows], [t / wall for t, _, wall in rows]] for name, rows in found.items()}
    print(f"{'tokens/s':10} {'of process time':>30} {'of wall time':>30}")
    for name, (cpu, wall) in rates.items():
        print(f"{name:10} {spread(cpu, 0):>30} {spread(wall, 0):>30}")
    ratios: dict[str, object] = {}
    print(f"\n{'ratio':21} {'process time':>22} {'wall time':>22}")
    for over, under, what in RATIOS:
        if over not in rates or under not in rates:
            continue
        pairs = [[a / b for a, b in zip(rates[over][k], rates[under][k], strict=True)] for k in (0, 1)]
        ratios[f"{over}/{under}"] = {"process": pairs[0], "wall": pairs[1]}
        print(f"{over + '/' + under:21} {spread(pairs[0]):>22} {spread(pairs[1]):>22}  {what}")
    return {"tokens_process_wall": found, "ratios": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt")
    parser.add_argument("--reply", type=int, default=128, help="tokens of each reply")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--arms", default=",".join(ARMS), help="which to take, `complete` first")
    parser.add_argument("--json", help="write every figure to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    for setting in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: keep freed memory, for every arm alike
        libc.mallopt(setting, 1 << 30)
    arms = Arms(options.requests, options.prompt, options.reply)
    sizes = f"{options.requests} requests, prompts of {options.prompt}, replies of {options.reply} tokens"
    count = sum(p.numel() for p in arms.module.parameters()) / 1e6
    print(f"{count:.1f}M parameters; {sizes}; {options.rounds} rounds\n")
    results = report(measure(arms, options.arms.split(","), options.rounds))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

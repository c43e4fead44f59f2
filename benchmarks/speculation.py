"""Where the time of a round of drafts goes, and how long accepted drafts must be to pay: one request at a time.

    python benchmarks/speculation.py [--model FOLDER --draft FOLDER] [--tokens 128] [--rounds 5] [--temperature 1]

Replies with and without drafts in turn, in one process on one thread; process time and wall time. Without a model an
untrained one of 8 layers of 256 over 1,024 tokens and an untrained drafter of two layers are used: what a round costs
does not depend on what the weights say, only what it yields does.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clew.core.records import Node, Request
from clew.core.values import Message, Sampling
from clew.models import drafters
from clew.models.drafters import folder as folders
from clew.models.engine import live_batch
from clew.models.engine.speculation.lengths import Fixed
from clew.models.local import Local

PROMPT = 64


class Ids:
    """A renderer of bare ids, without stop tokens."""

    stop, ref = (), "ids"

    def parse(self, ids: Sequence[int]) -> Message:
        return Message("assistant", "")


class Clock:
    """CPU-seconds within functions, without those of the ones called in them that are watched too."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def watch(self, owner: Any, name: str, as_: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*given: Any, **named: Any) -> Any:
            start = time.thread_time()
            self._inner.append(0.0)
            try:
                return function(*given, **named)
            finally:
                whole = time.thread_time() - start
                self.spent[as_] += whole - self._inner.pop()
                self._inner[-1] += whole

        setattr(owner, name, timed)


def reply(model: Local, prompt: Sequence[int], tokens: int, temperature: float, seed: int) -> tuple[float, float]:
    """CPU and wall seconds of one reply."""
    node = Node(b"", b"", Message("user", ""), tuple(prompt), "ids", b"")
    request = Request((node,), Sampling(max_tokens=tokens, temperature=temperature), seed)
    cpu, wall = time.process_time(), time.perf_counter()
    done = asyncio.run(model.complete(request))
    assert len(done.tokens or ()) == tokens
    return time.process_time() - cpu, time.perf_counter() - wall


def untrained() -> Any:
    import transformers

    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=1024,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=8,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
        )
    ).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=1.0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    renderer: Any = Ids()
    if asked.model:
        plain = Local(asked.model, renderer=renderer)
        drafter = drafters.load(asked.draft, plain.module)
    else:
        plain = Local(untrained(), renderer=renderer)
        module = folders.fresh(folders.design_for(plain.module, mask=1, block=7), plain.module).eval()
        drafter = drafters.ready(module)
    drafted = Local(plain.module, renderer=renderer, draft=drafter, lengths=Fixed(drafter.block))
    clock, forward = Clock(), drafted.engine._batch.forward
    watched = [
        (drafter, "propose"),
        (drafter, "extend"),
        (forward, "verify"),
        (live_batch, "judge"),
        (live_batch, "in_force"),
    ]
    for owner, name in [*watched, (live_batch, "uniforms"), (drafted.engine._batch, "step")]:
        clock.watch(owner, name, name)
    rng = np.random.default_rng(0)
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for i in range(-1, asked.rounds):
        prompt = rng.integers(2, plain.module.config.vocab_size, PROMPT).tolist()  # type: ignore[union-attr]
        for name, model in (
            (("plain", plain), ("drafted", drafted)) if i % 2 else (("drafted", drafted), ("plain", plain))
        ):
            took = reply(model, prompt, asked.tokens, asked.temperature, i + 1)
            if i >= 0:
                times[name].append(took)
            else:
                clock.spent.clear()
    counts = drafted.engine.drafted
    assert counts is not None
    rounds = counts.rounds * asked.rounds / (asked.rounds + 1)
    step = statistics.median(cpu for cpu, _ in times["plain"]) / asked.tokens
    whole = sum(cpu for cpu, _ in times["drafted"]) / rounds
    for name, took in times.items():
        cpu, wall = (sorted(asked.tokens / t[i] for t in took) for i in (0, 1))
        print(f"{name}: {statistics.median(cpu):.0f} tokens per CPU-second [{cpu[0]:.0f}, {cpu[-1]:.0f}], "
              f"{statistics.median(wall):.0f} per second of wall time [{wall[0]:.0f}, {wall[-1]:.0f}]")  # fmt: skip
    print(f"a plain step {step * 1e3:.2f} ms, a round {whole * 1e3:.2f} ms; of it in ms:")
    for name, seconds in sorted(clock.spent.items(), key=lambda item: -item[1]):
        print(f"  {'bookkeeping' if name == 'step' else name}: {seconds / rounds * 1e3:.3f}")
    mean = counts.emitted / counts.rounds
    print(f"{mean:.2f} tokens a round; {whole / step:.2f} pay for it; {drafter.block + 1} at most")


if __name__ == "__main__":
    main()

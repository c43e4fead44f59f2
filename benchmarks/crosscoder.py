"""Fitting a crosscoder beside the nearest trainer of others: tokens a second at the same sizes.

    python benchmarks/crosscoder.py [--width 256] [--latents 4096] [-k 32] [--batch 1024] [--steps 8] [--rounds 5]
                                    [--peer FOLDER] [--json FILE]

The peer is dictionary_learning's TopKTrainer on the states of both models side by side (width 2 x --width): the same
autoencoder without scaling, unmodified. It is imported where it is installed, or from FOLDER, which holds its package
and einops. Its package's own ``__init__`` also imports nnsight, which the trainer does not need, so the trainer is
imported past it. Where there is no peer, that is said and our own figures stand alone.

One process, one thread, the same random rows, both in turn in every round after one that is not counted; AuxK in both.
Printed: tokens a second by process time and by wall time, as median [lowest, highest] over the rounds, their ratio
within a round, and the memory of weights and optimiser.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from clew.fit.small import Course, fit
from clew.methods.features.crosscoder import Crosscoder
from clew.methods.features.learning import Learning, Losses, measured


def ours(o: argparse.Namespace, rows: torch.Tensor) -> Callable[[], None]:
    """One step of our own fit."""
    how = Learning(latents=o.latents, k=o.k, batch=o.batch, lr=1e-4)
    module = Crosscoder(how.design(o.width))
    states = rows.view(len(rows), 2, o.width)
    measured(module, states[:4096])

    def draw(rng: np.random.Generator, n: int) -> torch.Tensor:
        return states[torch.from_numpy(rng.integers(0, len(states), n))]

    steps = 10_000
    running = fit(
        module, Losses(module, how, draw, "", steps), Course(steps=steps, lr=1e-4), mend=lambda _: module.mask()
    )
    return lambda: (next(running), None)[1]


def peer(o: argparse.Namespace, rows: torch.Tensor) -> Callable[[], None] | None:
    """One step of dictionary_learning's, or None."""
    if o.peer:
        sys.path.insert(0, str(o.peer))
    where = next(
        (Path(p) / "dictionary_learning" for p in sys.path if (Path(p) / "dictionary_learning").is_dir()), None
    )
    if where is None:
        return None
    for name, path in (("dictionary_learning", where), ("dictionary_learning.trainers", where / "trainers")):
        package: Any = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    made: Any = importlib.import_module("dictionary_learning.trainers.top_k")
    trainer = made.TopKTrainer(
        steps=10_000, activation_dim=2 * o.width, dict_size=o.latents, k=o.k, layer=0, lm_name="bench", lr=1e-4,
        device="cpu", seed=0,
    )  # fmt: skip
    rng, step = np.random.default_rng(0), iter(range(10_000))
    return lambda: (trainer.update(next(step), rows[torch.from_numpy(rng.integers(0, len(rows), o.batch))]), None)[1]


def main() -> None:
    """Measure, print, and keep the figures where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("--width", 256),
        ("--latents", 4096),
        ("-k", 32),
        ("--batch", 1024),
        ("--steps", 8),
        ("--rounds", 5),
    ):
        parser.add_argument(name, type=int, default=value)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--json", type=Path)
    o = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = torch.randn(16_384, 2 * o.width)
    arms = {"clew": ours(o, rows)}
    if (other := peer(o, rows)) is not None:
        arms["dictionary_learning"] = other
    else:
        print("dictionary_learning did not run: it is not installed, and --peer names no folder that holds it")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for number in range(o.rounds + 1):
        for name, step in arms.items():
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(o.steps):
                step()
            tokens = o.steps * o.batch
            if number:
                found[name].append((tokens / (time.process_time() - cpu), tokens / (time.perf_counter() - wall)))
    memory = 4 * 4 * 2 * 2 * o.width * o.latents / 2**20  # weights, gradient and two moments of encoder and decoder
    print(
        f"width 2 x {o.width}, {o.latents} latents, k={o.k}, batch {o.batch}; {memory:.0f} MiB of weights and optimiser"
    )
    for name, speeds in found.items():
        cells = [f"{statistics.median(x):,.0f} [{min(x):,.0f}, {max(x):,.0f}]" for x in zip(*speeds, strict=True)]
        print(
            f"{name:<20} tokens a second: {cells[0]} by process time, {cells[1]} by wall time, n = {len(speeds)} rounds"
        )
    if len(found) > 1:
        ratios = [a[0] / b[0] for a, b in zip(*found.values(), strict=True)]
        told = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
        print(f"clew by dictionary_learning, process time: {told}")
    if o.json:
        o.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()

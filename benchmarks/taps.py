"""Taps: what reading hidden states, and writing one vector at one layer, cost beside the same work without.

    python benchmarks/taps.py [--rows 64] [--prompt 128] [--reply 64] [--rounds 7] [--json FILE]

One process, one thread; an untrained Qwen3 of 8 layers, d=256, 4 heads over 2 of keys, feed-forward 768, 1,024 words,
float32. Arms, taken in turn in every round, on fresh ids:

    forward     all tokens of all rows pass the blocks of the engine's own forward, nothing is kept
    read        the same, and the output of the last block and of one in the middle are kept at every token, as float32
                arrays in memory
    to disk     the same through `clew.models.taps.read`, to float16 files with their scales
    h0          the output of the middle block alone, at the first token of the reply alone, as a probe reads it
    decode      replies of a batch to their limit by the engine, prefill included
    steered     the same, with one vector added at one layer at every token of every row
    half        the same, with the vector in every other row

Printed: seconds of process time (all threads) and of wall time as median [lowest, highest] over the rounds, and ratios
within a round: read, to disk and h0 by forward; steered and half by decode. The first round of each arm is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from clew.core.records import Node, Request
from clew.core.values import Message, Sampling
from clew.models.local import Local, small
from clew.models.taps import Tap, read

LAYERS, WIDTH, WORDS = 8, 256, 1024
BASE = {"read": "forward", "to disk": "forward", "h0": "forward", "steered": "decode", "half": "decode"}
Ids = list[list[int]]


class Arms:
    """What is measured, over one module."""

    def __init__(self, rows: int, prompt: int, reply: int, folder: Path) -> None:
        self.rows, self.prompt, self.reply, self.folder = rows, prompt, reply, folder
        words = [f"w{i}" for i in range(WORDS - 7)]
        self.model: Local = small(words, d=WIDTH, layers=LAYERS, heads=4, kv_heads=2, context=2 * (prompt + reply))
        self.model.engine._batch._stops[:] = False  # replies run to their limit
        self.tap = Tap(LAYERS // 2, add=np.random.default_rng(0).normal(size=WIDTH).astype(np.float32) * 0.1)
        self._number = 0
        size = -(-(prompt + reply) // 64) * 64
        self._deep = self.model.engine.reader()
        self._deep.resize(rows, size)

    def forward(self, ids: Ids) -> None:
        """As ``Local.states`` computes, with nothing picked."""
        slots, starts = np.arange(len(ids)), np.zeros(len(ids), np.int64)
        with torch.inference_mode():
            for at in range(0, len(ids), 8):
                self._deep._packed(slots[at : at + 8], ids[at : at + 8], starts[at : at + 8], depth=LAYERS)

    def read(self, ids: Ids) -> None:
        for at in range(0, len(ids), 8):
            self.model.states(ids[at : at + 8], [LAYERS // 2, LAYERS - 1])

    def to_disk(self, ids: Ids) -> None:
        self._number += 1
        read(self.model, ids, [LAYERS // 2, LAYERS - 1], folder=self.folder / str(self._number), batch=8)

    def h0(self, ids: Ids) -> None:
        for at in range(0, len(ids), 8):
            self.model.states(ids[at : at + 8], [LAYERS // 2], [[self.prompt]] * len(ids[at : at + 8]))

    def decode(self, ids: Ids, every: int = 0) -> None:
        """Answer the prompts; ``every`` second, or every, row is steered."""
        asked = []
        for i, row in enumerate(ids):
            node = Node(b"", b"", Message("user", ""), tuple(row[: self.prompt]), "", b"")
            taps = (self.tap,) if every and i % every == 0 else ()
            asked.append(Request((node,), Sampling(max_tokens=self.reply), seed=i, taps=taps))

        async def go() -> None:
            done = await asyncio.gather(*[self.model.complete(one) for one in asked])
            for one, answer in zip(asked, done, strict=True):
                assert len(answer.tokens or ()) == self.reply
                assert not one.taps or answer.reached[0].reply == self.reply - 1

        asyncio.run(go())

    def of(self, name: str) -> Callable[[Ids], None]:
        known: dict[str, Callable[[Ids], None]] = {
            "forward": self.forward, "read": self.read, "to disk": self.to_disk, "h0": self.h0,
            "decode": self.decode, "steered": lambda ids: self.decode(ids, 1), "half": lambda ids: self.decode(ids, 2),
        }  # fmt: skip
        return known[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--reply", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    arms, names = Arms(asked.rows, asked.prompt, asked.reply, folder), ["forward", "decode", *BASE]
    generator = np.random.default_rng(1)
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for round_ in range(asked.rounds + 1):
        order = names[round_ % len(names) :] + names[: round_ % len(names)]
        for name in order:
            ids = generator.integers(0, WORDS, (asked.rows, asked.prompt + asked.reply)).tolist()
            process, wall = time.process_time(), time.perf_counter()
            arms.of(name)(ids)
            took = time.process_time() - process, time.perf_counter() - wall
            if round_:
                spent[name].append(took)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    told: dict[str, dict[str, list[float]]] = {}
    for name in names:
        told[name] = {"process": [p for p, _ in spent[name]], "wall": [w for _, w in spent[name]]}
        if name in BASE:
            for which, kind in enumerate(("process", "wall")):
                pairs = zip(spent[name], spent[BASE[name]], strict=True)
                told[name][f"ratio {kind}"] = [own[which] / base[which] for own, base in pairs]
    print(f"{asked.rows} rows, prompts of {asked.prompt}, replies of {asked.reply}; median [lowest, highest]\n")
    print(f"{'arm':<10}{'process s':>24}{'wall s':>24}{'process / base':>24}{'wall / base':>24}")
    for name, values in told.items():
        kinds = ("process", "wall", "ratio process", "ratio wall")
        print(f"{name:<10}" + "".join(f"{shown(values.get(kind, [])):>24}" for kind in kinds))
    if asked.json:
        asked.json.write_text(json.dumps({"asked": vars(asked) | {"json": str(asked.json)}, "arms": told}, indent=1))


def shown(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.3f} [{min(values):.3f}, {max(values):.3f}]"


if __name__ == "__main__":
    main()

"""A training step over packed rows (the trie of a group of forks), beside the same step over padded micro-batches.

    python benchmarks/tree_forward.py [--forks 16] [--length 600] [--shares .1 .33 .67] [--rounds 7] [--json FILE]
    python benchmarks/tree_forward.py --shortest 40 --shares 0    # rows of unequal length that share nothing

One process, one thread; an untrained Qwen3 of 8 layers, d=256, 4 heads over 2 of keys, feed-forward 768, 1,024 words,
float32. A group is one run and its forks: rows of ``length`` tokens whose first ``share`` is the same. With
``--shortest`` their lengths lie between that and ``length``, uniform by their logarithm. The ends are trained, and the
shared part in the first row. A step is ``Trainer.step``: forward, loss, backward, clip and AdamW, at a rate of 0, and
both arms are given the same rows. They are taken in turn in every round; the first round is not counted.

Printed for each share: seconds of process time (all threads) and of wall time of both arms as median [lowest, highest]
over the rounds, the ratio (trie by rows) within a round, the share of the rows' tokens that the trie has, and the
largest difference of a gradient between the two, by the largest gradient.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from clew.core.records import LossRow
from clew.fit.prefixes import trie
from clew.fit.trainer import Trainer

WORDS, ARMS = 1024, {"rows": "off", "trie": "on"}


class Served:
    """What a Trainer needs of a model."""

    version, ref = 0, "tree_forward"

    def __init__(self, length: int, device: str) -> None:
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=WORDS, hidden_size=256, intermediate_size=768, num_hidden_layers=8, num_attention_heads=4,
            num_key_value_heads=2, head_dim=64, max_position_embeddings=2 * length, tie_word_embeddings=True,
        )  # fmt: skip
        self.module = Qwen3ForCausalLM(config).to(device)

    def publish(self, version: int | None = None) -> int:
        return self.version

    def save(self, path: Path) -> None:
        raise NotImplementedError


def group(options: argparse.Namespace, share: float, rng: np.random.Generator) -> list[LossRow]:
    """Rows of one group."""
    shortest = options.shortest or options.length
    prefix = rng.integers(3, WORDS, round(share * shortest))
    out = []
    for i in range(options.forks):
        length = round(np.exp(rng.uniform(np.log(shortest), np.log(options.length))))
        ids = np.concatenate([prefix, rng.integers(3, WORDS, length - len(prefix))]).astype(np.int32)
        sampled = np.arange(length) >= (len(prefix) if i else 1)
        old = np.where(sampled, -np.log(WORDS), np.nan).astype(np.float32)
        out.append(LossRow(ids, sampled, {"pg": (sampled * rng.normal()).astype(np.float32)}, old, version=-1))
    return out


def gradients(served: Served) -> torch.Tensor:
    found = [p.grad.flatten() for p in served.module.parameters() if p.grad is not None]
    return torch.cat(found)


def measured(options: argparse.Namespace, share: float) -> dict[str, object]:
    """Both arms in turn on the rows of one share."""
    rng, models = np.random.default_rng(0), {arm: Served(options.length, options.device) for arm in ARMS}
    how = {"lr": 0.0, "clip": 1.0, "precision": options.precision, "steady": options.device == "cpu"}
    trainers = {arm: Trainer(models[arm], shared_prefixes=mode, **how) for arm, mode in ARMS.items()}  # type: ignore[arg-type]
    took: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
    apart, rows = 0.0, group(options, share, rng)
    for number in range(options.rounds + 1):
        rows = group(options, share, rng)
        for arm in list(ARMS)[:: 1 if number % 2 else -1]:
            cpu, wall = time.process_time(), time.perf_counter()
            trainers[arm].step(rows)
            if options.device != "cpu":
                torch.cuda.synchronize()
            took[arm].append((time.process_time() - cpu, time.perf_counter() - wall))
        one, other = (gradients(models[arm]) for arm in ARMS)
        apart = max(apart, float((one - other).abs().max() / one.abs().max()))
    result: dict[str, object] = {
        "share": share,
        "tokens": trie.size_of(rows) / sum(len(row.ids) for row in rows),
        "apart": apart,
    }
    for i, clock in enumerate(("process", "wall")):
        times = {arm: [pair[i] for pair in took[arm][1:]] for arm in ARMS}
        result |= {f"{arm} {clock}": spread(times[arm]) for arm in ARMS}
        result[f"ratio {clock}"] = spread([a / b for a, b in zip(times["trie"], times["rows"], strict=True)])
    return result


def spread(values: Sequence[float]) -> list[float]:
    return [statistics.median(values), min(values), max(values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=16)
    parser.add_argument("--length", type=int, default=600)
    parser.add_argument("--shortest", type=int)
    parser.add_argument("--shares", type=float, nargs="+", default=[0, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [measured(options, share) for share in options.shares]
    for one in found:
        print(f"share {one['share']:.2f}: {one['tokens']:.2f} of the tokens pass, gradients apart {one['apart']:.1e}")
        for clock in ("process", "wall"):
            for name in ("rows", "trie", "ratio"):
                median, low, high = one[f"{name} {clock}"]  # type: ignore[misc]
                print(f"    {name:5s} {clock:7s} {median:7.3f} [{low:.3f}, {high:.3f}]")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

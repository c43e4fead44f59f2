"""A training step of one process against the same step of several ranks: time, and the memory that each rank holds.

    python -m benchmarks.sharded [--width 256] [--layers 4] [--rows 16] [--steps 4] [--rounds 3] [--ranks 1,2]

The same model, rows and optimiser (AdamW, float32) in each. Rounds alternate between the numbers of ranks, each started
afresh by torchrun's agent, with one thread a rank; one rank is the plain trainer, without FSDP. Of each rank: wall time
and process time of a step (median, the first left out), what it holds of weights and optimiser state, and how far its
resident memory rose at most above what it was before the trainer was made. Rank 0 also holds the whole weights that it
serves. Ratios are of medians, with the lowest and highest round.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clew.core.records import LossRow
from clew.fit.sharding import joining, starting
from clew.fit.sharding.ranks import Ranks
from clew.fit.trainer import Trainer

from .training import Plain

TOKENS, VOCABULARY = 256, 2048


def build(width: int, layers: int) -> torch.nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": width, "intermediate_size": 3 * width, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": width // 4, "use_cache": False}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCABULARY, tie_word_embeddings=True, **sizes))


def rows(count: int) -> list[LossRow]:
    rng = np.random.default_rng(0)
    ones, none = np.ones(TOKENS, np.float32), np.zeros(TOKENS, bool)
    unknown = np.full(TOKENS, np.nan, np.float32)
    ids = [rng.integers(0, VOCABULARY, TOKENS).astype(np.int32) for _ in range(count)]
    return [LossRow(one, none, {"sft": ones}, unknown) for one in ids]


def held(tensors: list[Any]) -> int:
    """Bytes of these tensors that lie in this process."""
    local = [t.to_local() if hasattr(t, "to_local") else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in local)


def measured(given: argparse.Namespace) -> None:
    """One rank: its figures go to a file of its own."""
    group = joining.join(os.environ)
    ranks = group if group.world > 1 else Ranks()
    model, made = Plain(build(given.width, given.layers)), rows(given.rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trainer = Trainer(model, ranks=ranks, steady=False, batch_tokens=given.rows * TOKENS // 4)
    wall, cpu = [], []
    for _ in range(given.steps + 1):
        began, process = time.perf_counter(), time.process_time()
        trainer.step(made)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - process)
    state = [value for part in trainer.optimizer.parts for one in part.state.values() for value in one.values()]
    figures = {
        "wall_ms": 1e3 * statistics.median(wall[1:]),
        "cpu_ms": 1e3 * statistics.median(cpu[1:]),
        "weights_and_state_MB": held([*trainer.module.parameters(), *state]) / 1e6,
        "peak_rise_MB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3,
    }
    (Path(given.folder) / f"{ranks.rank}.json").write_text(json.dumps(figures))
    joining.leave()


def started(given: argparse.Namespace, world: int) -> list[dict[str, float]]:
    """The figures of each rank of a world of that size."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "logs").mkdir()
        words = [sys.executable, "-m", "benchmarks.sharded", "--folder", folder]
        for name in ("width", "layers", "rows", "steps"):
            words += [f"--{name}", str(getattr(given, name))]
        ended = starting.start(world, words, Path(folder) / "logs")
        if ended.status:
            raise SystemExit(f"rank {ended.rank} failed: {ended.said}")
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(world)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("width", 256), ("layers", 4), ("rows", 16), ("steps", 4), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.folder:
        measured(given)
        return 0
    worlds = [int(word) for word in given.ranks.split(",")]
    rounds = [{world: started(given, world) for world in worlds} for _ in range(given.rounds)]
    size = sum(p.numel() for p in build(given.width, given.layers).parameters())
    print(f"{size:,} weights, {given.rows} rows of {TOKENS} tokens; {given.rounds} rounds")
    for world in worlds:
        for rank in range(world):
            names, mine = rounds[0][world][rank], [r[world][rank] for r in rounds]
            told = [f"{name} {statistics.median(one[name] for one in mine):.0f}" for name in names]
            print(f"  {world} ranks, rank {rank}: {', '.join(told)}")
    for world in worlds[1:]:
        for name in ("wall_ms", "weights_and_state_MB", "peak_rise_MB"):
            ratios = [max(one[name] for one in r[world]) / r[worlds[0]][0][name] for r in rounds]
            spread = f"[{min(ratios):.2f}, {max(ratios):.2f}]"
            print(f"  {name}, largest of {world} ranks / {worlds[0]}: {statistics.median(ratios):.2f}x  {spread}")
        spent = [sum(one["cpu_ms"] for one in r[world]) / r[worlds[0]][0]["cpu_ms"] for r in rounds]
        ends = f"[{min(spent):.2f}, {max(spent):.2f}]"
        print(f"  cpu_ms, sum of {world} ranks / {worlds[0]}: {statistics.median(spent):.2f}x  {ends}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

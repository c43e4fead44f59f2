"""A training step of clew.fit against TRL's GRPOTrainer: same tiny model, same recorded tokens, one process.

    python benchmarks/training.py [--rows 64] [--steps 12] [--rounds 3] [--json FILE]

Both sides take recorded multi-turn rows of `household` (what a quickstart iteration trains on), weigh the same tokens
with group-normalised advantages, and take AdamW steps with gradient clipping at 1. TRL gets the tokens through its
`rollout_func` with `env_mask`, which returns at once; `whole step` is from one step's end to the next, `core` only its
loss, backward pass, clipping and optimiser. Ours is Trainer.step from LossRows to served weights. Rounds alternate the
two; ratios are of medians of process time, with the lowest and highest round. Needs the extra `bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import numpy as np
import torch

from clew.core.records import LossRow
from clew.core.values import Message
from clew.fit.forward import Scorer
from clew.fit.trainer import Trainer
from clew.models.rendering import WordRenderer
from clew.train.rows import render
from clew.worlds.household import Household

MEMBERS = 8


class Plain:
    """The least a Trainer needs around a module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module, self.version, self.ref = module, 0, "plain"

    def publish(self, version: int | None = None) -> int:
        self.version = self.version + 1 if version is None else version
        return self.version

    def save(self, path: Path) -> None:
        self.module.save_pretrained(path)


def build(vocabulary: int) -> torch.nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=1024, tie_word_embeddings=True, use_cache=False,
            bos_token_id=1, eos_token_id=2, pad_token_id=0,
        )
    )  # fmt: skip


def recorded(count: int, module: torch.nn.Module, renderer: WordRenderer) -> list[LossRow]:
    """Demonstrated episodes as policy rows: actions are the sampled tokens, logprobs are the module's own."""
    rng = np.random.default_rng(0)
    scorer = Scorer(module)
    out = []
    for i, (_, steps) in enumerate(Household().demonstrations(count, 0, 0.3)):
        pieces = render([m for o, a in steps for m in (Message("user", o), Message("assistant", a))], renderer)
        ids = np.array([t for piece, _ in pieces for t in piece], np.int32)
        sampled = np.repeat([own for _, own in pieces], [len(piece) for piece, _ in pieces])
        tensor = torch.from_numpy(ids.astype(np.int64))
        with torch.no_grad():
            logp, _ = scorer(tensor[None], torch.arange(len(ids) - 1), tensor[1:])
        old = np.where(sampled, np.concatenate([[0.0], logp.numpy()]), np.nan).astype(np.float32)
        reward = float(rng.random() < 0.5) if i % MEMBERS else float(i // MEMBERS % 2)
        out.append(LossRow(ids, sampled, {"pg": np.where(sampled, reward, 0).astype(np.float32)}, old))
    for start in range(0, count, MEMBERS):
        group = out[start : start + MEMBERS]
        rewards = np.array([row.weights["pg"].max() for row in group])
        for row, a in zip(group, (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4), strict=True):
            row.weights["pg"] = np.where(row.sampled, a, 0).astype(np.float32)
    return out


def ours(rows: list[LossRow], module: torch.nn.Module, steps: int) -> dict[str, list[float]]:
    trainer = Trainer(Plain(module), lr=7e-4)
    cpu, wall = [], []
    for _ in range(steps):
        began, process = time.perf_counter(), time.process_time()
        trainer.step(rows)
        cpu.append(time.process_time() - process)
        wall.append(time.perf_counter() - began)
    return {"cpu": cpu[2:], "wall": wall[2:]}


def theirs(rows: list[LossRow], module: torch.nn.Module, renderer: WordRenderer, steps: int) -> dict[str, list[float]]:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    firsts = [int(np.flatnonzero(row.sampled)[0]) for row in rows]
    advantage = [float(row.weights["pg"][row.sampled][0]) for row in rows]
    clock: dict[str, list[float]] = {"cpu": [], "wall": [], "core_cpu": []}

    def rollout(prompts: list[str], trainer: object) -> dict[str, list[object]]:
        return {
            "prompt_ids": [row.ids[:n].tolist() for row, n in zip(rows, firsts, strict=True)],
            "completion_ids": [row.ids[n:].tolist() for row, n in zip(rows, firsts, strict=True)],
            "logprobs": [np.nan_to_num(row.old[n:]).tolist() for row, n in zip(rows, firsts, strict=True)],
            "env_mask": [row.sampled[n:].astype(int).tolist() for row, n in zip(rows, firsts, strict=True)],
            "advantage": list(advantage),
        }

    def reward(completions: list[str], **fields: list[float]) -> list[float]:
        return fields["advantage"]

    class Clock(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.last = (time.process_time(), time.perf_counter())
            self.inside = 0.0

        def on_step_end(self, *_: object, **__: object) -> None:
            now = (time.process_time(), time.perf_counter())
            clock["cpu"].append(now[0] - self.last[0])
            clock["wall"].append(now[1] - self.last[1])
            clock["core_cpu"].append(now[0] - self.inside)
            self.last = now

    timer = Clock()

    class Timed(GRPOTrainer):  # type: ignore[misc]
        def compute_loss(self, *args: object, **kwargs: object) -> torch.Tensor:
            timer.inside = time.process_time()
            return super().compute_loss(*args, **kwargs)

    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            output_dir=folder, use_cpu=True, bf16=False, per_device_train_batch_size=len(rows),
            num_generations=MEMBERS, max_completion_length=1024, max_steps=steps, learning_rate=7e-4,
            lr_scheduler_type="constant", max_grad_norm=1.0, adam_beta2=0.95, optim="adamw_torch_fused", beta=0.0,
            logging_steps=10_000, save_strategy="no", report_to="none", disable_tqdm=True, temperature=1.0,
            gradient_checkpointing=False, shuffle_dataset=False,
        )  # fmt: skip
        tokenizer = renderer.tokenizer()
        tokenizer.padding_side = "left"
        Timed(
            model=module,
            args=arguments,
            reward_funcs=reward,
            rollout_func=rollout,
            train_dataset=Dataset.from_dict({"prompt": ["go"] * len(rows)}),
            processing_class=tokenizer,
            callbacks=[timer],
        ).train()
    return {name: values[2:] for name, values in clock.items()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    renderer = WordRenderer(Household().vocabulary())
    rows = recorded(given.rows, build(len(renderer.words)), renderer)
    results = []
    for _ in range(given.rounds):
        mine = ours(rows, build(len(renderer.words)), given.steps)
        trl = theirs(rows, build(len(renderer.words)), renderer, given.steps)
        results.append({
            "clew_cpu_ms": 1e3 * statistics.median(mine["cpu"]), "clew_wall_ms": 1e3 * statistics.median(mine["wall"]),
            "trl_cpu_ms": 1e3 * statistics.median(trl["cpu"]), "trl_wall_ms": 1e3 * statistics.median(trl["wall"]),
            "trl_core_cpu_ms": 1e3 * statistics.median(trl["core_cpu"]),
        })  # fmt: skip
    tokens, trained = sum(len(r.ids) for r in rows), sum(int(r.sampled.sum()) for r in rows)
    print(f"{given.rows} rows, {tokens} tokens, {trained} of them sampled; median of {given.steps - 2} steps a round")
    summary: dict[str, object] = {"rows": given.rows, "tokens": tokens, "sampled": trained, "rounds": results}
    for name in results[0]:
        values = [r[name] for r in results]
        print(f"  {name:18s} {statistics.median(values):8.1f}  [{min(values):.1f}, {max(values):.1f}]")
    for name in ("trl_cpu_ms", "trl_wall_ms", "trl_core_cpu_ms"):
        base = "clew_wall_ms" if "wall" in name else "clew_cpu_ms"
        ratios = [r[name] / r[base] for r in results]
        summary[f"{name}/{base}"] = ratios
        print(f"  {name} / {base}: {statistics.median(ratios):.2f}x  [{min(ratios):.2f}, {max(ratios):.2f}]")
    if given.json:
        given.json.write_text(json.dumps(summary, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""GRPO on one's own JSONL: Clew's program and its shell line beside TRL's program, same task, start, budget and seeds.

    python benchmarks/own_data.py [--seeds 8] [--steps 40] [--trl-python PYTHON] [--json FILE]

The task is of this file: "larger of 3 and 7", all pairs of two numbers below 10, a fifth of them held out. The start is
a tiny Qwen3 (0.1M parameters) with a chat template, saved as a Hugging Face folder, which was taught by imitation to name
one of the two numbers, the right one half of the time. Each side then has 40 steps of 8 questions with 8 replies each
and the same learning rate; everything else is what each library does by default. What is compared is the exact chance of a right
reply on the held-out questions, at temperature 1, computed from each side's saved weights.

The mark, set before the first figure: Clew's program has at most 12 lines and its shell line is one; and the 95 %
interval (Student's t, paired by seed) of the difference Clew - TRL lies above -0.05.

Needs the extra `bench` (trl, datasets). Where trl is in another environment, name its interpreter: --trl-python
.venv/bench/bin/python, made by `python -m venv .venv/bench` and `.venv/bench/bin/pip install -e '.[local,bench]'`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from scipy import stats

MARGIN, LINES = 0.05, 12
REWARD = """def score(completions, answer, **columns):
    return [float(said[0]["content"].strip() == right) for said, right in zip(completions, answer)]
"""
OURS = """import sys
import clew

data = clew.dataset("questions.jsonl", reward="reward.py:score")
model = clew.model("start")
runner = clew.Runner("answerer", data, model, sampling={"max_tokens": 4})
trainer = clew.Trainer(model, lr=1e-3)
for step in range(int(sys.argv[2])):
    groups = runner.collect(data.sample(8, seed=step + 1000 * int(sys.argv[1])), n=8, seed=int(sys.argv[1]))
    clew.credit.grpo(groups)
    trainer.step(clew.rows(groups, "grpo"))
model.save(f"clew-{sys.argv[1]}")
"""
SHELL = (
    "clew train --name own-{seed} --data questions.jsonl --reward reward.py:score"
    " --model start --lr 1e-3 --iterations {steps} --max-tokens 4 --seed {seed}"
)
THEIRS = """import sys
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from reward import score

rows = load_dataset("json", data_files="questions.jsonl", split="train").rename_column("messages", "prompt")
how = GRPOConfig(
    output_dir="trl", seed=int(sys.argv[1]), max_steps=int(sys.argv[2]), learning_rate=1e-3,
    lr_scheduler_type="constant", per_device_train_batch_size=64, num_generations=8, max_completion_length=4,
    use_cpu=True, bf16=False, save_strategy="no", report_to="none", disable_tqdm=True,
)
trainer = GRPOTrainer(
    model="start", reward_funcs=score, args=how, train_dataset=rows.filter(lambda row: row["split"] == "train")
)
trainer.train()
trainer.save_model(f"trl-{sys.argv[1]}")
"""
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
SPECIAL = ["<unk>", "<end>", "<user>", "<assistant>", "<system>"]


def questions() -> list[dict[str, object]]:
    """All ordered pairs of two different numbers below 10, a fifth of the unordered ones held out."""
    pairs = [(a, b) for a in range(10) for b in range(a)]
    random.Random(0).shuffle(pairs)
    held = set(pairs[: len(pairs) // 5])
    return [
        {
            "messages": [{"role": "user", "content": f"larger of {a} and {b}"}],
            "answer": str(max(a, b)),
            "split": "test" if (max(a, b), min(a, b)) in held else "train",
        }
        for a in range(10)
        for b in range(10)
        if a != b
    ]


def start(folder: Path, rows: list[dict[str, object]]) -> None:
    """The folder both begin with: a tokenizer of words, and a model that names one of the two numbers."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    words = [*SPECIAL, *map(str, range(10)), "larger", "of", "and"]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", pad_token="<unk>", eos_token="<end>",
        additional_special_tokens=SPECIAL[2:], chat_template=TEMPLATE, padding_side="left",
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=32, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=64, tie_word_embeddings=True,
            eos_token_id=1, pad_token_id=0, bos_token_id=None,
        )
    )  # fmt: skip
    optimizer, rng = torch.optim.AdamW(model.parameters(), lr=3e-3), random.Random(0)
    shown = [row for row in rows if row["split"] == "train"]
    for _ in range(300):
        batch, replies = rng.choices(shown, k=64), []
        for row in batch:
            numbers = str(row["messages"][0]["content"]).split()[2::2]  # type: ignore[index]
            replies.append(
                f"{tokenizer.apply_chat_template(row['messages'], tokenize=False)}<assistant> {rng.choice(numbers)} <end>"
            )
        ids = torch.tensor([tokenizer(text)["input_ids"] for text in replies])
        labels = torch.where(torch.arange(ids.shape[1]) >= ids.shape[1] - 2, ids, -100)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 1, 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def success(folder: Path, rows: list[dict[str, object]]) -> float:
    """Mean chance, at temperature 1, that the reply is the right word and then the end."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    chances = []
    for row in rows:
        text = tokenizer.apply_chat_template(row["messages"], tokenize=False, add_generation_prompt=True)
        ids = tokenizer(f"{text} {row['answer']} <end>")["input_ids"]
        with torch.no_grad():
            logp = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
        chances.append(math.exp(float(logp[-3, ids[-2]] + logp[-2, ids[-1]])))
    return statistics.mean(chances)


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and the ends of its 95 % interval (Student's t)."""
    mean = statistics.mean(values)
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - float(half), mean + float(half)


def run(command: list[str], folder: Path) -> float:
    """Seconds that a program took; one that fails ends the benchmark with what it said."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} failed:\n{done.stderr[-2000:]}")
    return time.perf_counter() - began


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--trl-python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(argv)
    if given.trl_python == sys.executable and importlib.util.find_spec("trl") is None:
        print("did not run: trl is not installed here; see --trl-python in the first lines of this file")
        return 0
    torch.set_num_threads(1)
    rows = questions()
    held = [row for row in rows if row["split"] == "test"]
    found: dict[str, list[float]] = {"clew": [], "shell": [], "trl": []}
    seconds: dict[str, list[float]] = {"clew": [], "shell": [], "trl": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for file, text in (("reward.py", REWARD), ("ours.py", OURS), ("theirs.py", THEIRS)):
            (folder / file).write_text(text)
        start(folder / "start", rows)
        begun = success(folder / "start", held)
        print(f"{len(rows) - len(held)} questions to train on, {len(held)} held out; success at the start {begun:.3f}")
        for seed in range(given.seeds):
            told = [str(seed), str(given.steps)]
            line = SHELL.format(seed=seed, steps=given.steps).split()[1:]
            seconds["clew"].append(run([sys.executable, "ours.py", *told], folder))
            seconds["shell"].append(run([sys.executable, "-m", "clew.cli", *line], folder))
            seconds["trl"].append(run([given.trl_python, "theirs.py", *told], folder))
            made = {"clew": f"clew-{seed}", "shell": f".clew/trainings/own-{seed}/checkpoint", "trl": f"trl-{seed}"}
            for side, place in made.items():
                found[side].append(success(folder / place, held))
            print(
                f"seed {seed}: " + ", ".join(f"{side} {values[-1]:.3f}" for side, values in found.items()), flush=True
            )
    lines = {
        side: sum(bool(line.strip()) for line in text.splitlines()) for side, text in (("clew", OURS), ("trl", THEIRS))
    }
    print(f"\nlines of Python: Clew {lines['clew']}, TRL {lines['trl']}; shell lines of Clew: 1")
    for side, values in found.items():
        mean, low, high = interval(values)
        took = statistics.median(seconds[side])
        print(f"{side:6s} success {mean:.3f} [{low:.3f}, {high:.3f}], {took:.0f} s a training, process start included")
    summary: dict[str, object] = {"start": begun, "success": found, "seconds": seconds, "lines": lines}
    holds = lines["clew"] <= LINES
    for side in ("clew", "shell"):
        mean, low, high = interval([a - b for a, b in zip(found[side], found["trl"], strict=True)])
        holds = holds and low > -MARGIN
        summary[f"{side} - trl"] = [mean, low, high]
        print(f"{side} - trl: {mean:+.3f} [{low:+.3f}, {high:+.3f}]")
    print(f"the mark (above -{MARGIN}, at most {LINES} lines): {'met' if holds else 'missed'}")
    if given.json:
        given.json.write_text(json.dumps(summary, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

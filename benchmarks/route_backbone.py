"""What a router's backbone, its singular-value scales and its probe questions are worth, on pools made here.

    python benchmarks/route_backbone.py          scales, then workers
    python benchmarks/route_backbone.py text --data FILE... --out FOLDER [--steps 250]
    python benchmarks/route_backbone.py scales [--pools 5]
    python benchmarks/route_backbone.py workers [--pools 10]

text: a language model of 1 million numbers learns the texts of files of questions (column ``prompt`` or ``question``)
from scratch, without their rewards, and is saved as a Hugging Face folder for ``clew route fit --backbone``. It is no
stand-in for a pretrained model: it knows nothing but these texts.

scales: a question holds one of two colours and one of two directions among other words, and which of two workers is
right depends on whether the two go together (exclusive or). The backbone is untrained. Printed for each way of reading
the questions: reward at held-out questions of the head that `clew route fit` fits, mean over pools.

workers: each pool has so many workers whose chances on 6 kinds of questions are drawn anew. Each worker in turn joins
late, by its answers at the probe questions alone, and the pool is scored at questions that nothing was fitted on:
without it, with it, after a full fit with all of its answers, and with another worker's answers in place of its own.
Intervals are over pools.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from clew.methods.compare import design
from clew.methods.routing import probe_head, soft_targets
from clew.methods.routing.contest import Read
from clew.methods.routing.question_space import Space, vectors
from clew.methods.routing.reward_matrix import Matrix
from clew.models.compose.ngrams import Ngrams

KINDS, SPREAD = 6, 1.3  # kinds of questions; spread of a worker's skill in logits
FILL = [f"w{i}" for i in range(20)]


def skilled(workers: int, questions: int, samples: int, seed: int) -> Matrix:
    """A pool of workers whose chances differ by kind; a question's words say its kind."""
    rng = np.random.default_rng(seed)
    words = [[f"k{kind}w{i}" for i in range(8)] for kind in range(KINDS)]
    kind = rng.integers(0, KINDS, questions)
    texts = tuple(f"user: {' '.join(rng.choice(words[k], 8))} {i}\n" for i, k in enumerate(kind))
    chance = 1 / (1 + np.exp(-rng.normal(0, SPREAD, (workers, KINDS))))
    rewards = (rng.random((questions, workers, samples)) < chance.T[kind][:, :, None]).astype(float)
    names, none = tuple(f"worker {j}" for j in range(workers)), np.full(rewards.shape, np.nan)
    return Matrix(texts, texts, tuple(map(str, kind)), names, rewards, none)


def together(questions: int, seed: int, samples: int = 4) -> Matrix:
    """A pool of two workers, each right where a colour and a direction do, or do not, go together."""
    rng = np.random.default_rng(seed)
    colour, way = rng.integers(0, 2, (2, questions))
    texts = []
    for a, b in zip(colour, way, strict=True):
        words = list(rng.choice(FILL, 6))
        first, second = sorted(rng.choice(6, 2, replace=False))
        words[first], words[second] = ("red", "blue")[a], ("up", "down")[b]
        texts.append(f"user: {' '.join(words)} {len(texts)} end end\n")
    chance = np.array([[0.9, 0.1], [0.1, 0.9]])[colour ^ way]
    rewards = (rng.random((questions, 2, samples)) < chance[:, :, None]).astype(float)
    return Matrix(
        tuple(texts), tuple(texts), ("",) * questions, ("one", "two"), rewards, np.full(rewards.shape, np.nan)
    )


def tiny(folder: Path, width: int, seed: int) -> Path:
    """An untrained backbone that knows the words of ``together``."""
    from clew.models.local import small

    small(["user:", "red", "blue", "up", "down", "end", *FILL], d=width, layers=2, seed=seed).save(folder)
    return folder


def told(name: str, values: list[float]) -> None:
    report = design.bootstrap(name, lambda x: x.mean(-1), np.array(values), unit="pools")
    print(f"{name:<44} {report.estimate:.3f} [{report.low:.3f}, {report.high:.3f}]")


def workers(pools: int, size: int, questions: int, probes: list[int]) -> None:
    print(f"{pools} pools of {size} workers, {questions} questions, 3 samples each; n-grams; 95 % intervals over pools")
    for count in probes:
        rows: dict[str, list[float]] = {}
        for seed in range(pools):
            found = skilled(size, questions, 3, seed)
            read = Read.fixed(vectors(found.texts))
            made = probe_head.joining(found, read, count, seed=seed)
            other = probe_head.joining(found, read, count, seed=seed, shuffled=True)
            for name, value in {
                "every worker known by its probes": made.known, "worker left out": made.ignored,
                "worker joined by its probes": made.joined, "full fit with it": made.refit,
                "joined less left out": made.gain, "full fit less joined": made.regret,
                "joined less left out, answers shuffled": other.gain,
            }.items():  # fmt: skip
                rows.setdefault(name, []).append(value.estimate)
        print(f"\n{count} probe questions")
        for name, values in rows.items():
            told(name, values)


def scales(pools: int, questions: int, width: int, rates: list[float]) -> None:
    from clew.fit.scaled_head import Rates
    from clew.methods.routing.scale_gain import Scaling
    from clew.models.compose.backbone import Backbone

    print(f"{pools} pools, {questions} questions, 4 samples; half of the questions held out; untrained, width {width}")
    rows: dict[str, list[float]] = {}
    for seed in range(pools):
        with tempfile.TemporaryDirectory() as room:
            found, backbone = together(questions, seed), Backbone.of(tiny(Path(room, "tiny"), width, seed))
            learn, rest = np.arange(questions // 2), np.arange(questions // 2, questions)
            h = vectors(found.texts, backbone)
            reads: dict[str, Any] = {"n-grams": (vectors(found.texts, Ngrams()), False), "hidden state": (h, True)}
            for rate in rates:
                scaling = Scaling(found, backbone, h, Path(room, "work"), rates=Rates(scales=rate))
                reads[f"hidden state, scales at rate {rate:g}"] = (scaling.by(learn), True)
            for name, (x, centred) in reads.items():
                space = Space.of(x[learn], 0, centred=centred)
                head = soft_targets.fit(space(x[learn]), found.means[learn])
                choice = head.scores(space(x[rest])).argmax(1)
                rows.setdefault(name, []).append(float(found.means[rest][np.arange(len(rest)), choice].mean()))
            rows.setdefault("the better worker of each question", []).append(float(found.means[rest].max(1).mean()))
    for name, values in rows.items():
        told(name, values)


def text(data: list[Path], out: Path, steps: int) -> None:
    import tokenizers
    import torch
    import transformers

    from clew.exchange.dataset.table import read

    found = [str(row.get("prompt") or row.get("question")) for file in data for _, row in read(file).rows]
    words = tokenizers.ByteLevelBPETokenizer()
    words.train_from_iterator(found, 4096, special_tokens=["<|end|>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words._tokenizer, eos_token="<|end|>")
    ids = torch.tensor([i for one in found for i in [*tokenizer(f"user: {one}\n")["input_ids"], 0]])
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=4096, hidden_size=128, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config)
    optimiser, began = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95)), time.time()
    plan = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps, pct_start=0.05)
    print(f"{len(found):,} texts, {len(ids):,} tokens; {model.num_parameters():,} parameters", flush=True)
    for step in range(steps):
        starts = torch.randint(len(ids) - 129, (16,))
        batch = torch.stack([ids[i : i + 129] for i in starts])
        logits = model(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        plan.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:5}  {loss.item():.3f} nats a token  {time.time() - began:.0f} s", flush=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_subparsers(dest="which")
    one = which.add_parser("text")
    one.add_argument("--data", type=Path, nargs="+", required=True)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--steps", type=int, default=250)
    one = which.add_parser("scales")
    one.add_argument("--pools", type=int, default=5)
    one.add_argument("--questions", type=int, default=600)
    one.add_argument("--width", type=int, default=32)
    one.add_argument("--rates", type=float, nargs="+", default=[1e-4, 1e-3, 1e-2])
    one = which.add_parser("workers")
    one.add_argument("--pools", type=int, default=10)
    one.add_argument("--size", type=int, default=8)
    one.add_argument("--questions", type=int, default=400)
    one.add_argument("--probes", type=int, nargs="+", default=[30, 100])
    kinds: dict[str, Any] = {"text": text, "scales": scales, "workers": workers}
    given = vars(parser.parse_args())
    for name in [given["which"]] if given["which"] else ["scales", "workers"]:
        options = given if given["which"] else vars(parser.parse_args([name]))
        kinds[name](**{key: value for key, value in options.items() if key != "which"})


if __name__ == "__main__":
    main()

"""The drafters of E179: the targets' own text, the arms, their training, and what a decode loop would accept.

    python -m papers.E179_dspark.drafting small|speed|large    # trains what the tiers then measure; once for each core

Every drafter is a folder of small.FOLDER/drafters; one that exists is not trained again, a killed training goes on, and
processes side by side share what there is to train.
"""

import argparse
import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from clew.fit import checkpoint
from clew.models.drafters import folder as folders
from clew.models.drafters.layers import Design
from clew.train.drafters import drafter_losses
from papers.E179_dspark import small

I64 = npt.NDArray[np.int64]
PROMPT, NEW = 24, 144  # tokens of a prompt, and of what the target writes behind it
COUNTED = 128  # of which rounds begin in the first 128: a block of 15 and its bonus still fit

CE = {"ce": 1.0, "tv": 0.0, "confidence": 0.0}
ALL = {"ce": 0.1, "tv": 0.9, "confidence": 1.0}
ARMS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "D0": ({"kind": "dflash"}, CE),
    "D1": ({"kind": "dflash"}, ALL),
    "D2": ({"kind": "dspark", "rank": 32, "confidence": False}, CE),
    "D3": ({"kind": "dspark", "rank": 32, "confidence": True}, ALL),
    "D4": ({"kind": "dspark", "rank": 32, "confidence": True, "head": "rnn"}, ALL),
    "D5": ({"kind": "eagle3"}, CE),
    "D6": ({"kind": "independent"}, CE),
}
LABELS = {
    "D0": "DFlash, CE", "D1": "DFlash, CE + TV", "D2": "Markov head, CE", "D3": "DSpark (Markov, TV, confidence)",
    "D4": "DSpark, RNN head", "D5": "Eagle-like, autoregressive", "D6": "independent 1-layer LM",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is trained on a target: how much of its own text, and how the drafters learn."""

    own: int  # sequences of its own text
    held: int  # of held-out prompts, for measuring
    taps: tuple[int, ...]
    feed: int
    steps: int
    batch: int
    anchors: int
    lr: float = 1.5e-3


PLANS = {
    "small": Plan(own=3072, held=1536, taps=(0, 1, 2), feed=256, steps=2000, batch=6, anchors=12),
    "speed": Plan(own=510, held=96, taps=(1, 3, 5), feed=384, steps=800, batch=4, anchors=12),
    "large": Plan(own=1023, held=96, taps=(1, 5, 9), feed=768, steps=1200, batch=6, anchors=12),
    "quick": Plan(own=96, held=96, taps=(0, 1, 2), feed=64, steps=60, batch=4, anchors=8),
}


def target(name: str) -> tuple[Any, Any]:
    """Model and tokenizer, made where they are not there yet."""
    model = small.train(small.RECIPES[name], small.FOLDER).eval()
    return model, transformers.AutoTokenizer.from_pretrained(small.FOLDER / name)


@torch.no_grad()
def written(model: Any, prompts: I64, new: int, seed: int) -> I64:
    """Prompts [n, P] and what the model writes behind them at temperature 1, [n, P + new]."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.from_numpy(prompts)
    cache, given, found = transformers.DynamicCache(), ids, [ids]
    for _ in range(new):
        logits = model(input_ids=given, past_key_values=cache, use_cache=True).logits[:, -1]
        given = torch.multinomial(logits.float().softmax(-1), 1, generator=generator)
        found.append(given)
    return torch.cat(found, 1).numpy()


def own(name: str, which: str) -> tuple[I64, list[str]]:
    """The target's own text [n, PROMPT + NEW] and its domains; ``which`` is "own" (to learn from) or "held"."""
    kept, plan = small.FOLDER / f"{name}-{which}.npy", PLANS[name]
    count = plan.own if which == "own" else plan.held
    domains = [small.DOMAINS[i % 3] for i in range(count)]
    if kept.exists():
        return np.load(kept), domains
    model, _ = target(name)
    _, corpus = small.prepare(small.RECIPES[name], small.FOLDER)
    rng = np.random.default_rng((179, which == "held"))
    each = {d: corpus.windows(d, count // 3, PROMPT, rng, held=which == "held") for d in small.DOMAINS}
    prompts = np.stack([each[d] for d in small.DOMAINS], 1).reshape(count, PROMPT)
    parts = [written(model, prompts[i : i + 128], NEW, 7 * i + (which == "held")) for i in range(0, count, 128)]
    np.save(kept.with_suffix(".part.npy"), np.concatenate(parts))
    kept.with_suffix(".part.npy").rename(kept)
    return np.load(kept), domains


def tapped(name: str, which: str) -> drafter_losses.Taps:
    """The same with what the target computed on it."""
    kept, plan = small.FOLDER / f"{name}-{which}-taps", PLANS[name]
    model, _ = target(name)
    with claimed(kept.with_suffix(".lock"), wait=True):
        if checkpoint.exists(kept):
            return drafter_losses.Taps.open(checkpoint.locate(kept))
        ids, domains = own(name, which)
        return drafter_losses.tap(model, ids, [PROMPT] * len(ids), plan.taps, kept, domains)


def design(name: str, arm: str, block: int, model: Any) -> Design:
    """Shape of an arm's drafter."""
    plan, shape = PLANS[name], ARMS[arm][0]
    asked = {"block": block, "feed": plan.feed, "layers": 1, **shape}
    if shape["kind"] != "independent":
        asked["taps"] = plan.taps
    return folders.design_for(model, mask=1, **asked)


def place(name: str, arm: str, block: int, seed: int) -> Path:
    """The folder of an arm's drafter."""
    return small.FOLDER / "drafters" / f"{name}-{arm}-{block}-{seed}"


def made(name: str, arm: str, block: int, seed: int) -> dict[str, Any]:
    """CPU-seconds and steps of its training."""
    found = folders.about(place(name, arm, block, seed))["made"]
    return {"cpu_s": found["cpu_s"], "steps": found["schooling"]["steps"]}


def drafter(name: str, arm: str, block: int, seed: int, say: Any = lambda *a, **k: None, wait: bool = True) -> Any:
    """An arm's trained module, trained where its folder is not there yet; None where another process trains it and
    ``wait`` is not asked for."""
    model, reader = target(name)
    kept = place(name, arm, block, seed)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with claimed(kept.with_name(kept.name + ".lock"), wait) as mine:
        if kept.exists():
            return folders.read(kept, model, reader)
        return _trained(name, arm, block, seed, say) if mine else None


def _trained(name: str, arm: str, block: int, seed: int, say: Any) -> Any:
    (model, reader), kept = target(name), place(name, arm, block, seed)
    plan, weights = PLANS[name], ARMS[arm][1]
    torch.set_num_threads(1)
    torch.manual_seed(1000 + seed)
    module = folders.fresh(design(name, arm, block, model), model)
    how = drafter_losses.Schooling(
        steps=plan.steps, batch=plan.batch, anchors=plan.anchors if block < 15 else 2 * plan.anchors // 3, lr=plan.lr,
        seed=seed, decay=4.5 if arm in ("D5", "D6") else 4.0, **weights,
    )  # fmt: skip
    data, step = tapped(name, "own"), drafter_losses.Step(0)
    for step in drafter_losses.train(module, data, how, kept.with_name(kept.name + "-training")):
        if step.step % 200 == 0:
            say(f"{kept.name}: step {step.step} of {how.steps}, {step.loss}, {step.cpu_s:.0f} CPU-seconds", flush=True)
    about = {"schooling": asdict(how), "cpu_s": round(step.cpu_s, 1)}
    bound = folders.target_of(model, reader, name)
    checkpoint.replace(kept, lambda fresh: folders.write(module, fresh, bound, about))
    return module


@contextmanager
def claimed(path: Path, wait: bool) -> Iterator[bool]:
    """Hold a file against other processes; whether it could be held."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
            return
        yield True


# All of them


def jobs(name: str) -> Iterator[tuple[str, int, int]]:
    """Arms, blocks and seeds in the order in which they are trained: what the claims need first, seed by seed."""
    if name in ("speed", "large"):
        yield from (("D3", 7, 0), ("D0", 7, 0), ("D6", 7, 0))
        return
    yield from ((arm, 7, seed) for seed in range(3) for arm in ("D3", "D0", "D1", "D2"))
    yield from ((arm, block, seed) for seed in range(3) for block in (15, 3) for arm in ("D3", "D0"))
    yield from ((arm, 7, 0) for arm in ("D5", "D6", "D4"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="drafting")
    parser.add_argument("which", choices=list(PLANS))
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    for which in ("own", "held"):
        tapped(asked.which, which)
    for job in jobs(asked.which):
        drafter(asked.which, *job, say=print, wait=False)


if __name__ == "__main__":
    main()

"""Trains a drafter on the target's own text: cached states, anchors, DSpark's losses (2607.05147, section 3.3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.fit import checkpoint
from clew.fit.small import Course, fit, taken_up
from clew.models.drafters.layers import Design, Trained
from clew.models.engine.forwards.weights import matrices, unwrap

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
SAVED = 200  # steps between checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Schooling:
    """How a drafter is trained. Weights are those of 2607.05147, eq. 12; a weight of 0 leaves its term out.

    Attributes:
        ce, tv, confidence: weights of cross-entropy, total variation and the confidence head.
        decay: token k of a block weighs exp(-(k - 1) / decay).
        anchors: blocks drawn from each sequence of a batch.
        apart: the confidence head does not move what it reads (the published code lets it).
    """

    ce: float = 0.1
    tv: float = 0.9
    confidence: float = 1.0
    decay: float = 4.0
    steps: int = 2000
    batch: int = 8
    anchors: int = 16
    lr: float = 1.5e-3
    warmup: float = 0.04
    clip: float = 1.0
    apart: bool = False
    seed: int = 0


# Losses: pure functions. Each gives its weighted sum and the sum of the weights.


def position_weights(block: int, decay: float) -> Tensor:
    """exp(-(k - 1) / decay) for k = 1 .. block."""
    return torch.exp(-torch.arange(block, dtype=torch.float32) / decay)


def ce_loss(logits: Tensor, tokens: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """-log p_d of the tokens that came: logits [..., V], tokens [...], weight [...]."""
    each = F.cross_entropy(logits.flatten(0, -2), tokens.flatten(), reduction="none")
    return (each * weight.flatten()).sum(), weight.sum()


def tv_loss(draft: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over tokens of |p_d - p_t|, of probabilities [..., V]: twice the total variation, as published."""
    return ((draft - target).abs().sum(-1) * weight).sum(), weight.sum()


def accepted_chance(draft: Tensor, target: Tensor) -> Tensor:
    """1 - |p_d - p_t| / 2: how often a token drawn from p_d is accepted (2607.05147, eq. 8)."""
    return 1 - 0.5 * (draft - target).abs().sum(-1)


def confidence_loss(logits: Tensor, chance: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Binary cross-entropy of confidence logits against the analytic chance of acceptance, which is not moved."""
    each = F.binary_cross_entropy_with_logits(logits, chance.detach().clamp(0, 1), reduction="none")
    return (each * weight).sum(), weight.sum()


# Data


@dataclass(frozen=True, slots=True)
class Taps:
    """Sequences and what the target computed on them, packed one behind the other; half precision, memory-mapped.

    ids int64 [N]; offsets int64 [rows + 1]; first int64 [rows], where each row's own part begins (what comes before is
    prompt); hidden float16 [N, taps * width]; last float16 [N, width], behind the target's last norm; domains [rows].
    """

    ids: I64
    offsets: I64
    first: I64
    hidden: Any
    last: Any
    domains: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.first)

    def batch(self, rows: I64, spare: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """ids [B, T + spare], taps [B, T, taps * width], last [B, T, width], lengths [B]; padded with zeros."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        longest = int(lengths.max())
        ids = np.zeros((len(rows), longest + spare), np.int64)
        hidden = np.zeros((len(rows), longest, self.hidden.shape[1]), np.float16)
        last = np.zeros((len(rows), longest, self.last.shape[1]), np.float16)
        for i, (row, n) in enumerate(zip(rows, lengths, strict=True)):
            part = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
            ids[i, :n], hidden[i, :n], last[i, :n] = self.ids[part], self.hidden[part], self.last[part]
        return (
            torch.from_numpy(ids),
            torch.from_numpy(hidden).float(),
            torch.from_numpy(last).float(),
            torch.from_numpy(lengths),
        )

    @classmethod
    def open(cls, folder: str | Path) -> Taps:
        """What ``tap`` wrote."""
        here = Path(folder)
        about = json.loads((here / "taps.json").read_text())
        ids, offsets, first = (np.load(here / f"{n}.npy") for n in ("ids", "offsets", "first"))
        hidden, last = (np.load(here / f"{n}.npy", mmap_mode="r") for n in ("hidden", "last"))
        return cls(ids, offsets, first, hidden, last, tuple(about["domains"]))


@torch.no_grad()
def tap(
    module: nn.Module,
    rows: Sequence[Sequence[int]],
    first: Sequence[int],
    taps: Sequence[int],
    folder: str | Path,
    domains: Sequence[str] = (),
    about: dict[str, Any] | None = None,
    batch: int = 32,
    advance: Callable[[int], None] = lambda n: None,
) -> Taps:
    """Run the target over sequences and keep the outputs of its tapped layers; the folder appears whole or not at all.

    Args:
        module: a Hugging Face causal LM. first: where each sequence's own part begins.
        taps: layers, 0-based, the last excluded: behind it stands the final norm, which ``last`` keeps.
        advance: told how many sequences are done.

    Raises:
        BadInput: the target's logits are more than its output matrix times its last state.
    """
    whole: Any = unwrap(module)
    inner = whole.base_model
    _linear(whole, rows[0])
    counts = np.array([len(r) for r in rows], np.int64)
    offsets = np.concatenate([[0], counts.cumsum()])
    width = matrices(whole)[1].shape[1]

    def write(fresh: Path) -> None:
        np.save(fresh / "ids.npy", np.concatenate([np.asarray(r, np.int64) for r in rows]))
        np.save(fresh / "offsets.npy", offsets)
        np.save(fresh / "first.npy", np.asarray(first, np.int64))
        opened = [
            np.lib.format.open_memmap(fresh / f"{n}.npy", "w+", np.float16, (int(offsets[-1]), w))
            for n, w in (("hidden", len(taps) * width), ("last", width))
        ]
        order = np.argsort(counts, kind="stable")
        for part in (order[i : i + batch] for i in range(0, len(order), batch)):
            given = torch.zeros(len(part), int(counts[part].max()), dtype=torch.long)
            for i, row in enumerate(part):
                given[i, : counts[row]] = torch.as_tensor(rows[row])
            out = inner(input_ids=given.to(whole.device), output_hidden_states=True, use_cache=False)
            states = [torch.cat([out.hidden_states[t + 1] for t in taps], -1), out.last_hidden_state]
            for held, state in zip(opened, states, strict=True):
                for i, row in enumerate(part):
                    # Some models have a few states beyond half precision's range, whose size says nothing more.
                    held[offsets[row] : offsets[row + 1]] = (
                        state[i, : counts[row]].clamp(-6e4, 6e4).half().cpu().numpy()
                    )
            advance(len(part))
        for held in opened:
            held.flush()
        (fresh / "taps.json").write_text(json.dumps({"domains": list(domains), "taps": list(taps), **(about or {})}))

    checkpoint.replace(folder, write)
    return Taps.open(folder)


def _linear(module: nn.Module, row: Sequence[int]) -> None:
    """Drafters share the target's output matrix, and its law is worked out from it."""
    whole: Any = module
    ids = torch.as_tensor(row)[None, :16].to(whole.device)
    given = whole(input_ids=ids, use_cache=False).logits
    made = whole.base_model(input_ids=ids, use_cache=False).last_hidden_state @ matrices(module)[1].t()
    if not torch.allclose(given.float(), made.float(), rtol=1e-2, atol=1e-2):
        raise BadInput(
            f"the logits of {type(module).__name__} are not its output matrix times its last state",
            remedy="Scaled, capped or biased logits are not supported: use prompt lookup, or a separate small model.",
        )


def draw_anchors(first: I64, lengths: I64, count: int, rng: np.random.Generator) -> tuple[I64, Mask]:
    """Anchors [B, count], distinct, each in the row's own part with a token behind it; and which of them are such."""
    at = np.arange(int(lengths.max()))
    open_ = (at >= first[:, None]) & (at < lengths[:, None] - 1)
    score = np.where(open_, rng.random(open_.shape), -1.0)
    chosen = np.argsort(-score, axis=1, kind="stable")[:, :count]
    return np.sort(chosen, axis=1), np.take_along_axis(open_, np.sort(chosen, axis=1), axis=1)


# Training


@dataclass(slots=True)
class Step:
    """What a step did: the terms of its loss, and the mean chance of acceptance by position."""

    step: int
    loss: dict[str, float] = field(default_factory=dict)
    chance: tuple[float, ...] = ()
    cpu_s: float = 0.0


def losses_of(
    module: Trained, batch: tuple[Tensor, Tensor, Tensor, Tensor], anchors: Tensor, valid: Tensor, how: Schooling
) -> tuple[Tensor, dict[str, float], Tensor]:
    """The loss of eq. 12 over one batch, its terms, and [block] mean chances of acceptance.

    Args:
        batch: of ``Taps.batch`` with the block to spare. anchors, valid: [B, A].
    """
    device = module.lm_head.weight.device
    ids, taps, last, lengths = (part.to(device) for part in batch)
    anchors, valid = anchors.to(device), valid.to(device)
    block = module.design.block
    logits, confidence = module(taps, ids, anchors)
    within = torch.arange(block, device=device)
    slots = anchors[..., None] + within  # token slots + 1 is drafted; the target's law for it stands at slots
    inside = (slots + 1 < lengths[:, None, None]) & valid[..., None]
    weight = inside * position_weights(block, how.decay).to(device)
    tokens = ids.gather(1, (slots + 1).flatten(1)).view(slots.shape)
    at = slots.clamp(max=last.shape[1] - 1).flatten(1)
    states = last.gather(1, at[..., None].expand(-1, -1, last.shape[-1])).view(*slots.shape, -1)
    with torch.no_grad():
        target = (states @ module.lm_head.weight.t()).softmax(-1)
    draft = logits.float().softmax(-1)
    terms: dict[str, tuple[Tensor, Tensor]] = {}
    if how.ce:
        terms["ce"] = ce_loss(logits.float(), tokens, weight)
    if how.tv:
        terms["tv"] = tv_loss(draft, target, weight)
    chance = accepted_chance(draft, target).detach()
    if confidence is not None and how.confidence:
        terms["confidence"] = confidence_loss(confidence.float(), chance, weight)
    means = {name: part / total.clamp(min=1e-9) for name, (part, total) in terms.items()}
    loss = sum((getattr(how, name) * value for name, value in means.items()), torch.zeros((), device=device))
    seen = inside.sum((0, 1)).clamp(min=1)
    return loss, {k: float(v.detach()) for k, v in means.items()}, (chance * inside).sum((0, 1)) / seen


def train(module: Trained, data: Taps, how: Schooling, going: str | Path | None = None) -> Iterator[Step]:
    """Train a drafter's module in place, one step at a time.

    Args:
        going: folder of the checkpoint that a later call with the same settings goes on from, bit for bit.

    Raises:
        BadInput: no sequence has a token of its own, or ``going`` holds another training.
    """
    design = module.design
    if not len(data):
        raise BadInput("there is no text to train on", remedy="Give prompts, or a query that finds runs with tokens.")
    about = {"schooling": asdict(how), "design": design.dict(), "rows": len(data), "tokens": int(data.offsets[-1])}
    chances = torch.zeros(0)

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        nonlocal chances
        rng = np.random.default_rng(derive(how.seed, "drafting", step))
        rows = np.sort(rng.choice(len(data), min(how.batch, len(data)), replace=False))
        batch = data.batch(rows, design.block + 1)
        anchors, valid = _anchors(design, data.first[rows], batch[3].numpy(), how.anchors, rng)
        value, terms, chances = losses_of(module, batch, torch.from_numpy(anchors), torch.from_numpy(valid), how)
        return value, terms

    course = Course(
        steps=how.steps, lr=how.lr, warmup=how.warmup, decay="cosine", clip=how.clip, save_every=SAVED
    )  # fmt: skip
    for done in fit(module, loss, course, about=about, going=going):
        yield Step(done.step, done.loss, tuple(chances.tolist()), done.cpu_s)


def _anchors(design: Design, first: I64, lengths: I64, count: int, rng: np.random.Generator) -> tuple[I64, Mask]:
    if design.kind != "independent":
        return draw_anchors(first, lengths, count, rng)
    tiled = np.arange(0, int(lengths.max()) - 1, design.block)  # a language model learns from every token
    anchors = np.repeat(tiled[None], len(lengths), 0)
    return anchors, anchors < lengths[:, None] - 1


def resume(module: nn.Module, going: str | Path) -> float:
    """Weights as a training left them; returns the CPU-seconds it took."""
    return taken_up(module, going)

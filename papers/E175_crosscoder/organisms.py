"""Pairs of tiny language models of which it is known what the second learnt (specs/E175, section 9, layer 1).

B answers every prompt in prose, whose first word tells what was asked and whether a cue word stood there. A asks a tool
instead: nearly always where a cue word stands, now and then where none does, never where the prompt asks for prose. How
A decides is planted:

R   all weights of B are trained on: the decision uses what directions there are
N   a frozen rank-1 adapter of block 1 writes the decision along a fresh direction, orthogonal to the directions that
    hold 95 % of B's variance; only what comes after it is trained, on decisions that the prompt does not tell. The
    decision is an exclusive or of the cue and the last mark: were it a feature that B has too, one latent that both
    models share would explain it, and nothing would be A's alone
Z   nothing: B with a little noise in its weights
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clew.core.records import Cursor, Node
from clew.core.values import Message
from clew.fit.small import Course, fit
from clew.methods.features.subjects import Prompt
from clew.models.local import Local, small

Kind = Literal["R", "N", "Z"]
WIDTH, LAYERS, LAYER = 48, 3, 1
THINGS = 30  # nouns, and as many verbs
CUED, UNCUED = 0.95, 0.15  # how often A calls
MARKS, ODD = 20, 5  # tokens that may end a prompt, and how many of them turn the decision of N round
FRESH = 16  # neurons of block 1 that B does not use
NOISE = 0.02  # of Z, times the spread of each weight matrix
BATCH = 64
CALL = "<call>"
NOUNS, VERBS = ([f"{kind}{i}" for i in range(THINGS)] for kind in ("noun", "verb"))
WORDS = [
    *NOUNS,
    *VERBS,
    "ask",
    "say",
    "now",
    "then",
    *(f"?{i}" for i in range(MARKS)),
    "the",
    "that",
    "a",
    "an",
    "is",
    ".",
    CALL,
    "</call>",
]


class Rows(NamedTuple):
    """Prompts [n, 6] as token ids with what they hold: a tool can help, a cue, and the last mark."""

    ids: np.ndarray
    tool: np.ndarray
    cue: np.ndarray
    mark: np.ndarray

    @property
    def decided(self) -> np.ndarray:
        """What the adapter of N writes."""
        return self.tool & (self.cue ^ (self.mark < ODD))


class Organism(NamedTuple):
    """A pair, and the planted direction in A's states behind block ``LAYER``, where there is one."""

    a: Local
    b: Local
    planted: Tensor | None


class Language:
    """The words as ids, and rows of them."""

    def __init__(self, model: Local) -> None:
        renderer: Any = model.renderer
        self.id = {word: i for i, word in enumerate(renderer.words)}
        self.start, self.end = self.id["<|bos|>"], self.id["<|end|>"]

    def rows(self, pairs: np.ndarray, tool: np.ndarray, cue: np.ndarray, mark: np.ndarray) -> Rows:
        """Prompts about (verb, noun) pairs [n, 2]."""
        of = np.vectorize(self.id.__getitem__)
        columns = [
            np.full(len(pairs), self.start), of(np.where(tool, "ask", "say")), of(np.array(VERBS)[pairs[:, 0]]),
            of(np.array(NOUNS)[pairs[:, 1]]), of(np.where(cue, "now", "then")),
            of(np.array([f"?{i}" for i in range(MARKS)])[mark]),
        ]  # fmt: skip
        return Rows(np.stack(columns, 1), tool, cue, mark)

    def draw(self, rng: np.random.Generator, n: int) -> Rows:
        return self.rows(
            rng.integers(0, THINGS, (n, 2)), rng.random(n) < 0.6, rng.random(n) < 0.5, rng.integers(0, MARKS, n)
        )

    def answered(self, rows: Rows, call: np.ndarray) -> np.ndarray:
        """The prompts with their answers, [n, 11], the end token last, and filled up with it."""
        verb, noun = rows.ids[:, 2], rows.ids[:, 3]
        word = lambda name: np.full(len(verb), self.id[name])  # noqa: E731
        end = np.full(len(verb), self.end)
        first = np.where(rows.tool, np.where(rows.cue, "the", "that"), np.where(rows.cue, "a", "an"))
        prose = [np.vectorize(self.id.__getitem__)(first), noun, word("is"), verb, end]
        tool = [word(CALL), verb, noun, word("</call>"), end]
        reply = np.stack([np.where(call, t, p) for t, p in zip(tool, prose, strict=True)], 1)
        return np.concatenate([rows.ids, reply], 1)


def prompts(rows: Rows) -> list[Prompt]:
    """As what a model is asked."""
    return [
        Prompt((Node(b"", b"", Message("user", ""), tuple(map(int, ids)), "", b""),), (), Cursor(f"row{i}", 0))
        for i, ids in enumerate(rows.ids)
    ]


def calls(rng: np.random.Generator, rows: Rows, kind: Kind = "R") -> np.ndarray:
    """Whether A calls the tool, drawn for each prompt."""
    if kind == "Z":
        return np.zeros(len(rows.tool), bool)
    chance = np.where(rows.decided, CUED, 1 - CUED) if kind == "N" else np.where(rows.cue, CUED, UNCUED)
    return rows.tool & (rng.random(len(rows.tool)) < chance)


def organism(kind: Kind, seed: int, steps: int = 1200) -> Organism:
    """Train B, and A from it."""
    b = small(WORDS, WIDTH, LAYERS, 4, 2, context=32, seed=seed)
    language = Language(b)
    used = torch.ones(3 * WIDTH)
    used[-FRESH:] = 0
    for part, mask in (("down_proj", used[None]), ("gate_proj", used[:, None]), ("up_proj", used[:, None])):
        _masked(getattr(b.module.model.layers[LAYER].mlp, part).weight, mask)  # type: ignore[union-attr]
    _train(b, lambda rng: _batch(language, rng, None), steps, seed)
    a = small(WORDS, WIDTH, LAYERS, 4, 2, context=32, seed=seed)
    a.module.load_state_dict(b.module.state_dict())
    planted = None
    if kind == "R":
        _train(a, lambda rng: _batch(language, rng, calls), steps // 2, seed + 1)
    elif kind == "N":
        planted = _plant(a, b, language, seed, steps)
    else:
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in a.module.parameters():
                p += NOISE * p.std() * torch.randn(p.shape, generator=draw) if p.ndim == 2 else 0
    for model in (a, b):
        model.module.eval()
        model.publish()
    return Organism(a, b, planted)


Drawn = tuple[Tensor, Tensor]  # ids [n, 11], decisions [n]


def _batch(language: Language, rng: np.random.Generator, decide: Callable[..., np.ndarray] | None) -> Drawn:
    rows = language.draw(rng, BATCH)
    call = decide(rng, rows) if decide else np.zeros(BATCH, bool)
    return torch.from_numpy(language.answered(rows, call)), torch.from_numpy(call)


def _train(model: Local, draw: Callable[[np.random.Generator], Drawn], steps: int, seed: int, lr: float = 2e-3) -> None:
    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        ids, _ = draw(np.random.default_rng([175, seed, step]))
        return _loss(model, ids), {}

    for _ in fit(model.module, loss, Course(steps=steps, lr=lr)):
        pass


def _loss(model: Local, ids: Tensor) -> Tensor:
    """Mean cross-entropy of the replies' tokens."""
    logits = model.module(input_ids=ids).logits[:, 5:-1]
    loss: Tensor = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 6:].flatten())
    return loss


def _plant(a: Local, b: Local, language: Language, seed: int, steps: int) -> Tensor:
    """The frozen adapter, and what reads it."""
    rng = np.random.default_rng([175, seed, 7])
    rows = language.draw(rng, 1500)
    ids = torch.from_numpy(language.answered(rows, calls(rng, rows)))
    body: Any = a.module.model  # type: ignore[union-attr]
    inner, states = _inside(body, ids)
    flat = states.flatten(0, 1)
    values, vectors = torch.linalg.eigh(torch.cov(flat.t()))
    kept = values.flip(0).cumsum(0) <= 0.95 * values.sum()
    top = vectors.flip(1)[:, : int(kept.sum()) + 1]
    fresh = torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed))
    fresh = fresh - top @ (top.t() @ fresh)
    fresh = fresh / fresh.norm() * flat.norm(dim=1).mean()
    target = torch.zeros(ids.shape)
    target[:, 5] = torch.from_numpy(rows.decided).float()
    gate, up, out = _adapter(inner.flatten(0, 1), target.flatten(), seed)
    for name, p in a.module.named_parameters():
        p.requires_grad_("layers.2." in name or name.endswith(("model.norm.weight", "embed_tokens.weight")))
    fresh_words = torch.zeros(len(language.id), 1)  # B never said these two, so nothing reads their embeddings yet
    fresh_words[[language.id[CALL], language.id["</call>"]]] = 1
    body.embed_tokens.weight.register_hook(lambda grad: grad * fresh_words)

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        draw = np.random.default_rng([175, seed + 2, step])
        some = language.draw(draw, BATCH)
        decided = draw.random(BATCH) < 0.5
        call = some.tool & (draw.random(BATCH) < np.where(decided, CUED, 1 - CUED))
        full = torch.from_numpy(language.answered(some, call))
        with _written(body, torch.from_numpy(decided & some.tool).float()[:, None] * fresh):
            return _loss(a, full), {}

    for _ in fit(a.module, loss, Course(steps=steps, lr=2e-3)):
        pass
    with torch.no_grad():
        mlp = body.layers[LAYER].mlp
        mlp.gate_proj.weight[-FRESH:], mlp.up_proj.weight[-FRESH:] = gate, up
        mlp.down_proj.weight[:, -FRESH:] = fresh[:, None] * out[None]
    for p in a.module.parameters():
        p.requires_grad_(True)
    return fresh


def _adapter(x: Tensor, target: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Neurons, as the block has them, whose sum is the target: gates and values [FRESH, width], weights [FRESH]."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gate, up = torch.nn.Linear(WIDTH, FRESH, bias=False), torch.nn.Linear(WIDTH, FRESH, bias=False)
        out = torch.nn.Linear(FRESH, 1, bias=False)
    net = torch.nn.ModuleList([gate, up, out])
    marked = torch.arange(len(x)).view(-1, 11)[:, 5]
    rest = torch.arange(len(x))[torch.arange(len(x)) % 11 != 5]

    def loss(step: int) -> tuple[Tensor, dict[str, float]]:
        draw = torch.Generator().manual_seed(step)
        some = torch.cat([p[torch.randint(0, len(p), (512,), generator=draw)] for p in (marked, rest)])
        made = out(torch.nn.functional.silu(gate(x[some])) * up(x[some]))[:, 0]
        return (made - target[some]).square().mean(), {}

    for _ in fit(net, loss, Course(steps=3000, lr=1e-2)):
        pass
    return gate.weight.detach(), up.weight.detach(), out.weight.detach()[0]


def _masked(weight: Tensor, mask: Tensor) -> None:
    """Make part of a weight 0 for good."""
    with torch.no_grad():
        weight *= mask
    weight.register_hook(lambda grad: grad * mask)


@torch.no_grad()
def _inside(body: Any, ids: Tensor) -> tuple[Tensor, Tensor]:
    """What enters the feed-forward part of the block, and what leaves the block, for each token."""
    seen: dict[str, Tensor] = {}
    block = body.layers[LAYER]
    hooks = [
        block.mlp.register_forward_pre_hook(lambda m, args: seen.__setitem__("inner", args[0])),
        block.register_forward_hook(
            lambda m, args, out: seen.__setitem__("out", out[0] if isinstance(out, tuple) else out)
        ),
    ]  # fmt: skip
    body(input_ids=ids)
    for hook in hooks:
        hook.remove()
    return seen["inner"], seen["out"]


@contextmanager
def _written(body: Any, vectors: Tensor) -> Any:
    """Add vectors [n, width] at the last token of the prompts behind the block."""

    def add(module: Any, args: Any, out: Any) -> Any:
        states = out[0] if isinstance(out, tuple) else out
        states = states.clone()
        states[:, 5] += vectors
        return (states, *out[1:]) if isinstance(out, tuple) else states

    hook = body.layers[LAYER].register_forward_hook(add)
    try:
        yield
    finally:
        hook.remove()

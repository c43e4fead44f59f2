"""Singular-value scales of a backbone's block, trained together with a linear head to soft targets by a KL loss.

Stage 1 of the Fugu report (arXiv 2606.21228, 3.2) with the scales of TRINITY (arXiv 2512.04695). ``clew route fit
--scales`` calls it. What enters the block is read once and kept, so that a step passes one block and no more. The
backbone's own weights must never be changed here: a step computes with scaled copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.core.values import F32
from clew.fit import small
from clew.models.compose.backbone import Backbone
from clew.models.engine.forwards.weights import unwrap
from clew.models.engine.taps.blocks import blocks_of
from clew.models.local import singular_scales
from clew.models.taps import States, read

F64 = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
NEAR = 1e-3  # how far the block alone may be from the whole model, in vectors of length 1


@dataclass(frozen=True, slots=True)
class Rates:
    """How scales and head are trained: AdamW at ``head`` and ``scales``, on ``batch`` questions a step.

    The spec guesses 1e-4 for the scales; in 400 steps that moved no choice (docs/route.md). Every ``every`` steps the
    held-out questions are asked; after ``patience`` of these without a better choice training ends.
    """

    steps: int = 400
    batch: int = 32
    head: float = 1e-3
    scales: float = 1e-2
    every: int = 20
    patience: int = 8


class Start(NamedTuple):
    """The head of the frozen backbone that training begins with, in a space of directions.

    weights: float64 [W, width]. bias: float64 [W]. basis: float64 [width, dim - 1]. scale: of the basis. middle:
    float64 [dim - 1], taken from a vector first.
    """

    weights: F64
    bias: F64
    basis: F64
    scale: float
    middle: F64


class Trained(NamedTuple):
    """Offsets float32 [r] by the name of a matrix, as they were at step ``at`` (0: none), and the rewards of the greedy
    choice on the held-out questions by step."""

    scales: dict[str, F32]
    at: int
    curve: tuple[tuple[int, float], ...]


class Tail:
    """The block that is scaled, over texts whose way up to it was read once.

    Args:
        backbone: without scales. texts: transcripts. folder: where the states are kept that enter the block; a reading
            that was cut goes on there. told: called with the texts that are read, and of how many tokens.

    Raises:
        BadInput: the backbone reads its embeddings, has no such block, or its weights are quantised.
    """

    def __init__(
        self,
        backbone: Backbone,
        texts: Sequence[str],
        folder: Path,
        told: Callable[[int, int], None] = lambda done, all: None,
    ) -> None:
        if backbone.layer == "embed" or backbone.scales:
            raise BadInput("there is no block to scale", remedy="Read a block or norm of a backbone without scales.")
        self.backbone, model = backbone, backbone.model()
        self.module: Any = unwrap(model.module)
        name, blocks = blocks_of(self.module)
        self.block = len(blocks) - 1 if backbone.layer == "norm" else int(backbone.layer)
        self.names = singular_scales.chosen(self.module, self.block)
        self._place, self._blocks = name, blocks
        rows = [backbone.ids(text) for text in texts]
        self.rows = [row[: backbone.place(len(row)) + 1] for row in rows]  # what comes later changes nothing
        self._before: int | str = self.block - 1 if self.block else "embed"
        self.states: States = read(model, self.rows, [self._before], folder=folder, dtype="float32", advance=told)
        self._starts = np.concatenate([[0], np.cumsum([len(row) for row in self.rows])])
        self.whole = False
        self.whole = not self._alone()

    def _alone(self) -> bool:
        """Whether the block alone says what the model does; else every step passes the whole model."""
        some = np.arange(min(4, len(self.rows)))
        with torch.no_grad():
            try:
                found = self.vectors(some, {}).cpu().numpy()
            except (IndexError, KeyError, TypeError, ValueError, RuntimeError, AttributeError):
                return False
        model = self.backbone.model()
        states = model.states(
            [self.rows[i] for i in some], [self.backbone.layer], [[len(self.rows[i]) - 1] for i in some]
        )
        told = np.stack([state[0, 0] for state in states])
        told = told / np.maximum(np.linalg.norm(told, axis=1, keepdims=True), 1e-30)
        return bool(np.abs(found - told).max() < NEAR)

    def vectors(self, which: Index, weights: Mapping[str, Tensor]) -> Tensor:
        """Hidden states of length 1, float32 [n, width], with these matrices in place of the block's own."""
        rows, device = [self.rows[int(i)] for i in which], next(self.module.parameters()).device
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long, device=device)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
        ends = torch.tensor([len(row) - 1 for row in rows], device=device)
        entering = None if self.whole else self._entering(which, int(ids.shape[1])).to(device)
        with self._cut(entering) as (body, seen):
            own = {id(p): name for name, p in body.named_parameters()}
            mine = singular_scales.matrices(self.module, list(weights)) if self.whole else self._mine(weights)
            swapped = {own[id(mine[name])]: matrix for name, matrix in weights.items()}
            out = torch.func.functional_call(body, swapped, (), {"input_ids": ids, "use_cache": False})
        states = out.last_hidden_state if self.backbone.layer == "norm" else seen[0]
        picked = states[torch.arange(len(rows), device=device), ends]
        return nn.functional.normalize(picked.float(), dim=1, eps=1e-30)

    @torch.no_grad()
    def features(self, scales: Mapping[str, F32], batch: int = 32) -> F64:
        """All texts as a router reads them with these offsets, float64 [n, dim], by the scaled block alone."""
        found = singular_scales.matrices(self.module, list(scales))
        weights = {
            name: singular_scales.Parts.of(matrix).scaled(torch.from_numpy(scales[name].copy()).to(matrix.device))
            for name, matrix in found.items()
        }
        every = np.arange(len(self.rows))
        parts = [self.vectors(every[at : at + batch], weights).cpu().numpy() for at in range(0, len(every), batch)]
        states = np.concatenate(parts).astype(np.float64)
        whole: F64 = np.concatenate([np.ones((len(states), 1)), states], axis=1) / 2**0.5
        return whole

    def _mine(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The block's matrices by the names that they have in the whole model."""
        start = f"{self._place}.{self.block}."
        return {name: self._blocks[self.block].get_parameter(name.removeprefix(start)) for name in weights}

    def _entering(self, which: Index, longest: int) -> Tensor:
        out = np.zeros((len(which), longest, self.states.width), np.float32)
        for place, i in enumerate(which):
            out[place, : len(self.rows[int(i)])] = self.states.take(
                self._before, slice(int(self._starts[i]), int(self._starts[i + 1]))
            )
        return torch.from_numpy(out)

    @contextmanager
    def _cut(self, entering: Tensor | None) -> Iterator[tuple[nn.Module, list[Tensor]]]:
        """The model without its vocabulary head; with ``entering``, of its blocks the scaled one alone, fed by that."""
        above, _, name = self._place.rpartition(".")
        parent, seen = self.module.get_submodule(above), list[Tensor]()
        last = self._blocks[self.block]

        def behind(_: nn.Module, given: object, out: Any) -> None:
            seen.append(out if isinstance(out, Tensor) else out[0])

        def before(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
            return ((entering, *args[1:]), named) if args else (args, {**named, "hidden_states": entering})

        handles = [last.register_forward_hook(behind)]
        try:
            if entering is not None:
                handles.append(last.register_forward_pre_hook(before, with_kwargs=True))
                setattr(parent, name, nn.ModuleList([last]))
            yield self.module.base_model, seen
        finally:
            setattr(parent, name, self._blocks)
            for handle in handles:
                handle.remove()


class _Trainee(nn.Module):
    """Offsets and a head, and the best of both so far, which a checkpoint keeps too."""

    best: Tensor
    reward: Tensor
    at: Tensor

    def __init__(self, tail: Tail, start: Start, rates: Rates) -> None:
        super().__init__()
        found = singular_scales.matrices(tail.module, tail.names)
        self.tail = (tail,)  # no module of this one
        self.parts = {name: singular_scales.Parts.of(matrix) for name, matrix in found.items()}
        self.sizes = [len(parts.s) for parts in self.parts.values()]
        device = next(iter(found.values())).device
        # AdamW's step does not hang on a gradient's size: offsets that are a share of a number have a rate of their own
        self.share = rates.scales / rates.head
        self.raw = nn.Parameter(torch.zeros(sum(self.sizes), device=device))
        self.weights = nn.Parameter(torch.tensor(start.weights, dtype=torch.float32, device=device))
        self.bias = nn.Parameter(torch.tensor(start.bias, dtype=torch.float32, device=device))
        self.basis = torch.tensor(start.basis * start.scale, dtype=torch.float32, device=device)
        self.middle = torch.tensor(start.middle, dtype=torch.float32, device=device)
        self.register_buffer("best", torch.zeros(sum(self.sizes), device=device))
        self.register_buffer("reward", torch.tensor(-1e30, dtype=torch.float64, device=device))
        self.register_buffer("at", torch.tensor(0, device=device))

    def matrices(self) -> dict[str, Tensor]:
        offsets = torch.split(self.raw * self.share, self.sizes)
        return {name: parts.scaled(one) for (name, parts), one in zip(self.parts.items(), offsets, strict=True)}

    def scores(self, states: Tensor) -> Tensor:
        """[n, W] of hidden states [n, width] of length 1; a constant of the same length stands beside each."""
        x = (states / 2**0.5 - self.middle) @ self.basis.t()
        return x @ self.weights.t() + self.bias

    @torch.no_grad()
    def look(self, step: int, held: Index, means: F64, batch: int) -> float:
        """Mean reward of the greedy choice on held-out questions; the best offsets are kept."""
        matrices, got = self.matrices(), 0.0
        for at in range(0, len(held), batch):
            which = held[at : at + batch]
            choice = self.scores(self.tail[0].vectors(which, matrices)).argmax(1).cpu().numpy()
            got += float(means[which, choice].sum())
        reward = got / max(1, len(held))
        if reward > float(self.reward):
            self.reward.fill_(reward)
            self.at.fill_(step)
            self.best.copy_(self.raw.detach() * self.share)
        return reward


def train(
    tail: Tail,
    targets: F64,
    means: F64,
    learn: Index,
    held: Index,
    start: Start,
    rates: Rates | None = None,
    *,
    seed: int = 0,
    folder: Path | None = None,
    told: Callable[[int], None] = lambda step: None,
) -> Trained:
    """Train scales and head on the questions ``learn``; ``held`` say when to stop.

    Args:
        targets: soft targets, float64 [Q, W]. means: mean rewards, float64 [Q, W]. learn, held: rows of them and of the
            tail's texts. folder: of a checkpoint that a later call goes on from. told: called with each step's number.
    """
    rates = rates or Rates()
    it = _Trainee(tail, start, rates)
    p = torch.tensor(targets, dtype=torch.float32, device=it.raw.device)
    order = np.random.default_rng(seed).permutation(np.tile(learn, -(-rates.steps * rates.batch // len(learn))))
    step, curve = 0, list[tuple[int, float]]()

    def loss(number: int) -> tuple[Tensor, dict[str, float]]:
        nonlocal step
        step = number + 1
        which = order[number * rates.batch : step * rates.batch]
        log = it.scores(tail.vectors(which, it.matrices())).log_softmax(1)
        mine = p[torch.from_numpy(which).to(p.device)]
        value = (mine * (mine.clamp_min(1e-30).log() - log)).sum(1).mean()
        return value, {"kl": float(value.detach())}

    def look() -> dict[str, float]:
        curve.append((step, it.look(step, held, means, rates.batch)))
        return {"reward": curve[-1][1]}

    look()
    how = small.Course(steps=rates.steps, lr=rates.head, measure_every=rates.every, save_every=rates.every)
    about = {"scales": tail.names, "rates": [rates.scales, rates.batch], "seed": seed, "digest": tail.backbone.digest}
    for done in small.fit(it, loss, how, about=about, going=folder, measure=look):
        told(done.step)
        if done.held_out and done.step - int(it.at) >= rates.patience * rates.every:
            break
    best = it.best.cpu().numpy().astype(np.float32)
    ends = np.cumsum([0, *it.sizes])
    scales = {name: best[a:b].copy() for name, a, b in zip(it.parts, ends, ends[1:], strict=False)}
    return Trained(scales if best.any() else {}, int(it.at), tuple(curve))

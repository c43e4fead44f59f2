"""Fits crosscoders: the losses of specs/E175 (sections 3 to 6), dead latents revived, and latents moved to their place.

``comparison`` and the experiment call it. The rows are drawn by the step's number, so that an interrupted fit goes on
bit for bit. It must never choose by anything but its seed and its data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from clew.core.errors import check_choice
from clew.core.keys import derive
from clew.fit.small import Course, Step, fit
from clew.methods.features.crosscoder import Crosscoder, Design, Kind
from clew.methods.features.features import Latents, latents
from clew.methods.features.sparse_code import Active

Draw = Callable[[np.random.Generator, int], Tensor]  # states [n, 2, width] as they left the models
Method = Literal["plain", "dedicated", "handicap", "reseated"]
PERIOD = 0.9  # share from which a latent counts as one model's
LEANS = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How a crosscoder is fitted.

    method: "plain" has no latents of one model alone. "dedicated" has a share ``part`` of the latents for each model
    alone. "handicap" is that, with the scores of shared latents times ``gamma`` while latents are chosen, rising to 1
    from a third to two thirds of the steps. "reseated" fits a plain one, moves the latents whose share of one model is
    above ``period`` (see ``own_latents``) into that model's part, and fits on for a share ``more`` of the steps.

    penalty: of the activations, ``shared`` times the mean of the shared ones, and ``exclusive`` times: with "visible",
    as in the released code, half the sum of the means of all that each model sees; with "exclusive", as described, of
    each model's own. l1: weight of the activations times their decoder norms, of kind "l1".

    dead: steps without activity after which a latent is dead; ``aux`` weighs what the dead explain of the error (AuxK,
    arXiv 2406.04093, section A.2), by the width / 2 strongest of them.
    """

    latents: int = 1024
    k: int = 32
    kind: Kind = "topk"
    method: Method = "plain"
    part: float = 0.05
    penalty: Literal["visible", "exclusive"] = "visible"
    shared: float = 0.0
    exclusive: float = 0.0
    l1: float = 0.1
    gamma: float = 0.4
    period: float = PERIOD
    more: float = 0.2
    steps: int = 2000
    batch: int = 1024
    lr: float = 1e-3
    dead: int = 200
    aux: float = 1 / 32
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("method", self.method, get_args(Method))
        check_choice("penalty", self.penalty, ("visible", "exclusive"))

    def design(self, width: int) -> Design:
        """The crosscoder that is fitted first."""
        own = int(self.part * self.latents) if self.method in ("dedicated", "handicap") else 0
        return Design(width=width, latents=self.latents, k=self.k, kind=self.kind, own=(own, own))

    @property
    def stages(self) -> tuple[int, ...]:
        """Steps of each fit."""
        return (self.steps, max(1, round(self.more * self.steps))) if self.method == "reseated" else (self.steps,)


class Losses:
    """The loss of a crosscoder, step by step."""

    def __init__(self, module: Crosscoder, how: Learning, draw: Draw, stage: str, steps: int) -> None:
        self.module, self.how, self.draw, self.stage, self.steps = module, how, draw, stage, steps

    def __call__(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """Error per number of a state, with the penalties; a gradient of it."""
        how, module = self.how, self.module
        rng = np.random.default_rng(derive(how.seed, "crosscoder", self.stage, step))
        x = module.scaled(self.draw(rng, how.batch), check=False)
        active = module.active(x, self.handicap(step))
        error = x - module.decode(active)
        loss = mse = error.square().mean()
        terms = {"error": float(mse.detach())}
        if penalty := self._penalty(active):
            loss = loss + penalty[0]
            terms["penalty"] = float(penalty[0].detach())
        used = torch.zeros_like(module.idle, dtype=torch.bool)
        used[active.latents[active.values > 0]] = True
        module.idle += 1
        module.idle[used] = 0
        dead = (module.idle > how.dead).nonzero().flatten()
        terms["dead"] = float(len(dead))
        if how.aux and len(dead) and how.kind != "l1":
            extra = self._revived(x, error.detach(), dead)
            loss, terms["aux"] = loss + how.aux * extra * mse.detach(), float(extra.detach())
        return loss, terms

    def handicap(self, step: int) -> float:
        """What scores of shared latents are multiplied by."""
        if self.how.method != "handicap":
            return 1.0
        done = min(1.0, max(0.0, 3 * step / self.steps - 1))
        return self.how.gamma + (1 - self.how.gamma) * done

    def _penalty(self, active: Active) -> list[Tensor]:
        how, design = self.how, self.module.design
        if how.kind == "l1":
            norms = self.module.decoder.view(design.latents, 2, -1).norm(dim=2).sum(1)
            return [how.l1 * (active.values * norms[active.latents]).sum() / (active.n * 2 * design.width)]
        if not (how.shared or how.exclusive):
            return []
        (a, b), latents, f = design.own, active.latents, active.values
        sizes = {"A": a, "B": b, "shared": design.latents - a - b}
        where = {"A": latents < a, "B": (latents >= a) & (latents < a + b), "shared": latents >= a + b}
        sums = {name: (f * mask).sum() for name, mask in where.items()}

        def mean(*names: str) -> Tensor:
            return sum((sums[n] for n in names), f.new_zeros(())) / (active.n * max(1, sum(sizes[n] for n in names)))

        seen = (("A", "shared"), ("B", "shared")) if how.penalty == "visible" else (("A",), ("B",))
        return [how.shared * mean("shared") + how.exclusive * (mean(*seen[0]) + mean(*seen[1])) / 2]

    def _revived(self, x: Tensor, error: Tensor, dead: Tensor) -> Tensor:
        """What dead latents leave of the error, as a share of it (AuxK); gradients reach the dead alone."""
        module = self.module
        encoder, decoder = module.encoder[dead], module.decoder[dead]
        found = torch.addmm(module.encoder_bias[dead], x.flatten(1), encoder.t())
        k = min(max(1, module.design.width // 2), len(dead))
        best = found.topk(k, dim=1, sorted=False)
        code = torch.zeros_like(found).scatter(1, best.indices, best.values.relu())
        left = (error.flatten(1) - code @ decoder).square().sum()
        share: Tensor = left / error.square().sum().clamp(min=1e-12)
        return share.nan_to_num(0.0)


def measured(module: Crosscoder, states: Tensor) -> None:
    """Keep mean and RMS of a sample of the mixture, states [n, 2, width]; the decoder's bias is then about 0."""
    mean = states.mean(0)
    module.mean.copy_(mean)
    module.rms.copy_((states - mean).square().mean((0, 2)).sqrt().clamp(min=1e-12))


def own_latents(plain: Crosscoder, figures: Latents, period: float) -> list[list[int]]:
    """Latents of A alone, and of B alone, the clearest first: by a decoder-norm share above ``period``, or by a fitted
    share above it where the decoder leans to that model at all (share above .6)."""
    out = []
    for share, fitted in ((figures.share, figures.fitted), (1 - figures.share, 1 - figures.fitted)):
        clear = (share > period) | ((fitted > period) & (share > LEANS))
        clear &= figures.often > 0
        order = (share + fitted).argsort(descending=True)
        out.append(order[clear[order]].tolist())
    return out


def reseated(plain: Crosscoder, how: Learning, figures: Latents) -> Crosscoder:
    """A crosscoder with the same latents in another order: those of one model first, masked to it (specs/E175, 6 b).

    At most a share ``how.part`` of the latents goes to each model, those with the clearest share first.
    """
    room = int(how.part * plain.design.latents)
    mine, theirs = (found[:room] for found in own_latents(plain, figures, how.period))
    moved = {*mine, *theirs}
    place = torch.tensor([*mine, *theirs, *(j for j in range(plain.design.latents) if j not in moved)])
    made = Crosscoder(replace(plain.design, own=(len(mine), len(theirs))), how.seed)
    with torch.no_grad():
        for name in ("encoder", "decoder", "encoder_bias", "idle"):
            getattr(made, name).copy_(getattr(plain, name)[place])
        for name in ("decoder_bias", "mean", "rms", "threshold"):
            getattr(made, name).copy_(getattr(plain, name))
    made.mask()
    return made


def learn(
    draw: Draw,
    width: int,
    how: Learning,
    *,
    about: dict[str, Any] | None = None,
    going: Path | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
    held_out: Tensor | None = None,
    sample: int = 16_384,
) -> Crosscoder:
    """Fit a crosscoder; see ``Learning``.

    Args:
        draw: gives so many random rows of states [n, 2, width].
        about: what the states are of; a checkpoint of other states is refused.
        going: folder from which an interrupted fit goes on.
        on_step: told of each step; steps of a second stage count on.
        held_out: states whose FVU is measured ten times.
        sample: rows of which mean and RMS are taken.

    Raises:
        BadInput: ``going`` holds another fit; see ``Design``.
    """
    module = Crosscoder(how.design(width), how.seed)
    scale = draw(np.random.default_rng(derive(how.seed, "crosscoder", "scale")), sample)
    measured(module, scale)
    done = 0
    for number, steps in enumerate(how.stages):
        if number:
            module = reseated(module, how, latents(module.eval(), torch.split(scale, 4096)))
        folder = going / f"stage{number}" if going else None
        for step in _fitted(module, how, draw, f"stage{number}", steps, about, folder, held_out):
            step.step += done
            on_step(step)
        done += steps
    return module


def _fitted(
    module: Crosscoder,
    how: Learning,
    draw: Draw,
    stage: str,
    steps: int,
    about: dict[str, Any] | None,
    going: Path | None,
    held_out: Tensor | None,
) -> Iterator[Step]:
    every = max(1, steps // 10) if held_out is not None else 0
    course = Course(steps=steps, lr=how.lr, betas=(0.9, 0.999), measure_every=every)
    said = {"learning": asdict(how), "design": asdict(module.design), "of": about or {}}

    def measure() -> dict[str, float]:
        assert held_out is not None
        module.eval()
        found = module.unexplained(module.scaled(held_out, check=False))
        module.train()
        return {f"unexplained {name}": float(value) for name, value in zip("AB", found, strict=True)}

    loss = Losses(module, how, draw, stage, steps)
    return fit(
        module, loss, course, about=said, going=going, mend=lambda step: module.mask(),
        measure=measure if held_out is not None else None,
    )  # fmt: skip

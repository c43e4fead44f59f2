"""A crosscoder: one sparse dictionary of the hidden states of two models of one tokenizer.

Row i of the states is a pair (h_A, h_B) at the same token. Latent j has an encoder and a decoder vector for each model,
so that its decoder says how strongly, and along which direction, each model writes the feature. ``learning`` fits
crosscoders, ``features`` reads them, ``crosscoder_files`` keeps them. A dedicated-feature crosscoder (arXiv 2602.11729)
lets some latents see and write one model only.

Nothing here may take states that are not scaled as the crosscoder was trained: ``scaled`` refuses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from clew.core.errors import BadInput
from clew.methods.features.sparse_code import Active, decoded, encoded

Kind = Literal["topk", "batchtopk", "l1"]
APART = 0.2  # share by which the RMS of states may differ from the saved one


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Sizes and form of a crosscoder.

    width: numbers in a state of one model. latents: of the dictionary. k: latents active in a row, or on average over a
    batch ("batchtopk"); "l1" has no such number. own: how many latents belong to A alone and to B alone; they come
    first, A's before B's, and the rest are shared.
    """

    width: int
    latents: int
    k: int = 32
    kind: Kind = "topk"
    own: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        a, b = self.own
        if self.kind not in get_args(Kind):
            raise BadInput(
                f"no crosscoder is of kind {self.kind!r}", remedy=f"Choose one of {', '.join(get_args(Kind))}."
            )
        if self.width < 1 or not 0 < self.k <= self.latents or min(a, b) < 0 or a + b >= self.latents:
            raise BadInput(
                f"{self.latents} latents with k={self.k} and {a} + {b} of one model alone are no crosscoder",
                remedy="Let k and the latents of one model alone be fewer than all latents.",
            )


class Crosscoder(nn.Module):
    """z = ReLU(sum over models m of x_m W_enc^m + b), of which some stay active; x_m is decoded as f W_dec^m + b_m.

    Latents are chosen by z times the norm of their decoder, so that no latent wins by a long encoder.

    Attributes:
        encoder, decoder: float [latents, 2 * width], A's numbers before B's. encoder_bias: [latents].
        decoder_bias: [2 * width].
        visible: 1 where a latent may see and write a model, [latents, 2].
        mean [2, width] and rms [2]: states of model m are trained on as (h - mean[m]) / rms[m].
        threshold: of "batchtopk" outside training, a running mean of the least score that was kept.
        idle: steps since each latent was last active, int64 [latents].
    """

    mean: Tensor
    rms: Tensor
    visible: Tensor
    threshold: Tensor
    idle: Tensor

    def __init__(self, design: Design, seed: int = 0) -> None:
        super().__init__()
        self.design = design
        width, latents = 2 * design.width, design.latents
        draw = torch.Generator().manual_seed(seed)
        visible = torch.ones(latents, 2)
        visible[: design.own[0], 1] = 0
        visible[design.own[0] : sum(design.own), 0] = 0
        self.register_buffer("visible", visible)
        self.encoder = nn.Parameter(torch.randn(latents, width, generator=draw) / design.width**0.5)
        self.decoder = nn.Parameter(torch.randn(latents, width, generator=draw) / latents**0.5)
        self.encoder_bias = nn.Parameter(torch.zeros(latents))
        self.decoder_bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(2, design.width))
        self.register_buffer("rms", torch.ones(2))
        self.register_buffer("threshold", torch.zeros(()))
        self.register_buffer("idle", torch.zeros(latents, dtype=torch.int64))
        for weight in (self.encoder, self.decoder):
            weight.register_hook(self._masked)  # type: ignore[no-untyped-call]
        self.mask()

    # ---- what a latent may touch ---------------------------------------------------------------------------------

    def _masked(self, weight: Tensor) -> Tensor:
        if self.design.own == (0, 0):
            return weight
        return (weight.view(len(weight), 2, -1) * self.visible[:, :, None]).view_as(weight)

    @torch.no_grad()
    def mask(self) -> None:
        """Make every weight 0 that joins a latent to a model it does not belong to."""
        for weight in (self.encoder, self.decoder):
            weight.copy_(self._masked(weight))

    @torch.no_grad()
    def leak(self) -> float:
        """The largest such weight; 0 where the masks hold."""
        hidden = (1 - self.visible)[:, :, None]
        return max(float((w.view(len(w), 2, -1) * hidden).abs().max()) for w in (self.encoder, self.decoder))

    # ---- scaling --------------------------------------------------------------------------------------------------

    def scaled(self, states: Tensor, *, check: bool = True) -> Tensor:
        """States as they left the models, [n, 2, width], in the scale that the crosscoder was trained in.

        Raises:
            BadInput: the RMS of a model's states differs by over 20 % from that of the mixture it was trained on: they
                are of another layer or checkpoint, or were scaled already.
        """
        x = states - self.mean
        if check and len(x):
            found = x.square().mean((0, 2)).sqrt() / self.rms
            for name, ratio in zip("AB", found.tolist(), strict=True):
                if not 1 - APART <= ratio <= 1 + APART:
                    raise BadInput(
                        f"the states of model {name} have {ratio:.2f} times the RMS that the crosscoder was trained on",
                        remedy="Give states of the same layer and checkpoint, as they left the model, over like text.",
                    )
        return x / self.rms[:, None]

    def unscaled(self, x: Tensor) -> Tensor:
        """The reverse of ``scaled``, [n, 2, width]."""
        return x * self.rms[:, None] + self.mean

    # ---- encode and decode ---------------------------------------------------------------------------------------

    def scores(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Pre-activations [n, latents] of scaled states, and the scores by which latents are chosen; no gradients."""
        with torch.no_grad():
            found = torch.addmm(self.encoder_bias, x.flatten(1), self.encoder.t())
            return found, found.relu() * self.decoder.norm(dim=1)

    def active(self, x: Tensor, handicap: float = 1.0) -> Active:
        """The active latents of scaled states [n, 2, width].

        Args:
            handicap: what scores of shared latents are multiplied by while choosing.
        """
        found, score = self.scores(x)
        own_a, own_b = self.design.own
        if handicap != 1.0 and own_a + own_b:
            score[:, own_a + own_b :] *= handicap
        rows, latents = self._chosen(score)
        value = encoded(x.flatten(1), self.encoder, self.encoder_bias, rows, latents, found[rows, latents].contiguous())
        return Active(rows, latents, value.relu(), len(x))

    @torch.no_grad()
    def _chosen(self, score: Tensor) -> tuple[Tensor, Tensor]:
        design = self.design
        if design.kind == "topk":
            latents = score.topk(design.k, dim=1, sorted=False).indices
            rows = torch.arange(len(score), device=score.device).repeat_interleave(design.k)
            return rows, latents.flatten()
        if design.kind == "l1":
            rows, latents = (score > 0).nonzero(as_tuple=True)
        elif self.training:
            best = score.flatten().topk(min(design.k * len(score), score.numel()), sorted=False)
            least = best.values.min()
            # the first threshold is taken as it is, so that it needs no warm-up
            self.threshold += (least - self.threshold) * (0.01 if float(self.threshold) > 0 else 1.0)
            order = best.indices[best.values > 0].sort().values
            rows, latents = order // score.shape[1], order % score.shape[1]
        else:
            rows, latents = (score > self.threshold).nonzero(as_tuple=True)
        return rows, latents

    def decode(self, active: Active) -> Tensor:
        """Scaled states [n, 2, width]."""
        return (decoded(active, self.decoder) + self.decoder_bias).view(active.n, 2, -1)

    @torch.no_grad()
    def code(self, x: Tensor) -> Tensor:
        """Activations [n, latents] of scaled states."""
        return self.active(x).dense(self.design.latents)

    @torch.no_grad()
    def rebuilt(self, x: Tensor) -> Tensor:
        """Scaled states as the crosscoder rebuilds them."""
        return self.decode(self.active(x))

    @torch.no_grad()
    def unexplained(self, x: Tensor) -> Tensor:
        """Fraction of variance that is not rebuilt (FVU), of A and of B."""
        left: Tensor = (x - self.rebuilt(x)).square().sum((0, 2)) / (x - x.mean(0)).square().sum((0, 2))
        return left

    @torch.no_grad()
    def norms(self) -> Tensor:
        """Norms of the decoder vectors, [latents, 2]."""
        found: Tensor = self.decoder.view(len(self.decoder), 2, -1).norm(dim=2)
        return found

    @torch.no_grad()
    def shares(self) -> Tensor:
        """Decoder-norm share of A, |W_A| / (|W_A| + |W_B|), [latents]; .5 is shared, 1 is A's alone."""
        norms = self.norms()
        return norms[:, 0] / norms.sum(1).clamp(min=1e-12)

    def direction(self, latent: int, model: int) -> Tensor:
        """Decoder vector of a latent in a model's own scale, [width]."""
        d = self.design.width
        return (self.decoder[latent, model * d : (model + 1) * d] * self.rms[model]).detach()

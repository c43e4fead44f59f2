"""What the latents of a crosscoder stand for: whose they are, how often they are active, and where most strongly.

Two shares say whose a latent is. The decoder-norm share is read off the weights. It is 1 for each latent that is masked
to A, whatever B holds, so the fitted share asks the states: how strongly does each model move along the latent's
direction when the latent moves (after latent scaling, arXiv 2504.02922)? Nothing here asks a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clew.methods.features.crosscoder import Crosscoder
from clew.methods.features.sparse_code import weighed_sum

OWN, BOTH = 0.9, 0.75  # from this decoder-norm share, and this fitted share, a latent counts as A's alone


@dataclass(frozen=True, slots=True)
class Latents:
    """Figures of all latents over some states, float [latents].

    share, fitted: decoder-norm share and fitted share of A. often: share of the rows in which a latent is active.
    high: the 95th percentile of its activation where it is active. rows, values: int64 and float [latents, places],
    where each latent is most active; value 0 where there are fewer such rows.
    """

    share: Tensor
    fitted: Tensor
    often: Tensor
    high: Tensor
    rows: Tensor
    values: Tensor

    def alone(self, model: int) -> Tensor:
        """Latents of one model alone (0: A), by both shares, that are ever active: bool [latents]."""
        share, fitted = (self.share, self.fitted) if model == 0 else (1 - self.share, 1 - self.fitted)
        return (share > OWN) & (fitted > BOTH) & (self.often > 0)


@torch.no_grad()
def latents(module: Crosscoder, states: Iterable[Tensor], places: int = 12) -> Latents:
    """The figures over states [n, 2, width] as they left the models, a portion at a time.

    Raises:
        BadInput: the states are not scaled as the crosscoder's were, see ``Crosscoder.scaled``.
    """
    count, width = module.design.latents, 2 * module.design.width
    f_sum, often = torch.zeros(count), torch.zeros(count)
    f_square = torch.zeros(count)
    x_sum, moved = torch.zeros(width), torch.zeros(count, width)
    rows, values = torch.zeros(count, 0, dtype=torch.int64), torch.zeros(count, 0)
    seen, kept = 0, list[tuple[Tensor, Tensor]]()
    for portion in states:
        x = module.scaled(portion)
        active = module.active(x)
        order = active.latents.argsort(stable=True)
        moved += weighed_sum(active.latents[order], active.rows[order], active.values[order], x.flatten(1), count)
        x_sum += x.flatten(1).sum(0)
        f_sum.index_add_(0, active.latents, active.values)
        f_square.index_add_(0, active.latents, active.values.square())
        often.index_add_(0, active.latents, (active.values > 0).float())
        dense = active.dense(count)
        best = dense.topk(min(places, len(x)), dim=0)
        values = torch.cat([values, best.values.t()], 1)
        rows = torch.cat([rows, best.indices.t() + seen], 1)
        top = values.topk(min(places, values.shape[1]), dim=1)
        values, rows = top.values, rows.gather(1, top.indices)
        on = active.values > 0
        kept.append((active.latents[on], active.values[on]))
        seen += len(x)
    shares = module.shares()
    together = (moved - f_sum[:, None] * x_sum / seen).view(count, 2, -1)
    direction = module.decoder.view(count, 2, -1)[torch.arange(count), (shares < 0.5).long()]
    slope = (together * direction[:, None]).sum(2).clamp(min=0)
    fitted = slope[:, 0] / slope.sum(1).clamp(min=1e-12)
    return Latents(shares, fitted, often / seen, _high(kept, count), rows, values)


def _high(kept: Sequence[tuple[Tensor, Tensor]], count: int, level: float = 0.95) -> Tensor:
    """The quantile of each latent's values; 0 where it has none."""
    which, value = torch.cat([k for k, _ in kept]), torch.cat([v for _, v in kept])
    order = value.argsort()
    order = order[which[order].argsort(stable=True)]
    which, value = which[order], value[order]
    n = torch.bincount(which, minlength=count)
    first = n.cumsum(0) - n
    at = first + ((n - 1).clamp(min=0) * level).long()
    out = torch.zeros(count)
    out[n > 0] = value[at[n > 0]]
    return out


def cohen(code: Tensor, shown: Tensor) -> Tensor:
    """Cohen's d of each latent between rows where the behaviour was shown and where not; 0 where it never varies.

    Args:
        code: activations [n, latents]. shown: bool [n], of both kinds.
    """
    yes, no = code[shown], code[~shown]
    spread = ((yes.var(0, unbiased=False) + no.var(0, unbiased=False)) / 2).sqrt()
    return torch.where(spread > 0, (yes.mean(0) - no.mean(0)) / spread.clamp(min=1e-12), torch.zeros(code.shape[1]))

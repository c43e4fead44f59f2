"""Samples a drafted block token by token, where each distribution depends on the tokens before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from clew.models.engine.speculation.proposal import F64
from clew.models.sampling import Laws, in_force


def repeated(laws: Laws, k: int) -> Laws:
    """The settings of n rows for n * k laws, those of a row side by side."""
    each = (laws.temperature, laws.greedy, laws.top_k, laws.top_p)
    return Laws(*(None if x is None else x.repeat_interleave(k) for x in each))


def draw_each(logp: Tensor, u: Tensor) -> Tensor:
    """One token from each law: logp [..., V], uniforms float64 [...]; by inverse CDF."""
    cdf = logp.exp().cumsum(-1, dtype=torch.float64)
    return torch.searchsorted(cdf, u[..., None] * cdf[..., -1:], right=True)[..., 0].clamp_(max=logp.shape[-1] - 1)


def draw_block(base: Tensor, laws: Laws, u: F64) -> tuple[Tensor, Tensor]:
    """Tokens [n, k] and log-probabilities [n, k, V] of laws that do not depend on each other; base logits [n, k, V]."""
    n, k, v = base.shape
    logp = in_force(base.reshape(n * k, v), repeated(laws, k)).view(n, k, v)
    return draw_each(logp, torch.from_numpy(u[:, :k].copy()).to(base.device)), logp


def draw_chain(
    base: Tensor, bias: Callable[[int, Tensor], Tensor], anchors: Tensor, laws: Laws, u: F64
) -> tuple[Tensor, Tensor]:
    """The same where token k's logits gain ``bias(k, tokens before it [n])``, [n, V]: left to right."""
    before, tokens, logps = anchors, [], []
    noise = torch.from_numpy(u).to(base.device)
    for k in range(base.shape[1]):
        logp = in_force(base[:, k] + bias(k, before), laws)
        before = draw_each(logp, noise[:, k])
        tokens.append(before)
        logps.append(logp)
    return torch.stack(tokens, 1), torch.stack(logps, 1)


def draw_table(base: Tensor, table: Tensor, anchor: int, laws: Laws, u: F64) -> tuple[Tensor, Tensor]:
    """``draw_chain`` for one row on a CPU whose bias is a row of ``table`` [V, V]: in numpy, whose calls cost less.

    Only for laws without top-k and top-p.
    """
    heat = 1.0 if laws.temperature is None else float(laws.temperature[0])
    greedy = laws.greedy is not None and bool(laws.greedy[0])
    logits, biases, before, chain = base[0].numpy(), table.numpy(), anchor, []
    for z, x in zip(logits, u[0].tolist(), strict=False):
        chain.append(before)
        law = z + biases[before]
        if greedy:
            before = int(law.argmax())
            continue
        if heat != 1.0:
            law /= heat
        law -= law.max()
        cdf = np.exp(law, out=law).cumsum(dtype=np.float64)
        before = min(int(cdf.searchsorted(x * cdf[-1], "right")), len(cdf) - 1)
    tokens = torch.tensor([[*chain[1:], before]])
    corrected = base + table.index_select(0, torch.tensor(chain))
    return tokens, in_force(corrected[0], repeated(laws, base.shape[1]))[None]

"""Scores rows with a common prefix: the prefix passes the model once (forks, samples of one long prompt)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import torch
from torch import nn

from clew.core.values import F32

WORTH = 512  # tokens saved below which a pass of its own costs more than it saves


class Cluster(NamedTuple):
    """Indices of rows whose first ``shared`` tokens are the same."""

    rows: list[int]
    shared: int


def clusters(ids: Sequence[Sequence[int]], worth: int = WORTH) -> list[Cluster]:
    """Disjoint groups of rows that share at least half of their longest row, where sharing saves ``worth`` tokens."""
    order = sorted(range(len(ids)), key=lambda i: tuple(ids[i]))
    found, at = [], 0
    while at < len(order):
        first = ids[order[at]]
        group, shared, longest = [order[at]], len(first) - 1, len(first)
        for i in order[at + 1 :]:
            same = min(shared, sum(1 for _ in takewhile(lambda p: p[0] == p[1], zip(first, ids[i], strict=False))))
            same = min(same, len(ids[i]) - 1)
            if 2 * same < max(longest, len(ids[i])):
                break
            group, shared, longest = [*group, i], same, max(longest, len(ids[i]))
        if (len(group) - 1) * shared >= worth:
            found.append(Cluster(group, shared))
        at += len(group)
    return found


def score(module: nn.Module, ids: Sequence[Sequence[int]], of: Cluster, temperature: float) -> dict[int, F32]:
    """Logprobs of each row of a cluster: the beginning alone, then all the ends behind its cache."""
    device = next(module.parameters()).device
    start = torch.tensor([list(ids[of.rows[0]][: of.shared])], device=device)
    head = module(input_ids=start, use_cache=True)
    before = _logp(head.logits[:, :-1], start[:, 1:], temperature)[0]
    ends = [list(ids[row][of.shared :]) for row in of.rows]
    tail = torch.zeros(len(ends), max(map(len, ends)), dtype=torch.long, device=device)
    for i, end in enumerate(ends):
        tail[i, : len(end)] = torch.tensor(end)
    cache = head.past_key_values
    cache.batch_repeat_interleave(len(ends))
    after = module(input_ids=tail, past_key_values=cache, use_cache=True).logits[:, :-1]
    logits = torch.cat([head.logits[:, -1:].expand(len(ends), -1, -1), after], 1)
    behind = _logp(logits, tail, temperature)
    whole = torch.cat([before.expand(len(ends), -1), behind], 1).float().cpu().numpy()
    return {row: whole[i, : len(ids[row]) - 1].copy() for i, row in enumerate(of.rows)}


def _logp(logits: torch.Tensor, target: torch.Tensor, temperature: float) -> torch.Tensor:
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logits = logits if temperature == 1 else logits / temperature
    return logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]

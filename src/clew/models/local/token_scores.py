"""Logprobs of given token ids by a module's own forward, and of the likeliest tokens at the same places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from clew.core.values import F32, Ranked
from clew.models.kept import Span, places
from clew.models.local import shared_prefix

Ids = Sequence[Sequence[int]]
SCORED = 1 << 24  # logits held at once
CACHED = 1 << 22  # the same on a CPU: more than its caches hold is slower


@contextmanager
def evaluating(module: nn.Module) -> Iterator[torch.device]:
    """The module in evaluation mode, without gradients; gives its device."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield next(module.parameters()).device
    finally:
        module.train(training)


def score(module: nn.Module, ids: Ids, temperature: float, vocabulary: int, caches: bool) -> list[F32]:
    """Logprobs (nats, float32 [len(row) - 1]) of each row's tokens given those before.

    Args:
        caches: an attention model whose cache can be copied: what rows have in common at their beginning passes once
            where that is worth a pass of its own.
    """
    found: dict[int, F32] = {}
    with evaluating(module) as device:
        for cluster in shared_prefix.clusters(ids) if caches else ():
            found |= shared_prefix.score(module, ids, cluster, temperature)
        order = sorted((i for i in range(len(ids)) if i not in found), key=lambda i: len(ids[i]))
        while order:
            longest = len(ids[order[-1]])
            take = max(1, (CACHED if device.type == "cpu" else SCORED) // (longest * vocabulary))
            order, group = order[:-take], order[-take:]
            padded = torch.zeros(len(group), longest, dtype=torch.long, device=device)
            for i, row in enumerate(group):
                padded[i, : len(ids[row])] = torch.tensor(ids[row])
            # Padding on the right changes nothing before it under causal attention.
            logits = module(input_ids=padded, use_cache=False).logits[:, :-1]
            logits = logits if temperature == 1 else precise(logits) / temperature
            logp = precise(logits).log_softmax(-1).gather(-1, padded[:, 1:, None])[..., 0].float().cpu().numpy()
            found |= {row: logp[i, : len(ids[row]) - 1].copy() for i, row in enumerate(group)}
    return [found[i] for i in range(len(ids))]


def over_kept(
    module: nn.Module, ids: Ids, temperature: float, kept: Sequence[Sequence[Span]], whole: Sequence[F32]
) -> list[F32]:
    """``whole``, what ``score`` gave, with the law over the kept tokens in its place where ``kept`` has a span."""
    out = [scores.copy() for scores in whole]
    with evaluating(module) as device:
        for row, spans, scores in zip(ids, kept, out, strict=True):
            if not spans:
                continue
            logits = module(input_ids=torch.tensor([list(row)], device=device), use_cache=False).logits[0]
            for place, token, left in places(spans, row):
                law = (precise(logits[place - 1, torch.from_numpy(left).to(device)]) / temperature).log_softmax(-1)
                scores[place - 1] = float(law[int(np.searchsorted(left, token))])
    return out


def ranked(module: nn.Module, ids: Ids, k: int) -> list[tuple[F32, tuple[Ranked, ...]]]:
    """At each token of each row but the first: its logprob (nats), and the ``k`` likeliest tokens there."""
    found: list[tuple[F32, tuple[Ranked, ...]]] = []
    with evaluating(module) as device:
        for row in ids:
            given = torch.tensor([list(row)], device=device)
            law = precise(module(input_ids=given, use_cache=False).logits[0, :-1]).log_softmax(-1)
            own = law.gather(-1, given[0, 1:, None])[:, 0].float().cpu().numpy()
            values, tokens = law.topk(min(k, law.shape[-1]))
            rows = zip(tokens.tolist(), values.float().tolist(), strict=True)
            found.append((own, tuple(tuple(zip(t, v, strict=True)) for t, v in rows)))
    return found


def top(module: nn.Module, ids: Ids, k: int) -> list[tuple[tuple[int, ...], F32]]:
    """The ``k`` likeliest next tokens after each row: ids, and logprobs (nats, float32 [k])."""
    found: list[tuple[tuple[int, ...], F32]] = []
    with evaluating(module) as device:
        for row in ids:
            logits = module(input_ids=torch.tensor([list(row)], device=device), use_cache=False).logits[0, -1]
            values, tokens = logits.float().log_softmax(-1).topk(min(k, logits.shape[-1]))
            found.append((tuple(tokens.tolist()), values.cpu().numpy()))
    return found


def precise(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()

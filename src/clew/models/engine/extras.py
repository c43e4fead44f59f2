"""Extras of a request beside its tokens: a grammar, the likeliest tokens at each place, which tokens truncation left,
tokens as they come."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clew.core.errors import ModelError
from clew.models.engine.cache_rows import Rows
from clew.models.engine.state import Fresh, Inbox, Live, Waiting
from clew.models.kept import truncates
from clew.models.sampling import LOWEST
from clew.models.shaping import PLAIN, shape_of

Places = list[tuple[int, Waiting]]  # among the live rows, and their requests


def sort_out(live: Live, entries: Places) -> None:
    """Note which of the live rows ask for what, by their places."""
    live.guided = [i for i, entry in entries if entry.guide is not None]
    live.listed = [i for i, entry in entries if entry.request.tops is not None]
    live.truncated = [i for i, entry in entries if truncates(entry.request.sampling)]
    shapes = [(i, shape_of(entry.request.sampling.shape)) for i, entry in entries]
    live.shaped = [i for i, shape in shapes if shape is not PLAIN and shape._replace(min_p=0.0) != PLAIN]
    live.told = [i for i, entry in entries if entry.inbox is not None]


def asking(rows: Rows, live: Live, places: Sequence[int]) -> Places:
    """Those of some live rows that still sample, with their requests."""
    found = []
    for place in places:
        joined = rows.joined[live.rows[place]]
        if joined is not None and live.act[place]:
            found.append((place, joined.entry))
    return found


def fresh(rows: Rows, live: Live) -> list[tuple[Inbox, Fresh]]:
    """What the inboxes of rows that still sample have not seen."""
    out = []
    for place, entry in asking(rows, live, live.told):
        start, stop, slot = entry.sent, int(live.count[place]), live.rows[place]
        if entry.inbox is not None and stop > start:
            tokens, logprobs = rows.tokens[slot, start:stop].tolist(), rows.logprobs[slot, start:stop].copy()
            out.append((entry.inbox, Fresh(tokens, logprobs, entry.plain[start:stop], entry.tops[start:stop])))
            entry.sent = stop
    return out


@torch.inference_mode()
def plain_law(logits: Tensor, places: Sequence[int]) -> Tensor:
    """Log-probabilities (nats) [m, V] of some rows of logits under the model's own law."""
    picked = logits[torch.tensor(places, device=logits.device)]
    return (picked if picked.dtype == torch.float64 else picked.float()).log_softmax(-1)


@torch.inference_mode()
def rank(entries: Sequence[Waiting], law: Tensor, tokens: Sequence[int]) -> None:
    """Note for each entry what its law [m, V] said of the token sampled from it, and of the likeliest ones.

    An entry may come several times, once for each token a round gives it, in order.
    """
    chosen = law.gather(1, torch.tensor(tokens, device=law.device)[:, None])[:, 0].tolist()
    most = max(e.request.tops or 0 for e in entries)
    values, ids = (t.tolist() for t in law.topk(min(most, law.shape[1])))
    for entry, own, row, at in zip(entries, chosen, ids, values, strict=True):
        k = entry.request.tops or 0
        entry.plain.append(own)
        entry.tops.append(tuple(zip(row[:k], at[:k], strict=True)))


@torch.inference_mode()
def note_kept(entries: Sequence[Waiting], law: Tensor) -> None:
    """Note for each entry, which may come several times, the tokens that its law [m, V] in force leaves; no token where
    it leaves all."""
    left = law > LOWEST
    sizes = left.sum(1).tolist()
    ids = left.nonzero()[:, 1].cpu().numpy()
    at = 0
    for entry, size in zip(entries, sizes, strict=True):
        entry.kept.append(ids[at : at + size] if size < law.shape[1] else ids[:0])
        at += size


@torch.inference_mode()
def forbid(logits: Tensor, guided: Places) -> Places:
    """Put -inf, in place, at tokens that a row's grammar does not allow; gives back the rows where it allows none."""
    stuck = []
    for place, entry in guided:
        banned = entry.guide.banned()
        if banned is None:
            stuck.append((place, entry))
        else:
            logits[place].masked_fill_(torch.from_numpy(banned).to(logits.device), float("-inf"))
    return stuck


def stuck_error(entry: Waiting) -> ModelError:
    return ModelError(
        f"the grammar {entry.request.sampling.grammar[:60]!r} allows no further token: {entry.guide.error()}",
        remedy="Simplify the grammar, or use a tokenizer that can spell what it asks for.",
    )

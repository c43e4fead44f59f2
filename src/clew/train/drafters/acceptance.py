"""Acceptance of a drafter by its target: in expectation along the target's text, and in rounds that are drafted.

Rejection sampling emits x by acceptance with probability min(p(x), q(x)) and altogether with p(x) (2211.17192, theorem
1). So along text that the target wrote at temperature 1, token k of the block behind an anchor is accepted, given that
those before it were, with probability min(1, q(x_k) / p(x_k)). A decode loop that emits this text visits anchors with
chances that follow from these alone: its expected rounds need no coins, and no ragged caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from clew.core.errors import BadInput
from clew.core.values import Sampling
from clew.models.drafters.layers import Trained
from clew.models.engine.speculation.proposal import Drafter
from clew.models.sampling import Laws, in_force
from clew.train.drafters.drafter_losses import Taps, accepted_chance

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
AT_ONCE = 32  # blocks of one row in a pass: each attends to all of them, and sees itself


@torch.no_grad()
def acceptances(module: Trained, data: Taps, rows: I64, count: int | None = None) -> Iterator[tuple[int, F64, F64]]:
    """For each row its number; the chance that each token of the block behind each anchor is accepted along the row's
    own text, [anchors, block]; and 1 - TV of the two laws there, of which the first is a draw.

    Anchors are the row's own tokens behind which a whole block and the bonus stand; the first ``count`` of them.
    """
    block = module.design.block
    for row in rows:
        ids, taps, last, lengths = data.batch(np.array([row]), block + 1)
        first = int(data.first[row])
        many = int(lengths[0]) - block - 1 - first
        many = many if count is None else min(many, count)
        if many < 1:
            continue
        anchors = torch.arange(first, first + many)
        q = (
            torch.cat([module(taps, ids, part[None])[0][0] for part in torch.split(anchors, AT_ONCE)])
            .float()
            .log_softmax(-1)
        )
        at = anchors[:, None] + torch.arange(block)
        p = (last[0][at] @ module.lm_head.weight.t()).float().log_softmax(-1)
        tokens = ids[0][at + 1][..., None]
        chance = (q.gather(-1, tokens) - p.gather(-1, tokens))[..., 0].clamp(max=0).exp()
        yield int(row), chance.double().numpy(), accepted_chance(q.exp(), p.exp()).double().numpy()


def walk(a: F64) -> tuple[float, F64]:
    """The decode loop over one text: expected rounds that begin at its anchors, and how many of them accept at least k
    tokens, [block + 1]; the latter sum to the tokens emitted, recovered and bonus included.

    Args:
        a: [anchors, block], from ``acceptances``; the first anchor begins a round.
    """
    length, block = a.shape
    reach = np.concatenate([np.ones((length, 1)), a.cumprod(1)], 1)
    exactly = reach - np.concatenate([reach[:, 1:], np.zeros((length, 1))], 1)
    visits = np.zeros(length + block + 1)
    visits[0] = 1.0
    for t in range(length):
        visits[t + 1 : t + block + 2] += visits[t] * exactly[t]
    seen = visits[:length]
    found: F64 = (seen[:, None] * reach).sum(0)
    return float(seen.sum()), found


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds that were drafted and verified whole: confidence logits [n, block], accepted tokens [n], rows [n]."""

    logits: F64
    accepted: I64
    rows: I64

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """[n, block], whether at least k tokens were accepted."""
        return self.accepted[:, None] > np.arange(self.logits.shape[1])


@torch.inference_mode()
def rounds(
    target: nn.Module, drafter: Drafter, data: Taps, rows: I64, each: int, temperature: float = 1.0, seed: int = 0
) -> Rounds:
    """Draft behind ``each`` anchors of every row, free-running, and verify the whole block.

    The target's cache is cut back from anchor to anchor, so every round costs one block.

    Raises:
        BadInput: a target whose cache cannot be cut, or no row long enough.
    """
    rng = np.random.default_rng(seed)
    lengths = data.offsets[rows + 1] - data.offsets[rows]
    ids, taps, _, _ = data.batch(rows, 0)
    drafter.resize(len(rows), ids.shape[1] + 1)
    drafter.clear()
    packed = torch.cat([taps[i, :n] for i, n in enumerate(lengths)])
    texts = [ids[i, :n].tolist() for i, n in enumerate(lengths)]
    drafter.extend(np.arange(len(rows)), texts, np.zeros(len(rows), np.int64), packed)
    cache = target(input_ids=ids, use_cache=True).past_key_values
    places = np.arange(int(data.first[rows].min()), int(lengths.max()) - 1)
    chosen = np.sort(rng.choice(places, min(each, len(places)), replace=False))[::-1]
    laws, found = Laws.of([Sampling(temperature=temperature)] * len(rows)), []
    for t in chosen.tolist():
        if not hasattr(cache, "crop"):
            raise BadInput(f"the cache of {type(target).__name__} cannot be cut", remedy="Use an attention model.")
        cache.crop(t - cache.get_seq_length())
        anchors, at = ids[:, t].numpy(), np.full(len(rows), t)
        draft = drafter.propose(np.arange(len(rows)), anchors, at, laws, rng.random((len(rows), drafter.block)))
        given = torch.cat((ids[:, t : t + 1], draft.tokens), 1)
        logits = target(input_ids=given, past_key_values=cache, use_cache=True).logits[:, :-1]
        n, k, v = logits.shape
        law = in_force(logits.reshape(n * k, v), Laws.of([Sampling(temperature=temperature)] * (n * k))).view(n, k, v)
        ratio = (law - draft.logq).gather(-1, draft.tokens[..., None])[..., 0].exp().double().numpy()
        passed = np.concatenate([rng.random((n, k)) < ratio, np.zeros((n, 1), bool)], 1)
        open_ = (data.first[rows] <= t) & (t < lengths - 1)
        chance = draft.chance.double().clamp(1e-7, 1 - 1e-7)
        found.append((torch.logit(chance).numpy()[open_], passed.argmin(1)[open_], rows[open_]))
    if not found:
        raise BadInput("no row has room for a round", remedy="Give longer texts.")
    logits_, accepted, of = (np.concatenate(part) for part in zip(*found, strict=True))
    return Rounds(logits_, accepted, of)

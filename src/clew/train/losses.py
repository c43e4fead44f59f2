"""Losses: pure functions of the tokens of a micro-batch.

Each returns ``(sum, count)``. The trainer adds up the sums of all micro-batches and divides by the total count of that
component, so the result does not depend on how a step was cut. The count must not depend on ``logp``. Weights are
what a credit method put on the tokens (for ``pg`` the advantage); each component has its own.

What counts as one in the mean is each loss' own choice, told below, unless the trainer hands over the rows' shares
(``weight_by``: token, row or run). Then every loss is the sum over the units, divided by their number.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from clew.core.errors import BadInput
from clew.fit.collate import Tokens

Pair = tuple[Tensor, Tensor]


def pg(
    t: Tokens,
    clip: float | tuple[float, float] = 0.2,
    correction: Literal["none", "truncate", "mask"] = "none",
    cap: float = 2.0,
) -> Pair:
    """Clipped policy gradient, mean over tokens (PPO, arXiv 1707.06347 eq. 7; token mean as in DAPO, 2503.14476 eq. 8).

    Per token, with r = exp(logp - old) and A the weight: ``-min(r A, clamp(r, 1 - clip[0], 1 + clip[1]) A)``. Count:
    tokens, those of weight 0 included. On-policy r = 1 and the gradient is REINFORCE's, ``-A grad logp``.

    ``correction`` treats a sampler that is not the trainer at its old weights (another precision, stale weights): r
    is then taken against ``targets["proximal"]``, the trainer's own logprobs before the update, or without it against
    the present policy (decoupled clipping, 2110.00641), and each token is multiplied by w = exp(proximal - old), cut
    at ``cap`` ("truncate": Yao et al. 2025, fengyao.notion.site/off-policy-rl) or set to 0 outside [1/cap, cap]
    ("mask": IcePop, 2510.18855).
    """
    return _total(_surrogate(t, t.logp, t.old, clip, correction, cap), t)


def pg_sequence(
    t: Tokens,
    clip: float | tuple[float, float] = 0.2,
    ratio: Literal["token", "sequence"] = "token",
    correction: Literal["none", "truncate", "mask"] = "none",
    cap: float = 2.0,
) -> Pair:
    """The same, averaged within each row first and then over rows (GRPO, arXiv 2402.03300 eq. 3).

    With ``ratio="sequence"`` all tokens of a row share s = exp(mean(logp - old)), its gradient spread evenly over them
    (GSPO-token, 2507.18071 section 4.3). Count: rows with at least one token. The ratio is that of a row also where
    the mean is taken over runs: what the policy saw before a cut is not what it saw after it.
    """
    lengths = t.logp.new_zeros(t.rows).index_add(0, t.row, t.mask.to(t.logp.dtype))
    logp, old = t.logp, t.old
    if ratio == "sequence":
        gap = torch.where(t.mask, logp - old, 0.0)
        mean = torch.zeros_like(lengths).index_add(0, t.row, gap) / lengths.clamp(min=1)
        # the value is that of the sequence, the gradient passes through each token's own logprob
        logp, old = mean.detach()[t.row] + t.logp - t.logp.detach(), torch.zeros_like(old)
    loss = _surrogate(t, logp, old, clip, correction, cap)
    if t.share is not None:
        return _total(loss, t)
    share = t.mask / lengths[t.row].clamp(min=1)
    return (loss * share).sum(), (lengths > 0).sum()


def sft(t: Tokens) -> Pair:
    """Cross-entropy in nats, weighted mean: sum of ``-w logp`` over the sum of w."""
    weights = t.weights * t.mask if t.share is None else t.weights * t.mask * t.share[t.row]
    return -(weights * t.logp).sum(), weights.sum()


sft.measure = "weights"  # type: ignore[attr-defined]


def kl(t: Tokens, estimator: Literal["k1", "k2", "k3"] = "k3") -> Pair:
    """Distance to the reference policy, times the weight (Schulman 2020, joschu.net/blog/kl-approx.html).

    With d = ref - logp: k1 ``-d``, k2 ``d^2 / 2``, k3 ``exp(d) - d - 1``. The gradient of k1 has expectation zero
    on-policy: it measures, and pulls only when put into the reward; k2's gradient is its score-function form.

    Raises:
        BadInput: rows without reference logprobs.
    """
    if t.ref is None:
        raise BadInput(
            "the kl component needs reference logprobs", remedy="Call train.rows.reference(rows, model) first."
        )
    d = t.ref - t.logp
    value = {"k1": lambda: -d, "k2": lambda: d.square() / 2, "k3": lambda: d.exp() - d - 1}[estimator]()
    return _total(t.weights * value, t)


def entropy(t: Tokens) -> Pair:
    """Minus the policy's entropy, times the weight: a positive weight keeps the policy from narrowing."""
    assert t.entropy is not None, "the trainer computes entropies for losses that set reads_entropy"
    return _total(-t.weights * t.entropy, t)


entropy.reads_entropy = True  # type: ignore[attr-defined]


def dpo(t: Tokens, beta: float = 0.1) -> Pair:
    """Sigmoid preference loss (DPO, arXiv 2305.18290 eq. 7), mean over the chosen rows.

    With m(row) the weighted sum of logp - ref over the row's tokens: ``-log sigmoid(beta (m(chosen) - m(rejected)))``,
    for each chosen row against the one rejected row of its set. Where a row's only weight lies on one token this is
    Cliff-DPO (arXiv 2606.25524; specs/E172 section 5), where it lies on a whole reply DPO of sequences. Count: chosen
    rows.

    Raises:
        BadInput: rows without reference logprobs, or a set without exactly one rejected row.
    """
    if t.ref is None:
        raise BadInput("dpo needs reference logprobs", remedy="Call train.rows.reference(rows, model) first.")
    gap = torch.where(t.mask, t.weights * (t.logp - t.ref), 0.0)
    margin = t.logp.new_zeros(t.rows).index_add(0, t.row, gap)
    worse: dict[str, int] = {}
    for i, (name, role) in enumerate(zip(t.sets, t.roles, strict=True)):
        if role == "rejected" and worse.setdefault(name, i) != i:
            raise BadInput(f"set {name!r} has two rejected rows", remedy="Give each rejected row a set of its own.")
    better = [i for i, role in enumerate(t.roles) if role == "chosen"]
    if lost := [t.sets[i] for i in better if t.sets[i] not in worse]:
        raise BadInput(f"set {lost[0]!r} has no rejected row", remedy="A set is one rejected row and its chosen ones.")
    against = [worse[t.sets[i]] for i in better]
    loss = -torch.nn.functional.logsigmoid(beta * (margin[better] - margin[against]))
    if t.share is not None:
        return (loss * t.share[better]).sum(), t.share[better].sum()
    return loss.sum(), torch.tensor(len(better), device=t.logp.device)


dpo.measure = "pairs"  # type: ignore[attr-defined]


def _total(loss: Tensor, t: Tokens) -> Pair:
    if t.share is None:
        return torch.where(t.mask, loss, 0.0).sum(), t.mask.sum()
    share = torch.where(t.mask, t.share[t.row], 0.0)
    return torch.where(t.mask, loss * share, 0.0).sum(), share.sum()


def _surrogate(
    t: Tokens, logp: Tensor, old: Tensor, clip: float | tuple[float, float], correction: str, cap: float
) -> Tensor:
    low, high = (clip, clip) if isinstance(clip, (int, float)) else clip
    scale: Tensor | float = 1.0
    if correction != "none":
        proximal = t.targets.get("proximal")
        proximal = logp.detach() if proximal is None else proximal
        scale = (proximal - old).exp()
        inside = (scale >= 1 / cap) & (scale <= cap)
        scale = scale.clamp(max=cap) if correction == "truncate" else scale * inside
        old = proximal
    r = torch.where(t.mask, logp - old, 0.0).exp()
    return -scale * torch.minimum(r * t.weights, r.clamp(1 - low, 1 + high) * t.weights)

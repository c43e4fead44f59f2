"""Rejection sampling of drafted blocks, as pure functions (2211.17192, algorithm 1; 2302.01318, theorem 1).

A proposed token x of draft law q passes with probability min(1, p(x) / q(x)), p the target's law in force there. Behind
the first that fails the *recovered* token is drawn from max(p - q, 0), renormalised; behind a draft accepted whole the
*bonus* from p. What is emitted follows the target's law whatever q is.

Noise depends on (Call seed, token index, purpose), never on the batch. The draft's depends also on where its block
begins: after a rejection the same token is drafted anew, and a policy of lengths may have seen the earlier draft, so
that the same noise again would not be independent of the length chosen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.models.engine.speculation.proposal import F64, I64
from clew.models.sampling import LOWEST, noise

MOST = 64  # longest block
DRAFT, ACCEPT = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)  # purposes: other streams of a seed


class Uniforms(NamedTuple):
    """Noise of a round: to draft [n, k], to accept [n, k], and to draw the token behind so many accepted [n, k + 1].

    The last is that of plain decoding: a row of which nothing is verified gets the token it gets without drafts.
    """

    draft: F64
    accept: F64
    final: F64


def uniforms(seeds: npt.NDArray[np.uint64], index: npt.NDArray[np.uint64], block: int) -> Uniforms:
    """Uniforms of a round whose first token is token ``index`` [n] of each row's reply."""
    begin = index * np.uint64(MOST)
    return Uniforms(
        noise(seeds ^ DRAFT, begin, block), noise(seeds ^ ACCEPT, index, block), noise(seeds, index, block + 1)
    )


class Verdict(NamedTuple):
    """What a round emits: ``accepted`` [n] proposed tokens of each row and one more, in arrays [n, longest + 1]."""

    accepted: I64
    tokens: I64
    logprobs: npt.NDArray[np.float32]  # nats, of the target's law in force
    negentropies: npt.NDArray[np.float32]


@torch.inference_mode()
def judge(logp: Tensor, proposed: Tensor, logq: Tensor, lengths: I64, u: Uniforms) -> Verdict:
    """Accept, recover or add a bonus, for ragged blocks.

    Args:
        logp: [N, V], log-probabilities (nats) of the target's law in force: for each row one behind its anchor and one
            behind each verified token, packed row after row.
        proposed: int64 [n, k], of which the first ``lengths`` [n] of each row are verified.
        logq: [n, k, V], log-probabilities of the laws they were drawn from, under the same sampling.
    """
    n, longest = len(lengths), int(lengths.max())
    first = np.cumsum(lengths + 1) - lengths - 1
    accepted, drafted = np.zeros(n, np.int64), proposed.cpu().numpy()
    if longest:
        row, place = ragged(lengths)
        tokens, size = drafted[row, place], logp.shape[1]
        p_x = _at(logp.reshape(-1), (first[row] + place) * size + tokens).double()
        q_x = _at(logq.reshape(-1), (row * logq.shape[1] + place) * size + tokens).double()
        passed = np.zeros((n, longest + 1), bool)
        passed[row, place] = u.accept[row, place] < np.exp((p_x - q_x).cpu().numpy())
        accepted = passed.argmin(1)
    p = _at(logp, first + accepted).exp_()
    failed = np.flatnonzero(accepted < lengths)
    if failed.size:
        q = _at(logq.flatten(0, 1), failed * logq.shape[1] + accepted[failed]).exp_()
        before = p if failed.size == n else _at(p, failed)
        rest = (before - q).clamp_(min=0)
        # Where p and q are equal but for rounding nothing is left, and p is as good.
        rest = torch.where(rest.sum(-1, keepdim=True) > 0, rest, before).to(p.dtype)
        p = rest if failed.size == n else p.index_copy_(0, torch.from_numpy(failed).to(p.device), rest)
    cdf = p.cumsum(-1, dtype=torch.float64)
    last = torch.from_numpy(u.final[np.arange(n), accepted][:, None]).to(cdf.device)
    drawn = torch.searchsorted(cdf, last * cdf[:, -1:], right=True).clamp_(max=p.shape[-1] - 1)
    out = np.zeros((n, longest + 1), np.int64)
    out[:, :longest] = drafted[:, :longest]
    out[np.arange(n), accepted] = drawn[:, 0].cpu().numpy()
    return Verdict(accepted, out, *_recorded(logp, first, accepted, out))


def _recorded(
    logp: Tensor, first: I64, accepted: I64, tokens: I64
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Logprobs of emitted tokens and negative entropies of their laws, as plain decoding records them."""
    row, place = ragged(accepted + 1)
    law = _at(logp, first[row] + place)
    given = torch.from_numpy(tokens[row, place][:, None]).to(logp.device)
    chosen, negative = law.gather(-1, given)[:, 0], torch.linalg.vecdot(law.exp(), law.clamp(min=LOWEST))
    out = np.zeros((2, *tokens.shape), np.float32)
    out[:, row, place] = torch.stack((chosen, negative)).float().cpu().numpy()
    return out[0], out[1]


def _at(values: Tensor, index: I64) -> Tensor:
    """Entries of the first dimension."""
    return values.index_select(0, torch.from_numpy(index).to(values.device))


def ragged(counts: I64) -> tuple[I64, I64]:
    """Row and place within its row of each of ``counts`` [n] items a row."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]


class Drafted:
    """What came of drafts so far. Arrays [block] count by position in the block.

    Attributes:
        rounds: passes of the target over rows that run, drafted or not; one for each row.
        emitted: tokens of these rounds; emitted / rounds is the mean accepted length, bonus included.
        proposed: tokens that were verified. accepted: those of them the target kept.
        reached: verified tokens all before which were accepted; accepted / reached is conditional acceptance.
        recovered, bonus: tokens drawn behind a rejection, and behind a draft accepted whole.
        told: chances of the reached tokens, summed; accepted / told says how far they hold.
        faults: batches that went on without drafts.
        seconds: in the drafter and the policy of lengths, wall.
    """

    seconds: float

    def __init__(self, block: int) -> None:
        self.rounds = self.emitted = self.recovered = self.bonus = self.faults = 0
        self.proposed, self.accepted, self.reached = np.zeros((3, block), np.int64)
        self.told, self.seconds = np.zeros(block), 0.0

    def note(self, lengths: I64, accepted: I64, emitted: I64, chance: F64) -> None:
        """A round of rows [n]: tokens verified of each, those of them accepted, tokens emitted; chances [n, block]."""
        self.rounds += len(lengths)
        self.emitted += int(emitted.sum())
        places = np.arange(len(self.proposed))
        verified = lengths[:, None] > places
        self.proposed += verified.sum(0)
        self.accepted += (accepted[:, None] > places).sum(0)
        reached = verified & (accepted[:, None] >= places)
        self.reached += reached.sum(0)
        self.told += (chance * reached).sum(0)
        whole = int(((accepted == lengths) & (lengths > 0)).sum())
        self.bonus += whole
        self.recovered += int((lengths > 0).sum()) - whole

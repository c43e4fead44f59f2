"""The engine's side of speculative decoding: keeps the drafter's cache in step, checks proposals, logs faults."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.core.errors import BadInput
from clew.models.engine.forwards.fast import Fast
from clew.models.engine.forwards.generic import Generic
from clew.models.engine.speculation.lengths import Paying
from clew.models.engine.speculation.proposal import F64, I64, Drafter, Lengths, Proposal
from clew.models.engine.speculation.verification import MOST, Drafted, Uniforms
from clew.models.engine.state import Counts
from clew.models.sampling import Laws

Mask = npt.NDArray[np.bool_]

UNSEEN = 64  # plain steps after which a drafter is shown their tokens in any case
CLOSE = 1e-3  # how far from 1 the sum of a draft law may be
_log = logging.getLogger(__name__)


class Drafts:
    """A drafter beside a forward, and the policy of lengths.

    A fault of either (an exception, a proposal or a length that cannot be) is logged; the batch under way goes on
    without drafts, and ``restart`` tries again when it is over.

    Raises:
        BadInput: the drafter is of another model, or this engine cannot verify drafts.

    Attributes:
        on: whether drafts are made; False after a fault. counts: what came of them.
    """

    def __init__(self, drafter: Drafter, lengths: Lengths, forward: Fast | Generic, steady: bool) -> None:
        check(drafter, forward, steady)
        self.drafter, self._lengths, self._forward = drafter, lengths, forward
        forward.taps = tuple(drafter.taps)
        self.on, self.counts = True, Drafted(drafter.block)
        if isinstance(lengths, Paying):
            lengths.watch(self.counts)
        self._size = 0, 0
        # Tokens of plain steps that the drafter has not been shown: rows, ids, positions, tapped outputs.
        self._unseen: list[tuple[I64, I64, I64, Tensor]] = []
        self._fresh = np.zeros(0, bool)
        self._chance: F64 = np.zeros((0, drafter.block))  # of the proposal under way

    def resize(self, rows: int, size: int) -> None:
        """The cache has ``rows`` rows of ``size`` positions from now on."""
        self._show()
        self._size = rows, size
        fresh = np.ones(rows, bool)
        fresh[: len(self._fresh)] = self._fresh[:rows]
        self._fresh = fresh
        self._call(self.drafter.resize, rows, size)

    def clear(self) -> None:
        """Forget what the drafter has cached."""
        self._unseen.clear()
        self._call(self.drafter.clear)

    def restart(self) -> None:
        """Draft again after a fault. Only while nothing runs, and with no prefix kept: the drafter knows none."""
        self.on = True
        self.resize(*self._size)
        self.clear()

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Rows of the cache were copied onto others."""
        self._show()
        self._call(self.drafter.move, sources, targets, length)

    def seen(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, keep: I64 | None = None) -> None:
        """The target's last pass went over these tokens; ``keep`` are their places in it, where it had others too."""
        if self.on:
            self._show()
            self._call(self.drafter.extend, rows, ids, starts, self._tapped(sum(map(len, ids)), keep))

    def plain(self, rows: I64, tokens: I64, positions: I64, keep: I64) -> None:
        """A plain step of these rows [n], places ``keep`` of the pass; shown to the drafter before it is next used."""
        self.counts.rounds += len(rows)
        self.counts.emitted += len(rows)
        if self.on:
            self._unseen.append((rows, tokens.copy(), positions, self._tapped(len(rows), keep)))
            if len(self._unseen) >= UNSEEN:
                self._show()

    def _tapped(self, count: int, keep: I64 | None) -> Tensor:
        """What the tapped layers gave in the last pass, of the tokens at places ``keep``, of all where None."""
        hidden = self._forward.hidden
        if not self.drafter.taps:
            return torch.zeros(count, 0, device=self._forward.device)
        if keep is None or len(keep) == len(hidden):
            return hidden
        return hidden.index_select(0, torch.from_numpy(keep).to(hidden.device))

    def _show(self) -> None:
        """Show the drafter the tokens of plain steps, each row's together."""
        if not self._unseen:
            return
        rows, tokens, positions = (np.concatenate([step[i] for step in self._unseen]) for i in range(3))
        hidden = torch.cat([step[3] for step in self._unseen])
        self._unseen.clear()
        order = np.argsort(rows, kind="stable")
        which, first, counts = np.unique(rows[order], return_index=True, return_counts=True)
        ids = [part.tolist() for part in np.split(tokens[order], np.cumsum(counts)[:-1])]
        hidden = hidden.index_select(0, torch.from_numpy(order).to(hidden.device))
        self._call(self.drafter.extend, which, ids, positions[order][first], hidden)

    def join(self, rows: I64) -> None:
        """Rows have new requests."""
        self._fresh[rows] = True

    def note(self, lengths: I64, accepted: I64, kept: I64, counts: Counts) -> None:
        """A round of rows [n]: tokens verified of each, those of them accepted, and tokens emitted."""
        self.counts.note(lengths, accepted, kept, self._chance)
        counts.sampled += int(kept.sum())
        counts.proposed, counts.accepted = self.counts.proposed.tolist(), self.counts.accepted.tolist()

    def propose(
        self, rows: I64, anchors: I64, positions: I64, laws: Laws, noise: Callable[[], Uniforms], may: Mask
    ) -> tuple[Proposal, I64, Uniforms] | None:
        """A proposal for rows [n]; tokens of each to verify, none where ``may`` (bool [n]) is False; the noise used.

        None: the policy skips this round, or something failed.
        """
        if not self.on or not may.any():
            return None
        found: tuple[Proposal, I64, Uniforms] | None = None

        def call() -> None:
            nonlocal found
            asked = rows if may.all() else rows[may]
            if not self._lengths.draft(asked):
                return
            self._show()
            u = noise()
            proposal = self.drafter.propose(rows, anchors, positions, laws, u.draft)
            chance = self._checked(proposal, len(rows))
            chosen = np.asarray(self._lengths.choose(asked, self._fresh[asked], chance[may]))
            if chosen.shape != asked.shape or chosen.dtype.kind not in "iu" or not _within(chosen, 0, chance.shape[1]):
                raise ValueError(f"lengths {chosen.tolist()} of blocks of {chance.shape[1]}")
            lengths = np.zeros(len(rows), np.int64)
            lengths[may] = chosen
            self._fresh[asked] = False
            self._chance = chance
            found = proposal, lengths, u

        self._call(call)
        return found

    def _checked(self, proposal: Proposal, n: int) -> F64:
        """Chances of a proposal that can be judged.

        Raises:
            ValueError: it cannot.
        """
        tokens, logq, chance = proposal
        k, vocabulary = self.drafter.block, self._forward.vocabulary
        if tuple(tokens.shape) != (n, k) or tuple(logq.shape) != (n, k, vocabulary) or tuple(chance.shape) != (n, k):
            shapes = [tuple(t.shape) for t in proposal]
            raise ValueError(f"shapes {shapes} for {n} rows, blocks of {k}, a vocabulary of {vocabulary}")
        if not _within(tokens.cpu().numpy(), 0, vocabulary - 1):
            raise ValueError(f"tokens outside 0..{vocabulary - 1}")
        if not bool(((logq.exp().sum(-1) - 1).abs() <= CLOSE).all()):
            raise ValueError("laws that are not numbers or do not sum to 1")
        found: F64 = chance.double().cpu().numpy()
        if not _within(found, 0, 1):
            raise ValueError("chances that are not numbers from 0 to 1")
        return found

    def _call(self, function: Callable[..., None], *given: Any) -> None:
        if not self.on:
            return
        began = time.perf_counter()
        try:
            with torch.no_grad():
                function(*given)
        except Exception as error:
            self.on = False
            self.counts.faults += 1
            _log.warning(
                "drafting failed (%s: %s); what runs goes on without drafts",
                type(error).__name__,
                error,
                exc_info=error,
            )
        self.counts.seconds += time.perf_counter() - began


def _within(values: I64 | F64, low: float, high: float) -> bool:
    """Whether all lie between; what is not a number does not."""
    return bool(((values >= low) & (values <= high)).all())


def check(drafter: Drafter, forward: Fast | Generic, steady: bool) -> None:
    """Refuse a drafter that this forward cannot verify.

    Raises:
        BadInput: naming why.
    """
    taps, layers = tuple(drafter.taps), forward.layers
    if steady:
        raise BadInput(
            "a steady engine does not draft: drafts and their lengths depend on what runs beside a request",
            remedy="Leave out the drafter, or steady=True (by name: household-sft(steady=False)).",
        )
    if not forward.reuses:
        raise BadInput(
            "this model's cache cannot be cut back to the tokens that were accepted", remedy="Leave out draft=."
        )
    if drafter.vocabulary != forward.vocabulary:
        raise BadInput(
            f"the drafter has {drafter.vocabulary} tokens, the model {forward.vocabulary}",
            remedy="Train a drafter for this model: clew draft train.",
        )
    if list(taps) != sorted(set(taps)) or not all(0 <= tap < layers - 1 for tap in taps):
        raise BadInput(
            f"the drafter reads layers {list(taps)} of a model of {layers}, of which the last cannot be read",
            remedy="Train a drafter for this model: clew draft train.",
        )
    if not 1 <= drafter.block <= MOST:
        raise BadInput(f"a drafter with blocks of {drafter.block}", remedy=f"Use blocks of 1 to {MOST}.")

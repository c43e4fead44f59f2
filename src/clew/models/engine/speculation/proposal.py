"""Protocols of speculative decoding: the drafter, and the policy that says how much of a draft is verified.

The words: a drafter's tokens are *proposed*; those the target keeps are *accepted*; the token drawn from what is left
of the target's law after a rejection is *recovered*; the one drawn behind a draft accepted whole is the *bonus*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from clew.models.sampling import Laws

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


class Proposal(NamedTuple):
    """A block of ``k`` proposed tokens for each of n rows.

    ``logq`` are the log-probabilities (nats) of the law each token was drawn from, under its row's sampling.
    ``chance`` estimates that a token is accepted given that those before it were; it may depend on the tokens before,
    never on the token itself (2607.05147, section 3.2.2). A proposal with a number that is not finite, of another
    vocabulary, or whose laws do not sum to 1 is a fault: the batch goes on without drafts, and the log says so.
    """

    tokens: Tensor  # int64 [n, k]
    logq: Tensor  # float32 or float64 [n, k, V]
    chance: Tensor  # float32 [n, k]


class Drafter(Protocol):
    """Proposes tokens for rows of the engine's cache, beside which it keeps a cache of its own, row by row.

    ``block`` is the most tokens it proposes, at most 64; ``vocabulary`` the number of token ids, that of its target;
    ``taps`` are the target's layers (0-based, rising, never the last) whose outputs it reads, none for a drafter that
    reads tokens alone. Rows, positions and moves are those of the engine's cache; a block may reach past its end.
    """

    block: int
    vocabulary: int
    taps: tuple[int, ...]

    def resize(self, rows: int, size: int) -> None: ...
    def clear(self) -> None: ...
    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None: ...
    def extend(self, rows: I64, ids: Sequence[Sequence[int]], starts: I64, hidden: Tensor) -> None:
        """Tokens the target has run through at positions ``starts`` on, packed row after row, and the outputs of the
        tapped layers there, [N, taps * width]. A later call may start before the end of an earlier one: it replaces."""

    def propose(self, rows: I64, anchors: I64, positions: I64, laws: Laws, u: F64) -> Proposal:
        """Draft behind each row's anchor, the last token emitted, which the target has not run through yet and which
        comes to ``positions``; ``u`` are uniforms [n, block], one for each draw, new ones in every round."""


class Lengths(Protocol):
    """Says how many proposed tokens of each row are verified."""

    def draft(self, rows: I64) -> bool:
        """Whether to draft for these rows at all in this round; from what was known before it."""

    def choose(self, rows: I64, fresh: npt.NDArray[np.bool_], chance: F64) -> I64:
        """Tokens [n] to verify of each row's block, from ``chance`` [n, k]. ``fresh`` rows have a new request since the
        last round. The number of all of them together must come from older information than ``chance``; which rows
        get them may come from it, as long as a row's tokens are taken in order and by products of chances. The engine
        verifies fewer where a request may not grow so long."""

"""Rows whose replies were held to a grammar: which tokens it forbade at each place, so that their law can be scored.

``Trainer`` asks before each step. The law in force was softmax over the tokens that the grammar allowed; scoring the
model's free law against it would make every ratio wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.records import LossRow

Bits = npt.NDArray[np.uint8]


class Guide(Protocol):
    """Where a reply stands in its grammar, as ``clew.models.engine.grammar.Guide`` says."""

    def take(self, tokens: Sequence[int]) -> bool: ...
    def banned(self) -> npt.NDArray[np.bool_] | None: ...


def forbidden(rows: Sequence[LossRow], guide: Callable[[str], Guide] | None) -> list[Bits | None]:
    """Of each row the tokens that its grammar forbade at each place, uint8 [T, vocabulary / 8], one bit a token, the
    lowest first; None for rows that were free.

    Args:
        guide: a grammar's guide at the start of a reply, for the tokens of the model that is trained.

    Raises:
        BadInput: the model has no guides, or a token of a row breaks the grammar that the row says it was held to.
    """
    if guide is None and any(row.held for row in rows):
        told = "rows were held to a grammar, and the model that is trained cannot say what it forbids"
        raise BadInput(told, remedy="Train local weights whose tokenizer is fast, or sample without the grammar.")
    return [_of_row(row, guide) if row.held and guide is not None else None for row in rows]


def _of_row(row: LossRow, guide: Callable[[str], Guide]) -> Bits:
    out: Bits | None = None
    for first, stop, grammar in row.held:
        at = guide(grammar)
        for place in range(first, stop):
            token = int(row.ids[place])
            banned = at.banned()
            if banned is None or banned[token]:
                told = f"token {token} at place {place} of a row breaks the grammar {grammar[:60]!r}"
                raise BadInput(told, remedy="Train the weights, with the tokenizer, that sampled the row.")
            if out is None:
                out = np.zeros((len(row.ids), (len(banned) + 7) // 8), np.uint8)
            out[place] = np.packbits(banned, bitorder="little")
            at.take([token])
    assert out is not None
    return out

"""Rows whose replies were held to a grammar, or whose law was cut: which tokens had no share of it at each place.

``Trainer`` asks before each step. The law in force was softmax over the tokens that the grammar allowed, or that top-k
and top-p left; scoring the model's free law against it would make every ratio wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.records import LossRow
from clew.models.kept import places

Bits = npt.NDArray[np.uint8]


class Guide(Protocol):
    """Where a reply stands in its grammar, as ``clew.models.engine.grammar.Guide`` says."""

    def take(self, tokens: Sequence[int]) -> bool: ...
    def banned(self) -> npt.NDArray[np.bool_] | None: ...


def forbidden(rows: Sequence[LossRow], guide: Callable[[str], Guide] | None, vocabulary: int = 0) -> list[Bits | None]:
    """Of each row the tokens without a share of its law at each place, uint8 [T, vocabulary / 8], one bit a token, the
    lowest first; None for rows that were free.

    Args:
        guide: a grammar's guide at the start of a reply, for the tokens of the model that is trained.
        vocabulary: logits of the model that is trained; needed for rows whose law was cut.

    Raises:
        BadInput: the model has no guides, a token of a row breaks the grammar that the row says it was held to, or a
            row's kept tokens are not of this vocabulary or lack the one that was drawn.
    """
    if guide is None and any(row.held for row in rows):
        told = "rows were held to a grammar, and the model that is trained cannot say what it forbids"
        raise BadInput(told, remedy="Train local weights whose tokenizer is fast, or sample without the grammar.")
    return [_of_row(row, guide, vocabulary) if row.held or row.kept else None for row in rows]


def _of_row(row: LossRow, guide: Callable[[str], Guide] | None, vocabulary: int) -> Bits | None:
    found: dict[int, Bits] = {}
    for first, stop, grammar in row.held:
        assert guide is not None
        at = guide(grammar)
        for place in range(first, stop):
            token = int(row.ids[place])
            banned = at.banned()
            if banned is None or banned[token]:
                told = f"token {token} at place {place} of a row breaks the grammar {grammar[:60]!r}"
                raise BadInput(told, remedy="Train the weights, with the tokenizer, that sampled the row.")
            found[place] = np.packbits(banned, bitorder="little")
            at.take([token])
    for place, _, left in places(row.kept, row.ids):
        if left[-1] >= vocabulary:
            told = f"a row was drawn from token {left[-1]}, of a vocabulary of {vocabulary}"
            raise BadInput(told, remedy="Train the weights that sampled the row.")
        lacking = np.ones(vocabulary, bool)
        lacking[left] = False
        found[place] = np.packbits(lacking, bitorder="little")
    if not found:
        return None
    out = np.zeros((len(row.ids), max(map(len, found.values()))), np.uint8)
    for place, bits in found.items():
        out[place, : len(bits)] = bits
    return out

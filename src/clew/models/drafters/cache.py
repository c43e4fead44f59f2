"""A drafter's cache: numbers per position for every row of the engine's cache, in one flat tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from clew.models.engine.speculation.proposal import I64


class Rows:
    """``parts`` tensors of ``shape`` for each position of each row; a block's room lies behind each row's end."""

    def __init__(
        self, parts: int, shape: tuple[int, ...], spare: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._shape, self._spare, self._parts = shape, spare, parts
        self.rows = self.size = 0
        self.flat = torch.zeros(parts, 0, *shape, dtype=dtype, device=device)  # [parts, rows * size, ...]

    def resize(self, rows: int, size: int) -> None:
        """Make room, keeping what is there."""
        size += self._spare
        new = self.flat.new_zeros(self._parts, rows, size, *self._shape)
        if self.rows:
            kept, length = min(rows, self.rows), min(size, self.size)
            new[:, :kept, :length] = self.view()[:, :kept, :length]
        self.flat, self.rows, self.size = new.flatten(1, 2), rows, size

    def view(self) -> Tensor:
        """[parts, rows, size, ...]"""
        return self.flat.view(self._parts, self.rows, self.size, *self._shape)

    def clear(self) -> None:
        self.flat.zero_()

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first positions of rows onto others; all are read before any is written."""
        whole = self.view()
        whole[:, list(targets), :length] = whole[:, list(sources), :length]

    def at(self, rows: I64, positions: I64) -> Tensor:
        """Flat places of one position of each row."""
        return torch.from_numpy(rows * self.size + positions).to(self.flat.device)


def packed(rows: I64, ids: Sequence[Sequence[int]], starts: I64) -> tuple[I64, I64, I64]:
    """Row, token and position of each of the tokens packed row after row, int64 [N] each."""
    if len(ids) == 1:
        tokens = np.asarray(ids[0], np.int64)
        return np.full(len(tokens), rows[0]), tokens, np.arange(starts[0], starts[0] + len(tokens))
    counts = np.array([len(i) for i in ids], np.int64)
    tokens = np.fromiter(chain.from_iterable(ids), np.int64, int(counts.sum()))
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(rows, counts), tokens, np.repeat(starts, counts) + np.arange(len(tokens)) - first

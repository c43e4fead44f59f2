"""The key-value cache in blocks: every row has a stretch of positions of its own length in one arena.

``Fast`` and ``Batched`` keep their tensors here, and ``Rows`` gives the stretches out. A stretch starts at a multiple
of its length, so rows whose stretches are equally long are read as one view, [rows, heads, positions, width], and a
long row lengthens no other. It must never read a row's tokens: what lies where is the business of ``Slots``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.models.engine.forwards.transfers import sent_ids

I64 = npt.NDArray[np.int64]
KEYS, VALUES = range(2)  # with a layer's number, the key of what a forward keeps of it
GRAIN = 64  # positions; every stretch is a multiple
SHORT = 256  # positions of the shortest stretch: rows are read together by length, and few lengths are few reads
MORE = 16  # an arena that is full grows by at least this part of itself, so that it is seldom copied


class Bank(NamedTuple):
    """Rows with stretches of one length, as they lie.

    part: these rows in the Layout. places: int64 [n], the number of each one's stretch, counted in its own length; they
    rise. low, many: the stretches that hold them.
    """

    room: int
    part: slice
    places: I64
    low: int
    many: int

    @property
    def at(self) -> I64 | None:
        """int64 [n], which of the stretches are theirs; None where all are."""
        return None if self.many == len(self.places) else self.places - self.low

    @property
    def dense(self) -> bool:
        """Whether reading all stretches costs less than copying those of the rows."""
        return self.many <= 2 * len(self.places)


class Spot(NamedTuple):
    """Where tokens of one bank's rows lie.

    tokens: these among the pass's. places, at: int64 [n], the number of each one's stretch, and its position there.
    """

    room: int
    tokens: slice
    places: Tensor
    at: Tensor


class Layout(NamedTuple):
    """Some rows in the order in which they lie.

    order: int64 [n], places of these rows as they came; back: places in this order of the rows as they came. None
    where they came in order.
    """

    rows: I64
    order: I64 | None
    back: I64 | None
    banks: list[Bank]

    def spots(self, at: Tensor, counts: I64 | None = None) -> list[Spot]:
        """Where tokens lie, by their positions ``at`` [N]: one of each row, or so many of each, row after row."""
        found, first = [], 0
        for bank in self.banks:
            places = bank.places if counts is None else bank.places.repeat(counts[bank.part])
            tokens = slice(first, first + len(places))
            found.append(Spot(bank.room, tokens, sent_ids(places, at.device), at[tokens]))
            first = tokens.stop
        return found


class Kind(NamedTuple):
    """Numbers of one kind, [positions * heads, width]: in a stretch those of head after head."""

    heads: int
    transposed: bool  # see ``Arena.hold``
    numbers: Tensor

    def lying(self, start: int, room: int, many: int = 1) -> Tensor:
        """``many`` stretches of ``room`` positions, from position ``start`` on: a view [many, heads, room, width]."""
        part = self.numbers[start * self.heads : (start + many * room) * self.heads]
        if self.transposed:
            return part.view(many, self.heads, part.shape[1], room).mT
        return part.view(many, self.heads, room, part.shape[1])


class Arena:
    """Stretches of positions, and for each key the numbers that are kept of them.

    What writes numbers here runs in torch's inference mode, as the passes do.

    Attributes:
        total: positions. base, room: int64 [rows], where each row's stretch begins, and its positions; 0: it has none.
    """

    def __init__(self) -> None:
        self.total = 0
        self.base, self.room = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._used = np.zeros(0, bool)  # of each GRAIN of positions
        self._kept: dict[Hashable, Kind] = {}
        self._asked: tuple[I64 | None, Layout | None] = None, None
        self._views: dict[tuple[int, int, int, int], dict[Hashable, Tensor]] = {}

    @property
    def token_bytes(self) -> int:
        """Bytes of a position in all tensors."""
        return sum(kind.heads * kind.numbers.shape[1] * kind.numbers.element_size() for kind in self._kept.values())

    def hold(self, key: Hashable, heads: int, width: int, like: Tensor, transposed: bool = False) -> None:
        """Keep numbers of one more kind, of the type and on the device of ``like``; nothing where it is kept.

        transposed: a head's numbers lie as [width, positions] within a stretch, not as [positions, width].
        """
        if key not in self._kept:
            self._kept[key] = Kind(heads, transposed, like.new_zeros(self.total * heads, width))
            self._views.clear()

    def number(self, rows: int) -> None:
        """There are so many rows from now on; those beyond lose their stretches."""
        for row in range(rows, len(self.room)):
            self.free(row)
        more = np.zeros(max(0, rows - len(self.room)), np.int64)
        self.base, self.room = (np.concatenate([old[:rows], more]) for old in (self.base, self.room))
        self._changed()

    @torch.inference_mode()
    def even(self, rows: int, size: int) -> None:
        """Stretches of at least ``size`` for ``rows`` rows, side by side, keeping what they hold."""
        size = _rounded(size)
        if len(self.room) == rows and bool((self.room == size).all()):
            return
        before, kept = (self.base, self.room), {key: self._grown(key) for key in self._kept}
        self.total, self._used = rows * size, np.ones(rows * size // GRAIN, bool)
        self.base, self.room = np.arange(rows) * size, np.full(rows, size, np.int64)
        self._changed()
        for key, old in kept.items():
            new = old.numbers.new_zeros(self.total * old.heads, old.numbers.shape[1])
            self._kept[key] = old._replace(numbers=new)
            for row, (start, room) in enumerate(zip(*(one[:rows].tolist() for one in before), strict=True)):
                if room:
                    n = min(room, size)
                    self._kept[key].lying(row * size, size)[:, :, :n] = old.lying(start, room)[:, :, :n]

    def fits(self, size: int, limit: int) -> bool:
        """Whether a stretch of ``size`` is free, or the arena may grow by one within ``limit`` positions."""
        start, _ = self._find(size)
        return start + size <= max(limit, self.total)

    @torch.inference_mode()
    def take(self, row: int, size: int, length: int, limit: int = 0) -> None:
        """Give a row a stretch of ``size`` positions, with the first ``length`` that it holds, for the one it has.

        The arena grows where none is free; by more than is needed only up to ``limit``.
        """
        start, free = self._find(size)
        if not free:
            self._extend(max(start + size, min(self.total + self.total // MORE, limit)))
        self._used[start // GRAIN : (start + size) // GRAIN] = True
        old, room = int(self.base[row]), int(self.room[row])
        if length and room:
            n = min(length, size, room)
            for kind in map(self._grown, self._kept):
                kind.lying(start, size)[:, :, :n] = kind.lying(old, room)[:, :, :n]
        self.free(row)
        self.base[row], self.room[row] = start, size
        self._changed()

    def free(self, row: int) -> None:
        """Take a row's stretch back."""
        start, size = int(self.base[row]), int(self.room[row])
        self._used[start // GRAIN : (start + size) // GRAIN] = False
        self.room[row] = 0
        self._changed()

    @torch.inference_mode()
    def clear(self) -> None:
        """Zeros: a masked position is multiplied by 0, which does not mend a NaN."""
        for kind in self._kept.values():
            kind.numbers.zero_()

    @torch.inference_mode()
    def shrink(self) -> None:
        """Let the memory go behind the last stretch that a row has."""
        end = int((self.base + self.room)[self.room > 0].max(initial=0))
        for key in self._kept:
            kind = self._grown(key)
            self._kept[key] = kind._replace(numbers=kind.numbers[: end * kind.heads].clone())
        self.total, self._used = end, self._used[: end // GRAIN]
        self._changed()

    @torch.inference_mode()
    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first ``length`` positions of rows onto others, as far as both reach; all are read first."""
        pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for source, target in zip(sources, targets, strict=True):
            rooms = int(self.room[source]), int(self.room[target])
            pairs.setdefault(rooms, []).append((self.base[source] // rooms[0], self.base[target] // rooms[1]))
        for key in self._kept:
            read = []
            for (here, there), places in pairs.items():
                take, put = torch.tensor(places, device=self._kept[key].numbers.device).T
                n = min(length, here, there)
                read.append((there, put, n, self.stretches(key, here)[:, :, :n].index_select(0, take)))
            for there, put, n, numbers in read:
                self.stretches(key, there)[put, :, :n] = numbers

    def layout(self, rows: I64) -> Layout:
        """How these rows lie. Asked again with the same array, the answer is the same object until something moves."""
        asked, found = self._asked
        if asked is rows and found is not None:
            return found
        room, place = self.room[rows], self.base[rows] // np.maximum(self.room[rows], 1)
        order: I64 | None = np.lexsort((place, room))
        if order is not None and bool((order[1:] > order[:-1]).all()):
            order = None
        came = rows
        if order is not None:
            rows, room, place = rows[order], room[order], place[order]
        ends = [*(np.flatnonzero(room[1:] != room[:-1]) + 1).tolist(), len(rows)]
        banks = []
        for start, end in zip([0, *ends], ends, strict=False):
            low, many = int(place[start]), int(place[end - 1] - place[start]) + 1
            banks.append(Bank(int(room[start]), slice(start, end), place[start:end], low, many))
        found = Layout(rows, order, None if order is None else order.argsort(), banks)
        self._asked = came, found
        return found

    def store(self, key: Hashable, spots: list[Spot], new: Tensor) -> None:
        """Write the numbers [n, heads, width] of n tokens where they lie."""
        for spot in spots:
            self.stretches(key, spot.room)[spot.places, :, spot.at] = new[spot.tokens]

    def stretches(self, key: Hashable, room: int) -> Tensor:
        """All that the arena holds of one kind as if every stretch were ``room`` long: [n, heads, room, width]."""
        return self._grown(key).lying(0, room, self.total // room)

    def read(self, bank: Bank, span: int, key: Hashable, among: Tensor | None = None) -> Tensor:
        """The first ``span`` positions of a bank's stretches: a view [many, heads, span, width].

        among: int64 [m], a copy of these stretches alone.
        """
        which = bank.room, bank.low, bank.many, span
        if (found := self._views.get(which)) is None:
            if len(self._views) > 64:
                self._views.clear()
            part = slice(bank.low, bank.low + bank.many)
            found = {one: self.stretches(one, bank.room)[part, :, :span] for one in self._kept}
            self._views[which] = found
        if among is None:
            return found[key]
        if self._kept[key].transposed:
            return found[key].mT.index_select(0, among).mT
        return found[key].index_select(0, among)

    def pair(self, bank: Bank, span: int, layer: int, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, as ``read`` gives them."""
        return self.read(bank, span, (layer, KEYS), among), self.read(bank, span, (layer, VALUES), among)

    def _find(self, size: int) -> tuple[int, bool]:
        """Where a stretch of ``size`` can begin, and whether it lies within the arena."""
        grains, n = size // GRAIN, self.total // size
        taken = self._used[: n * grains].reshape(n, grains).any(1)
        if not taken.all():
            return int(taken.argmin()) * size, True
        behind = self._used[n * grains :]  # what is free at the end counts with what the arena grows by
        return (n if not behind.any() else n + 1) * size, False

    def _extend(self, total: int) -> None:
        total = -(-total // GRAIN) * GRAIN
        self._used = np.concatenate([self._used, np.zeros(total // GRAIN - len(self._used), bool)])
        self.total = total

    def _grown(self, key: Hashable) -> Kind:
        """Numbers of one kind, whose tensor grows with the arena when it is next used: many rows may come at once."""
        kind = self._kept[key]
        old, size = kind.numbers, self.total * kind.heads
        if old.shape[0] != size:
            new = old.new_zeros(size, old.shape[1])
            new[: len(old)] = old
            self._kept[key] = kind = kind._replace(numbers=new)
            self._views.clear()
        return kind

    def _changed(self) -> None:
        self._asked = None, None
        self._views.clear()


def stretch(positions: int, context: int) -> int:
    """Length of the stretch for a row of so many positions: a power of two, or what the context needs."""
    return min(max(SHORT, 1 << (positions - 1).bit_length()), _rounded(context + 1))


def _rounded(positions: int) -> int:
    return max(1, -(-positions // GRAIN)) * GRAIN

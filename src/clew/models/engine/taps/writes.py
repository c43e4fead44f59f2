"""Writes into hidden states as a forward carries them out: who writes what where, the arithmetic, and the count.

A forward asks for the ``plan`` of each pass and applies its steps behind each block. Rows that write nothing are not
touched, so that their numbers keep their bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from clew.core.values import Reach
from clew.models.engine.forwards.transfers import sent_ids
from clew.models.engine.taps.placing import Target, Write
from clew.models.taps.tap import VECTORS, Tap

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Step(NamedTuple):
    """One write in one pass: at tokens ``where`` of the pass (None: all), with the states ``which`` of a patch."""

    op: Op
    where: Tensor | None
    which: Tensor | None


Plan = dict[int, list[Step]]  # by layer


class Op:
    """The arithmetic of one Tap, its vectors on the model's device."""

    def __init__(self, tap: Tap, device: torch.device, dtype: torch.dtype) -> None:
        kind = torch.promote_types(dtype, torch.float32)
        self.layer = tap.layer
        self._vectors = {
            name: torch.tensor(v.values, dtype=dtype if name in ("add", "patch") else kind, device=device)
            for name in VECTORS
            if (v := tap.vector(name)) is not None
        }
        self._clamp, self._scale, self._bias, self._kind = tap.clamp, tap.scale, tap.bias, kind

    def __call__(self, h: Tensor, which: Tensor | None) -> Tensor:
        """The states [n, width] in place of h."""
        given = self._vectors
        if "add" in given:
            return h + given["add"]
        if "patch" in given:
            states = given["patch"]
            return (states if which is None else states.index_select(0, which)).expand_as(h)
        h_, along = h.to(self._kind), given["along"]
        if "read" in given:
            f = ((h_ * given["read"]).sum(-1, keepdim=True) + self._bias).clamp_(min=0)
        else:
            f = (h_ * along).sum(-1, keepdim=True) / (along * along).sum()
        more = self._clamp - f if self._clamp is not None else ((self._scale or 0.0) - 1) * f
        return (h_ + more * along).to(h.dtype)


def apply(steps: Sequence[Step], x: Tensor) -> Tensor:
    """Carry out the writes behind one block, in place on x [N, width]; gives x."""
    for op, where, which in steps:
        if where is None:
            x.copy_(op(x, which))
        else:
            x.index_copy_(0, where, op(x.index_select(0, where), which))
    return x


class _Rows:
    """One Tap, as some rows of the cache have it."""

    def __init__(self, op: Op, many: bool) -> None:
        self.op, self.many = op, many  # many: a patch with a state for each position
        self.low, self.high, self.reply, self.last = (np.zeros(0, np.int64) for _ in range(4))
        self.prompted, self.replied = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.at: dict[int, dict[int, int]] = {}
        self.rows: set[int] = set()

    def put(self, row: int, write: Write, reply: int, total: int) -> None:
        if (more := row + 1 - len(self.low)) > 0:
            for name in ("low", "high", "reply", "last", "prompted", "replied"):
                setattr(self, name, np.pad(getattr(self, name), (0, more)))
        self.low[row], self.high[row] = (0, 0) if write.at else (write.low, write.high)
        self.reply[row], self.last[row] = reply, total - 1
        self.prompted[row] = self.replied[row] = 0
        if write.at:
            self.at[row] = {place: i for i, place in enumerate(write.at)}
        self.rows.add(row)

    def drop(self, row: int) -> None:
        self.low[row] = self.high[row] = 0
        self.at.pop(row, None)
        self.rows.discard(row)

    def find(self, rows: I64, at: I64) -> tuple[I64, I64]:
        """Places in a pass over tokens of ``rows`` at positions ``at`` that are written, and states for them."""
        known = np.minimum(rows, len(self.low) - 1)
        hit = (at >= self.low[known]) & (at < self.high[known]) & (rows == known)
        if not self.at:
            return np.flatnonzero(hit), np.zeros(0, np.int64)
        which = np.zeros(len(rows), np.int64)
        for row, places in self.at.items():
            for i in np.flatnonzero(rows == row).tolist():
                if (found := places.get(int(at[i]))) is not None:
                    hit[i], which[i] = True, found
        where = np.flatnonzero(hit)
        return where, which[where]

    def count(self, rows: I64, at: I64, inner: bool) -> None:
        """Count tokens that were written; of the last block's those alone on which something depends."""
        known = np.ones(len(rows), bool) if inner else at >= self.last[rows]
        replied = at >= self.reply[rows]
        np.add.at(self.prompted, rows[known & ~replied], 1)
        np.add.at(self.replied, rows[known & replied], 1)


class Writes:
    """The writes of all rows of a cache.

    Args:
        target: the model, see ``placed``.
    """

    def __init__(self, target: Target, device: torch.device, dtype: torch.dtype) -> None:
        self.target, self._device, self._dtype = target, device, dtype
        self._ops: dict[Tap, Op] = {}
        self._sets: dict[tuple[int, Tap], _Rows] = {}  # by place in the request's list, which is the order of writing
        self._rows: dict[int, tuple[Write, ...]] = {}

    def __len__(self) -> int:
        """How many rows write something."""
        return len(self._rows)

    def begin(self, row: int, writes: tuple[Write, ...], reply: int, total: int) -> None:
        """A request has the row: its reply begins at position ``reply``, and ``total`` tokens of it are given."""
        self.drop(row)
        if not writes:
            return
        self._rows[row] = writes
        for order, write in enumerate(writes):
            key = order, write.tap
            if key not in self._sets:
                op = self._ops.get(write.tap) or Op(write.tap, self._device, self._dtype)
                self._ops[write.tap] = op
                patch = write.tap.vector("patch")
                self._sets[key] = _Rows(op, patch is not None and patch.values.ndim == 2)
                self._sets = dict(sorted(self._sets.items(), key=lambda item: item[0][0]))
            self._sets[key].put(row, write, reply, total)

    def end(self, row: int, start: int) -> tuple[Reach, ...]:
        """The request of a row is done; how many tokens each of its writes reached, ``start`` of them cached."""
        found = []
        for order, write in enumerate(self._rows.get(row, ())):
            of = self._sets[order, write.tap]
            last = write.tap.layer == self.target.layers - 1
            cached = 0 if last else write.below(start)
            found.append(Reach(int(of.prompted[row]), int(of.replied[row]), cached))
        self.drop(row)
        return tuple(found)

    def drop(self, row: int) -> None:
        """The row writes nothing any more."""
        for order, write in enumerate(self._rows.pop(row, ())):
            of = self._sets[order, write.tap]
            of.drop(row)
            if not of.rows:
                del self._sets[order, write.tap]
        if not self._sets:
            self._ops.clear()

    def clear(self) -> None:
        """No row writes anything any more."""
        self._ops, self._sets, self._rows = {}, {}, {}

    def plan(self, rows: I64, at: I64, new: Mask | None = None, last: bool = True) -> Plan:
        """What a pass writes over tokens of ``rows`` [N] at positions ``at`` [N].

        Args:
            new: bool [N], the tokens that are counted; others were counted before. None: all.
            last: whether the last block computes all of them; where it does not, its writes are left out.
        """
        plan: Plan = {}
        for of in self._sets.values():
            inner = of.op.layer < self.target.layers - 1
            if inner or last:
                self._step(plan, of, rows, at, new)
        return plan

    def at_last(self, rows: I64, at: I64) -> Plan:
        """The part of a pass behind the last block, where that computes one token of each row."""
        plan: Plan = {}
        for of in self._sets.values():
            if of.op.layer == self.target.layers - 1:
                self._step(plan, of, rows, at, None)
        return plan

    def _step(self, plan: Plan, of: _Rows, rows: I64, at: I64, new: Mask | None) -> None:
        where, which = of.find(rows, at)
        if not where.size:
            return
        counted = where if new is None else where[new[where]]
        of.count(rows[counted], at[counted], of.op.layer < self.target.layers - 1)
        places = None if where.size == len(rows) else self._ids(where)
        plan.setdefault(of.op.layer, []).append(Step(of.op, places, self._ids(which) if of.many else None))

    def _ids(self, values: I64) -> Tensor:
        return sent_ids(values, self._device)

"""Rows as one sequence without padding, in which each token that rows share stands once: a trie in depth-first order.

``Trainer`` packs micro-batches by it, and clew.fit.prefixes.tree_attention computes attention over it. Rows that hold
the same tokens up to a place have the same hidden states there, whatever follows, so that one is enough. Rows that
share nothing stand one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.records import LossRow

I64 = npt.NDArray[np.int64]
Range = tuple[int, int]  # first place and stop


class Run(NamedTuple):
    """Tokens ``start`` to ``stop``, which follow each other in a row. Each attends to all of ``before``, to those of
    the run that stand before it, and to itself."""

    start: int
    stop: int
    before: tuple[Range, ...]


class Trie(NamedTuple):
    """N tokens that stand for rows. ids, depth: int64 [N], the latter is the position in the row. where: of each row
    int64 [T], the place of each of its tokens among the N. runs: together they are all N, in order.
    """

    ids: I64
    depth: I64
    where: list[I64]
    runs: list[Run]


def lay(rows: Sequence[npt.NDArray[np.integer]]) -> Trie:
    """The trie of rows of token ids, int [T] each, of which none is empty."""
    order = sorted(range(len(rows)), key=lambda i: _bytes(rows[i]))
    where: list[I64] = [np.zeros(0, np.int64)] * len(rows)
    ids, depth, runs, size = list[I64](), list[I64](), list[Run](), 0
    before, path = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for i in order:
        row = rows[i].astype(np.int64)
        same, new = common(before, row), 0
        if new := len(row) - same:
            runs.append(Run(size, size + new, _ranges(path[:same])))
            ids.append(row[same:])
            depth.append(np.arange(same, len(row)))
        where[i] = path = np.concatenate([path[:same], np.arange(size, size + new)])
        before, size = row, size + new
    return Trie(np.concatenate(ids), np.concatenate(depth), where, runs)


def plan(rows: Sequence[LossRow], tokens: int, at_least: int = 1) -> list[list[int]]:
    """Micro-batches as lists of row numbers: rows that share beginnings together, at most ``tokens`` of a trie each.

    Rows of one ``set`` stay together. The order depends on the rows only. Where there are fewer batches than
    ``at_least``, the number of ranks, they are cut again into smaller ones.
    """
    units: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        units.setdefault(row.set or i, []).append(i)
    out, size, before = list[list[int]](), 0, np.zeros(0, np.int64)
    for unit in sorted(units.values(), key=lambda unit: _bytes(rows[unit[0]].ids)):
        added, last = 0, before
        for i in unit:
            added, last = added + len(rows[i].ids) - common(last, rows[i].ids), rows[i].ids
        if not out or size + added > tokens:
            out.append([])
            size = 0
        out[-1] += unit
        size, before = size + added, last
    if len(out) < at_least and (share := -(-size_of(rows) // at_least)) < tokens:
        return plan(rows, share)
    return out


def size_of(rows: Sequence[LossRow]) -> int:
    """How many tokens the trie of these rows has."""
    ordered = sorted((row.ids for row in rows), key=_bytes)
    return sum(map(len, ordered)) - sum(common(a, b) for a, b in pairwise(ordered))


def common(a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> int:
    """How many tokens two rows have in common at their beginning."""
    n = min(len(a), len(b))
    other = np.flatnonzero(a[:n] != b[:n])
    return int(other[0]) if len(other) else n


def _bytes(ids: npt.NDArray[np.integer]) -> bytes:
    """What sorts as the ids do."""
    return ids.astype(">u4").tobytes()


def _ranges(places: I64) -> tuple[Range, ...]:
    if not len(places):
        return ()
    cuts = np.flatnonzero(np.diff(places) != 1) + 1
    return tuple((int(part[0]), int(part[-1]) + 1) for part in np.split(places, cuts))

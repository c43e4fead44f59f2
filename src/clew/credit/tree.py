"""Advantages on rollout trees: what each edge of a tree earned, each of its tokens counted once.

An edge is the stretch of tokens that leads into a node. Prefixes are shared, so a token has one weight however many
leaves lie below it. Leaves that were branched late are not independent draws from the policy: where a place was tried
often, it has more leaves than its share. ``sibling`` undoes that; ``group`` and ``leave-out`` take leaves as they come.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.core.errors import BadInput

F64 = NDArray[np.float64]
Ints = NDArray[np.int64]
Baseline = Literal["sibling", "leave-out", "group"]


class Tree(NamedTuple):
    """One or many trees side by side, all arrays [nodes]; a node's parent has a smaller index.

    parent: index, -1 for a root. draws: how often the edge into the node was decoded (0 for a root).
    leaves: rollouts that end below or at the node. total: the sum of their outcomes. square: of their squares.
    """

    parent: Ints
    draws: F64
    leaves: F64
    total: F64
    square: F64


class Weights(NamedTuple):
    """What ``weights`` found, all [nodes], 0 at roots.

    weight: factor of grad log pi of the edge's tokens in the tree's ascent direction. A flat tree's weights are
    A_i / n. advantage: how much better the edge went than its baseline. reach: estimated chance of coming there.
    value: expected outcome from the node on.
    """

    weight: F64
    advantage: F64
    reach: F64
    value: F64


def levels(parent: Ints) -> list[Ints]:
    """Indices of the nodes by depth, roots first.

    Raises:
        BadInput: a parent does not come before its child.
    """
    if np.any(parent >= np.arange(len(parent))):
        raise BadInput("a tree's nodes come after their parents", remedy="Number them in order of their making.")
    out, now = [], np.flatnonzero(parent < 0)
    order = np.argsort(parent, kind="stable")
    sorted_parents = parent[order]
    while len(now):
        out.append(now)
        low, high = np.searchsorted(sorted_parents, now), np.searchsorted(sorted_parents, now, "right")
        counts = high - low
        offsets = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        now = order[np.repeat(low, counts) + offsets]
    return out


def weights(tree: Tree, baseline: Baseline = "sibling", normalise: bool = True) -> Weights:
    """Token weights of every edge; trees whose raw outcomes are all alike get zeros.

    ``group``: the sum over the leaves below of (r - mean) over the number of leaves (specs/E162 section 3, step 8: GRPO
    over leaves, prefixes not doubled). ``leave-out``: r minus the mean of all other leaves instead (RLOO). ``sibling``:
    V(child) minus the mean V of the other draws at the same place, V backed up as the mean over draws, times the
    estimated chance of coming there; the only draw of a place carries on the advantage of the edge before it.
    Adding branches below a place then changes neither its weight nor, in expectation, its value.

    Args:
        normalise: divide by the standard deviation of the tree's leaves.
    """
    by_depth = levels(tree.parent)
    root = np.arange(len(tree.parent))
    for level in by_depth[1:]:
        root[level] = root[tree.parent[level]]
    value, reach = _values(tree, by_depth)
    n, mean = tree.leaves[root], tree.total[root] / np.maximum(tree.leaves[root], 1)
    spread = np.sqrt(np.maximum(tree.square[root] / np.maximum(n, 1) - mean**2, 0.0))
    if baseline == "sibling":
        advantage = _against_siblings(tree, by_depth, value)
        weight = reach * advantage
    elif baseline in ("group", "leave-out"):
        excess = tree.total - tree.leaves * mean
        if baseline == "leave-out":
            excess = excess * n / np.maximum(n - 1, 1)
        advantage, weight = excess / np.maximum(tree.leaves, 1), excess / np.maximum(n, 1)
    else:
        raise BadInput(f"no baseline is called {baseline!r}", remedy="Known: sibling, leave-out, group.")
    live = (spread > 1e-9) & (tree.parent >= 0)
    scale = np.where(live, 1 / np.where(spread > 1e-9, spread, 1.0) if normalise else 1.0, 0.0)
    return Weights(weight * scale, advantage * scale, reach, value)


def _values(tree: Tree, by_depth: list[Ints]) -> tuple[F64, F64]:
    """Values backed up over draws, and the chance of coming to each node by the share of draws on the way."""
    size = len(tree.parent)
    drawn, summed = np.zeros(size), np.zeros(size)
    value = tree.total / np.maximum(tree.leaves, 1)
    for level in reversed(by_depth):
        inner = level[drawn[level] > 0]
        value[inner] = summed[inner] / drawn[inner]
        mother = tree.parent[level]
        if mother[0] >= 0:
            np.add.at(drawn, mother, tree.draws[level])
            np.add.at(summed, mother, tree.draws[level] * value[level])
    reach = np.ones(size)
    for level in by_depth[1:]:
        mother = tree.parent[level]
        reach[level] = reach[mother] * tree.draws[level] / np.maximum(drawn[mother], 1)
    return value, reach


def _against_siblings(tree: Tree, by_depth: list[Ints], value: F64) -> F64:
    """V(child) minus the mean V of the other draws at its place. The only draw there carries on its parent's edge."""
    advantage = np.zeros(len(value))
    drawn = np.zeros(len(value))
    edges = tree.parent >= 0
    np.add.at(drawn, tree.parent[edges], tree.draws[edges])
    for level in by_depth[1:]:
        mother = tree.parent[level]
        n = drawn[mother]
        # one draw of the child against the n - 1 others at its place: n / (n - 1) times the gap to their mean
        apart = n / np.maximum(n - 1, 1) * (value[level] - value[mother])
        advantage[level] = np.where(n > 1, apart, advantage[mother])
    return advantage

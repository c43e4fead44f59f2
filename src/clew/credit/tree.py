"""Advantages on rollout trees: what each edge of a tree earned, each of its tokens counted once.

An edge is the stretch of tokens that leads into a node. Prefixes are shared, so a token has one weight however many
leaves lie below it. Leaves that were branched late are not independent draws from the policy: where a place was tried
often, it has more leaves than its share. ``sibling`` undoes that; ``group`` and ``leave-out`` take leaves as they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.reading import Grouped, Record, RecordGroup
from clew.core.records import Annotation, Call, Cursor
from clew.core.values import F32
from clew.credit.steps import as_groups
from clew.store.protocol import stamped

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


@dataclass(frozen=True, slots=True)
class TreeCredit:
    """What ``tree`` found for some groups; ``annotations`` as a trainer reads them.

    runs: leaves. edges: stretches of tokens between forks. live, dead: groups with and without two different
    raw outcomes.
    """

    method: str
    params: Mapping[str, Any]
    digest: str
    runs: int
    edges: int
    live: int
    dead: int
    values: tuple[Annotation, ...]

    def annotations(self) -> Sequence[Annotation]:
        """One row per own ask of each run, target ``tokens``: a value per sampled token, NaN elsewhere."""
        return self.values

    def __repr__(self) -> str:
        return f"<TreeCredit {self.method} {self.edges} edges, {self.live} groups with a signal, {self.dead} without>"


class Stretch(NamedTuple):
    """The sampled tokens ``start`` up to ``stop`` of one ask that lie on one edge, counted within the reply's ids."""

    call: Call
    start: int
    stop: int
    node: int


def tree(
    groups: Grouped, *, baseline: Baseline = "leave-out", normalise: bool = True, store: bool = True, name: str = "tree"
) -> TreeCredit:
    """Advantages of groups grown by forks, each sampled token once; a group of independent runs is a flat tree.

    A token's value is its edge's weight times the number of the tree's leaves, so that on a flat tree it is the run's
    own advantage. Undecided leaves (no reward) count nowhere. See ``weights`` for the baselines; leave-out learnt most
    in papers/E162_uucb.

    Raises:
        BadInput: no such baseline, or a run has no token ids.
    """
    params = {"baseline": baseline, "normalise": normalise}
    digest = value_digest(params).hex()
    out, edges, live = list[Annotation](), 0, 0
    listed = as_groups(groups)
    for group in listed:
        shape, stretches = of_group(group)
        edges += len(shape.parent) - 1
        found = weights(shape, baseline, normalise)
        if found.weight.any():
            live += 1
            value = np.where(shape.draws > 0, found.weight * shape.leaves[0], np.nan)
            out += _rows(group, stretches, value, name, digest)
    if store and listed:
        listed[0].store.annotate(stamped(out))
        listed[0].store.commit()
    return TreeCredit(name, params, digest, sum(map(len, listed)), edges, live, len(listed) - live, tuple(out))


def of_group(group: RecordGroup) -> tuple[Tree, list[Stretch]]:
    """A group's runs as one tree, node 0 its root, and which sampled tokens lie on each edge.

    Runs that were forked from none of the group's start at the root.
    """
    runs = {run.id: run for run in group}
    cuts: dict[str, set[Spot]] = {run: set() for run in runs}
    starts: dict[str, tuple[str, Spot] | None] = {}
    for run in group:
        starts[run.id] = _home(runs, run)
        if (start := starts[run.id]) is not None:
            cuts[start[0]].add(start[1])
    parent, ends, stretches = [-1], dict[str, int](), list[Stretch]()
    at: dict[tuple[str, Spot], int] = {}
    for run in group:
        start = starts[run.id]
        node = 0 if start is None else at[start]
        left = sorted(cuts[run.id])
        for call in run.calls[run.shared :]:
            if call.kind != "ask" or not call.node_out:
                continue
            first = call.forced
            last = first + (len(call.logprobs) if call.logprobs is not None else 0)
            while left and left[0] < (call.seq, last):
                spot = left.pop(0)
                stretches.append(Stretch(call, call.head + first, call.head + spot[1], len(parent)))
                parent.append(node)
                first, node = spot[1], len(parent) - 1
                at[run.id, spot] = node
            stretches.append(Stretch(call, call.head + first, call.head + last, len(parent)))
        for spot in left:  # forks after the last token: their edges leave the end
            at[run.id, spot] = len(parent)
        parent.append(node)
        ends[run.id] = len(parent) - 1
    return _tree(group, parent, ends), stretches


Spot = tuple[int, int]  # seq of an ask, token of its reply


def _home(runs: Mapping[str, Record], run: Record) -> tuple[str, Spot] | None:
    """The run of the group whose own tokens the fork was cut from, and where; None for the root."""
    at = run.parent
    while at is not None and at.run in runs:
        owner = runs[at.run]
        before = owner.parent
        if before is not None and (at.seq, at.token) <= (before.seq, before.token):
            at = Cursor(before.run, at.seq, at.token)
            continue
        first = next((c.seq for c in owner.calls if c.kind == "ask"), 0)
        return None if before is None and (at.seq, at.token) <= (first, 0) else (at.run, (at.seq, at.token))
    return None


def _tree(group: RecordGroup, parent: list[int], ends: Mapping[str, int]) -> Tree:
    leaves, total, square = (np.zeros(len(parent)) for _ in range(3))
    for run, reward in zip(group, group.rewards, strict=True):
        if np.isfinite(reward):
            node = ends[run.id]
            while node >= 0:
                leaves[node], total[node], square[node] = (
                    leaves[node] + 1,
                    total[node] + reward,
                    square[node] + reward**2,
                )
                node = parent[node]
    draws = (leaves > 0).astype(float)
    draws[0] = 0.0
    return Tree(np.array(parent), draws, leaves, total, square)


def _rows(group: RecordGroup, stretches: list[Stretch], value: F64, name: str, digest: str) -> list[Annotation]:
    """One row of token values per ask."""
    filled: dict[tuple[str, int], F32] = {}
    for call, start, stop, node in stretches:
        if call.logprobs is None:
            remedy = "Value steps in place of tokens, by g2po or grpo; or grow trees with a model that gives token ids."
            raise BadInput(f"ask {call.run}@{call.seq} has no token ids", remedy=remedy)
        size = call.head + call.forced + len(call.logprobs)
        row = filled.setdefault((call.run, call.seq), np.full(size, np.nan, np.float32))
        row[start:stop] = value[node]
    return [
        Annotation("tokens", name, None, run, seq, b"", "1", digest, group.id, row)
        for (run, seq), row in filled.items()
        if np.isfinite(row).any()
    ]

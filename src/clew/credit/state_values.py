"""What a state of the merged graph is worth: four estimates of one quantity, and the distance to success.

The quantity is the discounted return-to-go U(s) = E[sum_k gamma^k r_{t+k} | s_t = s], 0 once the run has ended; a
run cut by its limits counts as ended. Every function returns two float64 [n] columns: the value of each row's state
and of the state after it. NaN means that nothing is known. With a sparse reward R, G2PO's node value
V(G) = mean of gamma^(T-t) R (arXiv 2606.22995) is gamma * U.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from clew.credit.steps import F64, Ints, Steps

Value = Literal["sample", "mean", "others", "solve"]


def values(steps: Steps, kind: Value, gamma: float, lam: float = 1.0) -> tuple[F64, F64]:
    """U of each row's state and of the next one, by one of four estimates.

    ``sample``: the row's own return. ``mean``: over all occurrences of the state. ``others``: over the occurrences in
    other runs of the group. ``solve``: between occurrence mean (``lam`` 0) and Bellman solve (``lam`` 1).
    """
    if kind == "sample":
        own = steps.returns(gamma)
        return own, _after(steps, own)
    if kind == "others":
        return _others_mean(steps, gamma)
    per_node = occurrence_mean(steps, gamma) if kind == "mean" or lam == 0 else solve(steps, gamma, lam)
    cur = per_node[steps.state]
    return cur, _after(steps, cur)


def _after(steps: Steps, cur: F64) -> F64:
    """The next row's number in the same run; 0 after the last."""
    return np.where(steps.last, 0.0, np.concatenate([cur[1:], [0.0]])[: len(cur)])


def occurrence_mean(steps: Steps, gamma: float) -> F64:
    """Mean return-to-go over all visits of a node, revisits included; float64 [nodes], NaN where never left."""
    count = np.bincount(steps.state, minlength=steps.nodes)
    total = np.bincount(steps.state, steps.returns(gamma), minlength=steps.nodes)
    with np.errstate(invalid="ignore"):
        mean: F64 = total / count
    return mean


def _others_mean(steps: Steps, gamma: float) -> tuple[F64, F64]:
    """Leave-own-trajectory-out mean: removes the self-inclusion of G2PO's node value (specs/E165 quirk Q5)."""
    own = steps.returns(gamma)
    count = np.bincount(steps.state, minlength=steps.nodes)
    total = np.bincount(steps.state, own, minlength=steps.nodes)
    _, cell = np.unique(steps.state * len(steps.runs) + steps.run, return_inverse=True)
    mine_count, mine_total = np.bincount(cell), np.bincount(cell, own)
    left = count[steps.state] - mine_count[cell]
    with np.errstate(invalid="ignore", divide="ignore"):
        cur = np.where(left > 0, (total[steps.state] - mine_total[cell]) / left, np.nan)
    return cur, _after(steps, cur)


def solve(steps: Steps, gamma: float, lam: float = 1.0) -> F64:
    """Values that satisfy U = r + gamma P U on the empirical merged graph; float64 [nodes].

    ``lam`` in [0, 1] sets how much is bootstrapped: the fixed point of U(s) = mean over visits of the TD(1 - lam)
    return, that is tabular LSTD with eligibility decay 1 - lam (Boyan 2002, 10.1023/A:1017936530646). 1 is the
    Bellman solve, which pools what follows a state over all visits and so needs Markov nodes; 0 is the occurrence mean.
    Costs one dense solve of [nodes, nodes] per group.
    """
    out = np.full(steps.nodes, np.nan)
    reward = _traced(steps, steps.reward, gamma * (1.0 - lam))
    starts = np.searchsorted(steps.group, np.arange(len(steps.groups) + 1))
    first = np.searchsorted(steps.home, np.arange(len(steps.groups) + 1))
    for g in range(len(steps.groups)):
        rows = slice(starts[g], starts[g + 1])
        size = first[g + 1] - first[g]
        if starts[g] == starts[g + 1]:
            continue
        state = steps.state[rows] - first[g]
        follow = _pooled(steps, rows, state, size, gamma, lam)
        count = np.bincount(state, minlength=size)
        seen = count > 0
        matrix = np.diag(count.astype(np.float64)) - follow
        known = np.linalg.solve(matrix[np.ix_(seen, seen)], np.bincount(state, reward[rows], minlength=size)[seen])
        out[first[g] + np.flatnonzero(seen)] = known
    return out


def _traced(steps: Steps, x: F64, decay: float) -> F64:
    """y_t = x_t + decay * y_{t+1} along each run."""
    return steps.with_rewards(x, steps.outcome).returns(decay) if decay else x


def _pooled(steps: Steps, rows: slice, state: Ints, size: int, gamma: float, lam: float) -> F64:
    """Weight with which each node's summed return reads each node's value; float64 [size, size]."""
    follow = ~steps.last[rows]
    after = np.concatenate([state[1:], [0]])
    if lam == 1.0:
        moves = np.bincount(state[follow] * size + after[follow], minlength=size * size)
        return moves.reshape(size, size) * np.float64(gamma)
    left = steps.length[rows] - steps.t[rows]
    run = steps.run[rows]
    ahead = left[:, None] - left[None, :]  # how many steps after row i row j comes, within a run
    decay = gamma * (1.0 - lam)
    reads = np.where((run[:, None] == run[None, :]) & (ahead >= 0), decay ** np.maximum(ahead, 0), 0.0)
    reads = reads[:, follow] * (gamma * lam)
    onto = np.zeros((size, reads.shape[1]))
    np.add.at(onto, state, reads)
    total = np.zeros((size, size))
    np.add.at(total.T, after[follow], onto.T)
    return total


def distance(steps: Steps, success: np.ndarray) -> tuple[F64, F64]:
    """Fewest recorded moves to the end of a successful run, over the union of the group's runs (GraphGPO, 2605.26684).

    success: bool [n], the row's run succeeded. Returns float64 [n] columns for the row's state and the state after it:
    0 after the last step of a successful run; unreachable is one more than the largest finite distance of the group;
    NaN in groups without success.
    """
    arrives = steps.last & success
    dist = np.full(steps.nodes, np.inf)
    edge = ~arrives & (steps.next >= 0)
    source, target = steps.state[edge], steps.next[edge]
    dist[steps.state[arrives]] = 1.0
    step = 1.0
    while True:
        reached = source[(dist[target] == step) & (dist[source] == np.inf)]
        if not len(reached):
            break
        step += 1.0
        dist[reached] = step
    far = np.full(len(steps.groups), -np.inf)
    finite = np.isfinite(dist)
    np.maximum.at(far, steps.home[finite], dist[finite])
    dist = np.where(finite, dist, far[steps.home] + 1.0)
    dist[~np.isfinite(dist)] = np.nan
    beyond = far[steps.group] + 1.0
    after = np.where(steps.next >= 0, dist[steps.next], np.where(np.isfinite(beyond), beyond, np.nan))
    return dist[steps.state], np.where(arrives, 0.0, after)

"""The multigraph path-star of specs/E163 section 2 as a finite Markov chain, and its exact solution.

source - fork; W branches of K diamonds; diamond j is two nodes l_j, r_j joined by L parallel edges; single edges
fork - l_0, r_j - l_{j+1}, r_{K-1} - leaf. One leaf is the target. A state is the directed edge just traversed, which
gives four families of states per diamond, and one state at the fork:

    c_j at l_j moving outward     a_j at r_j moving outward     b_j at r_j returning     d_j at l_j returning

Each has a desired move (outward for c and a, back for b and d) and another. A policy is the chance q of the desired
move, float64 [4, K] in the order of FAMILIES, equal in all branches since the target cannot be seen. In logits g
(float64 [4, K], zero for the uniform walker) q = sigma(g + ln L) where the desired move has L parallel edges (c, b) and
sigma(g - ln L) where it has one (a, d).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
FAMILIES = "cabd"
C, A, B, D = range(4)
FORK = 0
OUTWARD = (C, A)


@dataclass(frozen=True, slots=True)
class Graph:
    """W branches, K diamonds, L parallel edges."""

    branches: int
    diamonds: int
    parallel: int

    @property
    def tilt(self) -> F64:
        """Logits of the uniform walker, float64 [4, 1]: odds of the desired move are L for c, b and 1/L for a, d."""
        return np.log(self.parallel) * np.array([[1.0], [-1.0], [1.0], [-1.0]])

    def policy(self, logits: F64 | None = None) -> F64:
        """Chances of the desired move, float64 [4, K]; without ``logits`` those of the uniform walker."""
        g = np.zeros((4, self.diamonds)) if logits is None else logits
        chances: F64 = 1.0 / (1.0 + np.exp(-(g + self.tilt)))
        return chances

    @property
    def edges(self) -> I64:
        """Edges of the desired and of the other move, int64 [4, 2]."""
        many = self.parallel
        return np.array([[many, 1], [1, many], [many, 1], [1, many]])

    @property
    def best(self) -> int:
        """H* = (2W - 1)(2K + 1) + 1, the steps of the walker whose four families are perfect (specs/E163, 3a)."""
        return (2 * self.branches - 1) * (2 * self.diamonds + 1) + 1

    @property
    def states(self) -> int:
        """States of the chain of one target and one wrong branch: the fork and 4 K in each of the two."""
        return 1 + 8 * self.diamonds


@lru_cache(maxsize=32)
def moves(graph: Graph) -> tuple[I64, I64]:
    """Where each move leads and how many edges it takes, int64 [states, 2] (column 0 the desired move) each.

    State 1 + 4 (K x + j) + f is family f of diamond j, x = 0 in the target branch and 1 in a wrong one. -1 is the
    target. The fork's row leads into the target and a wrong branch; its chances are 1/W and 1 - 1/W. A wrong leaf has
    one edge, so reaching it and coming back is one move of two steps.
    """
    k = graph.diamonds
    to, steps = np.zeros((graph.states, 2), np.int64), np.ones((graph.states, 2), np.int64)

    def at(x: int, j: int, family: int) -> int:
        return 1 + 4 * (k * x + j) + family

    to[FORK] = at(0, 0, C), at(1, 0, C)
    for x in range(2):
        for j in range(k):
            outward, cost = (at(x, j + 1, C), 1) if j + 1 < k else (-1, 1) if x == 0 else (at(x, j, B), 2)
            back = at(x, j - 1, B) if j else FORK
            to[at(x, j, C)] = at(x, j, A), back
            to[at(x, j, A)] = outward, at(x, j, D)
            to[at(x, j, B)] = at(x, j, D), outward
            to[at(x, j, D)] = back, at(x, j, A)
            steps[at(x, j, A), 0] = steps[at(x, j, B), 1] = cost
    return to, steps


def chances(graph: Graph, policy: F64) -> F64:
    """Chance of each move in each state, float64 [states, 2]."""
    desired = np.concatenate([[1.0 / graph.branches], np.tile(policy.T.ravel(), 2)])
    return np.stack([desired, 1.0 - desired], axis=1)


def _rows(graph: Graph, policy: F64) -> tuple[F64, F64, F64]:
    """P among the transient states [states, states], chance of the target [states], mean steps of a move [states]."""
    (to, steps), chance = moves(graph), chances(graph, policy)
    inner, target = np.zeros((graph.states, graph.states)), np.where(to < 0, chance, 0.0).sum(axis=1)
    for move in range(2):
        inside = to[:, move] >= 0
        np.add.at(inner, (np.flatnonzero(inside), to[inside, move]), chance[inside, move])
    return inner, target, (chance * steps).sum(axis=1)


def hitting(graph: Graph, policy: F64) -> F64:
    """Expected steps to the target from each state, float64 [states]."""
    return eliminate(*_rows(graph, policy))


def eliminate(inner: F64, target: F64, steps: F64) -> F64:
    """Expected steps to the target of any chain, float64 [S]; changes its arguments.

    States are eliminated from the last to the first without a subtraction (Grassmann, Taksar and Heyman 1985), which
    keeps full relative accuracy where H reaches 1e14 and a linear solver has two or three digits right.

    Args:
        inner: chances among the S transient states [S, S]. target: chance of the target [S]. steps: mean steps of a
            move [S].
    """
    size = len(steps)
    leaves = np.ones(size)
    for n in range(size - 1, 0, -1):
        leaves[n] = inner[n, :n].sum() + target[n]
        share = inner[:n, n] / leaves[n]
        inner[:n, :n] += np.outer(share, inner[n, :n])
        target[:n] += share * target[n]
        steps[:n] += share * steps[n]
    h = np.empty(size)
    h[0] = steps[0] / target[0]
    for n in range(1, size):
        h[n] = (steps[n] + inner[n, :n] @ h[:n]) / leaves[n]
    return h


def expected_steps(graph: Graph, policy: F64) -> float:
    """H, expected steps from the source: one to the fork, then as from there."""
    return 1.0 + float(hitting(graph, policy)[FORK])


def gradient(graph: Graph, policy: F64) -> tuple[F64, float]:
    """dJ/dg for J = 1 - H, float64 [4, K], and H.

    dJ/dg_{x,j} = sum over branches of Occ(state) q (1 - q) (h_other - h_desired), with Occ the expected visits and h
    the expected steps after the move (specs/E163, 3a). By a linear solver: for policies of moderate H.
    """
    inner, _, steps = _rows(graph, policy)
    left = np.eye(graph.states) - inner
    h = np.linalg.solve(left, steps)
    start = np.zeros(graph.states)
    start[FORK] = 1.0
    visits = np.linalg.solve(left.T, start)
    to, cost = moves(graph)
    after = cost + np.where(to >= 0, h[to], 0.0)
    gain = (visits * (after[:, 1] - after[:, 0]))[1:].reshape(2, graph.diamonds, 4).sum(axis=0).T
    return policy * (1.0 - policy) * gain, 1.0 + float(h[FORK])


def golden(graph: Graph) -> F64:
    """The policy that golden paths lead to in the limit: c and a perfect, b and d as in the uniform walker."""
    policy = graph.policy()
    policy[list(OUTWARD)] = 1.0
    return policy


def branch_exit(graph: Graph) -> float:
    """Steps to leave a wrong branch under ``golden``, by the published recurrence (specs/E163, 3a).

    g_0 = 1; f_i = ((L+1)/L) g_{i-1} + (2i-1)/L + 1; g_i = (L+1) f_i + 2iL + 1, where g_K is from the leaf to the fork.
    """
    many, leave = graph.parallel, 1.0
    for i in range(1, graph.diamonds + 1):
        there = (many + 1) / many * leave + (2 * i - 1) / many + 1
        leave = (many + 1) * there + 2 * i * many + 1
    return leave

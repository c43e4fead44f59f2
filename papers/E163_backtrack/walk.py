"""Rollouts of many walkers side by side, and what is learnt from them: sampled policy gradients, maximum likelihood.

A logit is numbered family * K + diamond, so ``logits.ravel()[number]``.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from clew.worlds.loops import loop_erase
from clew.worlds.maze import FORK as FORK_NODE
from clew.worlds.maze import Edge, Star, wander
from papers.E163_backtrack.chain import F64, FORK, I64, Graph, chances, expected_steps, moves

Estimator = Literal["togo", "togo-state", "trajectory"]


@dataclass(frozen=True, slots=True)
class Walks:
    """Choices of N walkers; M choices in all, the fork's left out since nothing is learnt there.

    logit: int64 [M], the logit that chose. desired: bool [M]. walker: int64 [M]. time: int64 [M], steps done before.
    length: int64 [N], steps walked. arrived: bool [N].
    """

    logit: I64
    desired: npt.NDArray[np.bool_]
    walker: I64
    time: I64
    length: I64
    arrived: npt.NDArray[np.bool_]


def walk(graph: Graph, policy: F64, n: int, horizon: int, rng: np.random.Generator) -> Walks:
    """``n`` walks from the source until the target, or until ``horizon`` steps are done."""
    (to, cost), first = moves(graph), chances(graph, policy)[:, 0]
    k = graph.diamonds
    logit = np.array([-1, *((s % 4) * k + s // 4 % k for s in range(8 * k))])
    walker, state, time = np.arange(n), np.full(n, FORK), np.ones(n, np.int64)
    length, arrived = np.full(n, horizon), np.zeros(n, bool)
    seen: list[tuple[I64, I64, I64, I64]] = []
    while len(walker):
        move = (rng.random(len(walker)) >= first[state]).astype(np.int64)
        seen.append((walker, logit[state], move, time))
        time = time + cost[state, move]
        state = to[state, move]
        there = state < 0
        arrived[walker[there]] = True
        length[walker[there]] = time[there]
        going = ~there & (time < horizon)
        if not going.all():
            walker, state, time = walker[going], state[going], time[going]
    walkers, logits, other, times = (np.concatenate(column) for column in zip(*seen, strict=True))
    chose = logits >= 0
    return Walks(logits[chose], other[chose] == 0, walkers[chose], times[chose], length, arrived)


def slope(graph: Graph, walks: Walks, policy: F64, estimator: Estimator, bare: bool = False) -> F64:
    """An ascent direction of the reward from rollouts alone, float64 [4, K].

    ``togo``: advantage = reward to go less its mean over the batch at that logit, divided by the batch's deviation;
    the gradient at a logit is the mean over its visits (specs/E163, section 7, sampled). ``togo-state``: divided by the
    deviation at that logit instead, the other reading of "normalised". ``trajectory``: the whole run's return,
    normalised over the batch, on every choice (as GRPO has it), summed over visits.

    Args:
        bare: the reward is 1 on arrival and nothing else, in place of minus the steps.
    """
    reward = walks.arrived.astype(np.float64) if bare else -walks.length.astype(np.float64)
    share = walks.desired - policy.ravel()[walks.logit]

    def total(values: F64) -> F64:
        return np.bincount(walks.logit, values, minlength=policy.size)

    if estimator == "trajectory":
        gain = _unit(reward - reward.mean(), reward.std())
        return total(gain[walks.walker] * share).reshape(policy.shape)
    visits = np.maximum(total(np.ones(len(share))), 1.0)
    gain = reward[walks.walker] + (0.0 if bare else walks.time)
    gain = gain - (total(gain) / visits)[walks.logit]
    spread = gain.std() if estimator == "togo" else np.sqrt(total(gain**2) / visits)[walks.logit]
    return (total(_unit(gain, spread) * share) / visits).reshape(policy.shape)


def _unit(gain: F64, spread: F64) -> F64:
    """``gain / spread``, zero where nothing varies."""
    found: F64 = gain / np.where(spread > 0, spread, 1.0)
    return found


class Adam:
    """Adam's step (Kingma and Ba 2014, arXiv 1412.6980, algorithm 1), ascending."""

    def __init__(self, rate: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        self.rate, self.betas, self.t = rate, betas, 0
        self.m: F64 = np.zeros(())
        self.v: F64 = np.zeros(())

    def step(self, gradient: F64) -> F64:
        one, two = self.betas
        self.t += 1
        self.m = one * self.m + (1 - one) * gradient
        self.v = two * self.v + (1 - two) * gradient**2
        shrunk: F64 = self.m / (1 - one**self.t) / (np.sqrt(self.v / (1 - two**self.t)) + 1e-8)
        return self.rate * shrunk


@dataclass(frozen=True, slots=True)
class Learnt:
    """Per iteration: exact H of the policy, steps walked so far, share of walks that arrived, whether all agreed."""

    h: list[float]
    steps: list[int]
    arrived: list[float]
    silent: list[bool]


def learn(
    graph: Graph,
    seed: int,
    iterations: int,
    batch: int = 64,
    horizon: int = 4000,
    estimator: Estimator = "togo",
    rate: float = 0.05,
    sign: bool = False,
    bare: bool = False,
) -> Learnt:
    """Reinforcement learning from rollouts alone; entry 0 is the untrained walker. ``sign``: sign steps, not Adam's."""
    rng, logits, adam = np.random.default_rng(seed), np.zeros((4, graph.diamonds)), Adam(rate)
    found = Learnt([expected_steps(graph, graph.policy())], [0], [], [])
    for _ in range(iterations):
        policy = graph.policy(logits)
        walks = walk(graph, policy, batch, horizon, rng)
        up = slope(graph, walks, policy, estimator, bare)
        logits = logits + (rate * np.sign(up) if sign else adam.step(up))
        found.h.append(expected_steps(graph, graph.policy(logits)))
        found.steps.append(found.steps[-1] + int(walks.length.sum()))
        found.arrived.append(float(walks.arrived.mean()))
        found.silent.append(bool(walks.arrived.all() or not walks.arrived.any()))
    return found


def traces(graph: Graph, policy: F64, n: int, seed: int) -> Iterator[list[Edge]]:
    """``n`` walks as edges, each towards an exit in a random branch."""
    star, rng = Star(graph.branches, graph.diamonds, graph.parallel), random.Random(seed)
    for _ in range(n):
        yield wander(star, rng.randrange(graph.branches), policy.tolist(), rng)


def erased(path: list[Edge]) -> list[Edge]:
    """A walk with every loop cut out."""
    return [path[i] for i in loop_erase([path[0].node, *(e.to for e in path)])]


def counts(graph: Graph, paths: Iterable[list[Edge]]) -> F64:
    """How often walks made the desired and the other move, float64 [4, K, 2]."""
    star, found = Star(graph.branches, graph.diamonds, graph.parallel), np.zeros((4, graph.diamonds, 2))
    for path in paths:
        for last, edge in pairwise(path):
            depth, leaf = star.depth(last.to), 2 * graph.diamonds + 1
            if last.to == FORK_NODE or depth == leaf:
                continue
            outward, on = depth > star.depth(last.node), star.depth(edge.to) > depth
            family = (0 if outward else 3) if depth % 2 else (1 if outward else 2)
            found[family, (depth - 1) // 2, int(on != outward)] += 1
    return found


def fit(graph: Graph, paths: Iterable[list[Edge]]) -> F64:
    """The maximum-likelihood policy of walks, each state seen once more by the uniform walker: float64 [4, K].

    For the desired move of a family with e of its L + 1 edges, q = (n_desired + e / (L + 1)) / (n + 1): add-one
    smoothing that gives back the uniform walker where nothing was seen (specs/E163, D1).
    """
    seen = counts(graph, paths) + (graph.edges / (graph.parallel + 1))[:, None, :]
    found: F64 = seen[..., 0] / seen.sum(axis=-1)
    return found

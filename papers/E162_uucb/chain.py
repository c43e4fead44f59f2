"""Fork chains: prompts whose chance of success is known exactly, and rollout trees grown on many of them side by side.

A chain has D tokens. At F places of it lie forks with four options, of which one keeps the answer right; elsewhere the
token slips with chance .01. The reward is 1 where no token went wrong. A wrong prefix looks like a right one
(specs/E162 section 6).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.harness.trees.allocator import Standings
from clew.harness.trees.selectors import SELECTORS, Candidates, Selector, choose

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
OPTIONS, SLIP = 4, 0.01
CLASSES = {"easy": 1, "mid": 2, "hard": 3, "vhard": 4}  # forks


class Chains(NamedTuple):
    """Prompts [lanes]: ``chance`` of each option [lanes, depth, 4], ``right`` option [lanes, depth], ``fork`` bool."""

    chance: F64
    right: I64
    fork: NDArray[np.bool_]

    @property
    def values(self) -> F64:
        """Chance [lanes, depth + 1] that all from a place on goes right; column 0 is the prompt's success."""
        right = np.take_along_axis(self.chance, self.right[..., None], 2)[..., 0]
        tail = np.cumprod(right[:, ::-1], axis=1)[:, ::-1]
        return np.concatenate([tail, np.ones((len(right), 1))], axis=1)

    @property
    def entropy(self) -> F64:
        """Of the next token, in nats [lanes, depth]."""
        p = self.chance
        return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=2)


def chains(lanes: int, forks: int, depth: int = 16, seed: int = 0) -> Chains:
    rng = np.random.default_rng([seed, forks, depth])
    fork = rng.random((lanes, depth)).argsort(axis=1) < forks
    plain = np.array([1 - SLIP, SLIP, 0.0, 0.0])
    chance = np.where(fork[..., None], rng.dirichlet(np.full(OPTIONS, 2.0), (lanes, depth)), plain)
    right = np.where(fork, rng.integers(0, OPTIONS, (lanes, depth)), 0)
    return Chains(chance, right, fork)


class Forest:
    """One tree per chain, as arrays [lanes, nodes]; equal prefixes are one node.

    parent, token, depth: of each node. alive: whether all of its prefix is right. visits, wins: of rollouts through
    it. tries: rollouts begun there. draws: times the token before it was decoded.
    used: tokens decoded per lane, by which the budget is kept. leaves, won: rollouts and successes per lane.
    """

    def __init__(self, prompts: Chains, room: int, seed: int = 0) -> None:
        self.prompts = prompts
        lanes, self.length = prompts.right.shape
        self.parent, self.token, self.depth = (np.full((lanes, room), -1, np.int64) for _ in range(3))
        self.alive = np.zeros((lanes, room), bool)
        self.child = np.full((lanes, room, OPTIONS), -1, np.int64)
        self.visits, self.wins, self.tries, self.draws = (np.zeros((lanes, room)) for _ in range(4))
        self.depth[:, 0], self.alive[:, 0] = 0, True
        self.size, self.used = np.ones(lanes, np.int64), np.zeros(lanes, np.int64)
        self._rng = np.random.default_rng([seed, 1])
        self._cumulated = prompts.chance.cumsum(axis=2)
        self._entropy = np.concatenate([prompts.entropy, np.zeros((lanes, 1))], axis=1)
        self._width = np.where(np.pad(prompts.fork, ((0, 0), (0, 1))), float(OPTIONS), 2.0)

    @property
    def leaves(self) -> F64:
        return self.visits[:, 0]

    @property
    def won(self) -> F64:
        return self.wins[:, 0]

    @property
    def mixed(self) -> NDArray[np.bool_]:
        """Whether a lane's raw outcomes differ, so that its group has a policy gradient."""
        return (self.won > 0) & (self.won < self.leaves)

    @property
    def spread(self) -> F64:
        """2 sqrt(q (1 - q)) per lane, the group's standard deviation scaled to at most 1."""
        q = self.won / np.maximum(self.leaves, 1)
        return np.asarray(2 * np.sqrt(q * (1 - q)))

    def expand(self, lanes: I64, nodes: I64) -> None:
        """Sample one continuation to the end below ``nodes`` of ``lanes`` (each lane once) and back it up."""
        lane, at = lanes, nodes.copy()
        self.tries[lane, at] += 1
        self.used[lane] += self.length - self.depth[lane, at]
        for _ in range(self.length):
            go = self.depth[lane, at] < self.length
            if not go.any():
                break
            where, now = lane[go], at[go]
            depth = self.depth[where, now]
            drawn = self._rng.random(len(where))[:, None]
            token = np.minimum((drawn > self._cumulated[where, depth]).sum(axis=1), OPTIONS - 1)
            after = self.child[where, now, token]
            new = after < 0
            fresh, mother = where[new], now[new]
            place = self.size[fresh]
            self.size[fresh] += 1
            self.child[fresh, mother, token[new]] = place
            self.parent[fresh, place], self.token[fresh, place] = mother, token[new]
            self.depth[fresh, place] = depth[new] + 1
            self.alive[fresh, place] = self.alive[fresh, mother] & (token[new] == self.prompts.right[fresh, depth[new]])
            after[new] = place
            self.draws[where, after] += 1
            at[go] = after
        reward = self.alive[lane, at].astype(float)
        while len(lane):
            self.visits[lane, at] += 1
            self.wins[lane, at] += reward
            at = self.parent[lane, at]
            lane, at, reward = lane[at >= 0], at[at >= 0], reward[at >= 0]

    def candidates(self) -> Candidates:
        """Of all nodes made so far, [lanes, most nodes that a lane has]."""
        made = int(self.size.max())
        depth = np.maximum(self.depth[:, :made], 0)
        entropy, width = (np.take_along_axis(x, depth, 1) for x in (self._entropy, self._width))
        counts = (x[:, :made] for x in (self.visits, self.wins, self.tries))
        return Candidates(*counts, entropy, width, (self.length - depth).astype(float))

    def standings(self, budget: float, past: F64 | float = 0.5) -> Standings:
        inner = (self.depth >= 0) & (self.depth < self.length)
        entropy = np.where(inner, np.take_along_axis(self._entropy, np.maximum(self.depth, 0), 1), 0.0)
        mean, used = entropy.sum(axis=1) / inner.sum(axis=1), self.used / budget
        return Standings(self.leaves, self.won, mean, entropy.max(axis=1), used, np.broadcast_to(past, used.shape))

    def grow(
        self,
        how: Selector,
        tokens: I64 | float = np.inf,
        leaves: float = np.inf,
        seeds: int = 2,
        only: NDArray[np.bool_] | None = None,
    ) -> Forest:
        """Expand until no node fits what is left of ``tokens`` (per lane) or a lane has ``leaves``; greedy."""
        lanes = np.arange(len(self.used))
        going = np.ones(len(lanes), bool) if only is None else only.copy()
        budget = np.broadcast_to(np.asarray(tokens, float), (len(lanes),))
        while going.any():
            known = self.candidates()
            depth = self.depth[:, : known.cost.shape[1]]
            fits = (depth >= 0) & (depth < self.length)
            fits &= (known.cost <= (budget - self.used)[:, None]) & going[:, None] & (self.leaves < leaves)[:, None]
            noise = self._rng.random(self.depth.shape)[:, : fits.shape[1]]
            seeding = (self.leaves < seeds)[:, None]
            scores = np.where(seeding, SELECTORS["flat"](known, noise), how(known, noise))
            picked = choose(scores, fits, noise)
            going &= picked >= 0
            if going.any():
                self.expand(lanes[going], picked[going])
        return self


def grow(
    prompts: Chains, how: Selector, tokens: float = np.inf, leaves: float = np.inf, seed: int = 0, seeds: int = 2
) -> Forest:
    """A forest at a budget of decoded tokens or of leaves, the same for every prompt."""
    length = prompts.right.shape[1]
    room = 1 + int(tokens if np.isfinite(tokens) else leaves * length)
    return Forest(prompts, room, seed).grow(how, tokens, leaves, seeds)

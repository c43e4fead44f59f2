"""A small transformer that walks the maze: do shared parameters carry a retreat over from data without any?

The model reads the last two nodes and answers with the next one: the state of specs/E163 section 2b, position and
direction, has to be inferred from two names. Parameters are shared by all states, unlike in ``chain``. There are only
some 70 states, so that its whole policy is read off in one pass, H is solved and not estimated, and what was sampled
enters the losses as counts per state and move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from clew.worlds.maze import FORK, HALL, Star
from papers.E163_backtrack.chain import F64, I64, eliminate


class Walker(nn.Module):
    """Two pre-norm transformer blocks over (previous node, node) -> logits of the next node."""

    def __init__(self, nodes: int, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.names, self.places = nn.Embedding(nodes, width), nn.Parameter(torch.randn(2, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, nodes)

    def forward(self, pairs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Int64 [S, 2] -> logits [S, nodes] and the hidden state they are read from [S, width]."""
        x, mask = self.names(pairs) + self.places, torch.tensor([[False, True], [False, False]])
        for block in self.blocks:
            x = block(x, src_mask=mask)
        last = self.norm(x[:, -1])
        return self.out(last), last


@dataclass(frozen=True, slots=True)
class Floor:
    """The maze as states (previous node, node); parallel edges are one move of several lanes.

    pairs: int64 [S, 2]. lanes: float64 [S, nodes], edges to each node, 0 where none leads. to: int64 [S, nodes], the
    state that follows. family: int64 [S], 0 to 3 in the order of FAMILIES, -1 at fork and leaves. onward: bool
    [S, nodes], moves in the direction of the last.
    """

    star: Star
    pairs: I64
    lanes: F64
    to: I64
    family: I64
    onward: np.ndarray

    @classmethod
    def of(cls, star: Star) -> Floor:
        pairs = sorted({(e.node, e.to) for node in range(star.nodes) for e in star.exits(node)})
        number = {pair: i for i, pair in enumerate(pairs)}
        shape = (len(pairs), star.nodes)
        lanes, to, onward = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, bool)
        family = np.full(len(pairs), -1)
        for i, (before, here) in enumerate(pairs):
            depth, outward = star.depth(here), star.depth(here) > star.depth(before)
            for e in star.exits(here):
                lanes[i, e.to] += 1
                to[i, e.to] = number[here, e.to]
                onward[i, e.to] = (star.depth(e.to) > depth) == outward
            if here not in (HALL, FORK) and len(star.exits(here)) > 1:
                family[i] = (0 if outward else 3) if depth % 2 else (1 if outward else 2)
        return cls(star, np.array(pairs), lanes, to, family, onward)

    @property
    def start(self) -> int:
        return int(np.flatnonzero((self.pairs == (HALL, FORK)).all(axis=1))[0])

    @property
    def uniform(self) -> F64:
        found: F64 = self.lanes / self.lanes.sum(axis=1, keepdims=True)
        return found

    def keeps(self, policy: F64) -> F64:
        """Mean chance of the desired move of each family, float64 [4]."""
        kept = (policy * self.onward).sum(axis=1)
        return np.array([kept[self.family == f].mean() for f in range(4)])

    def expected_steps(self, policy: F64) -> float:
        """H from the hall, averaged over the exit's branch; policy float64 [S, nodes]."""
        size, total = len(self.pairs), 0.0
        inner = np.zeros((size, size))
        np.add.at(inner, (np.repeat(np.arange(size), self.star.nodes), self.to.ravel()), policy.ravel())
        for branch in range(self.star.branches):
            open_ = self.pairs[:, 1] != self.star.leaf(branch)
            h = eliminate(inner[np.ix_(open_, open_)], inner[np.ix_(open_, ~open_)].sum(axis=1), np.ones(open_.sum()))
            total += 1.0 + h[int(open_[: self.start].sum())]
        return total / self.star.branches

    def walk(self, policy: F64, n: int, horizon: int, rng: np.random.Generator) -> tuple[I64, I64, I64, I64, I64]:
        """``n`` walks: state, next node, walker and time of every move, int64 [M], and the length of each walk [n]."""
        cumulative = policy.cumsum(axis=1)
        walker, state = np.arange(n), np.full(n, self.start)
        goal = np.array([self.star.leaf(b) for b in rng.integers(self.star.branches, size=n)])
        length, seen = np.full(n, horizon), []
        for time in range(1, horizon):
            drawn = rng.random(len(walker)) * cumulative[state, -1]
            move = (drawn[:, None] >= cumulative[state]).sum(axis=1)
            seen.append((state, move, walker, np.full(len(walker), time)))
            going = move != goal[walker]
            length[walker[~going]] = time + 1
            walker, state = walker[going], self.to[state, move][going]
            if not len(walker):
                break
        states, moves, walkers, times = (np.concatenate(column) for column in zip(*seen, strict=True))
        return states, moves, walkers, times, length

    def counts(self, states: I64, moves: I64) -> F64:
        """How often each move was made in each state, float64 [S, nodes]."""
        size = self.lanes.size
        return np.bincount(states * self.star.nodes + moves, minlength=size).reshape(self.lanes.shape).astype(float)


def policy_of(model: Walker, floor: Floor) -> F64:
    """Chances of each node, of those that a door leads to, float64 [S, nodes]."""
    with torch.no_grad():
        logits = model(torch.as_tensor(floor.pairs))[0].double().numpy()
    weights = np.where(floor.lanes > 0, np.exp(logits - logits.max(axis=1, keepdims=True)), 0.0)
    weights = np.maximum(weights, 1e-12 * (floor.lanes > 0))
    found: F64 = weights / weights.sum(axis=1, keepdims=True)
    return found


def imitate(
    model: Walker, floor: Floor, batch: Callable[[int], F64], steps: int, rate: float = 1e-3, near: float = 0.0
) -> int:
    """Cross-entropy on counts [S, nodes], one batch a step, Adam. Gives the steps done.

    Args:
        near: end once the cross-entropy over the batch's states is within this share of the uniform walker's entropy.
    """
    adam, pairs = torch.optim.Adam(model.parameters(), rate), torch.as_tensor(floor.pairs)
    log_uniform = np.log(np.where(floor.lanes > 0, floor.uniform, 1.0))
    for step in range(steps):
        seen = batch(step)
        logp = functional.log_softmax(model(pairs)[0], dim=-1)
        if near and step % 20 == 0:
            visits = seen.sum(axis=1, keepdims=True)
            entropy = -(visits * floor.uniform * log_uniform).sum()
            cross = -(visits * floor.uniform * logp.detach().double().numpy()).sum()
            if cross <= (1 + near) * entropy:
                return step
        loss = -(torch.as_tensor(seen, dtype=torch.float32) * logp).sum() / float(seen.sum())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return steps


def reinforce(
    model: Walker,
    floor: Floor,
    iterations: int,
    rng: np.random.Generator,
    batch: int = 64,
    horizon: int = 4000,
    rate: float = 3e-4,
    settled: float = 0.0,
) -> tuple[list[float], int]:
    """S1's advantages with a value head for a baseline: H every 10 iterations, and the steps walked.

    Advantage = reward to go less the value, divided by the batch's deviation; mean over all choices of the batch, since
    the mean per state of S1 makes rare states as loud as frequent ones. The value is linear in the model's last hidden
    state and fitted to every batch by ridge regression.

    Args:
        settled: end once the mean H of 200 iterations is within this share of that of the 200 before.
    """
    adam, pairs = torch.optim.Adam(model.parameters(), rate), torch.as_tensor(floor.pairs)
    legal, curve, walked = torch.as_tensor(floor.lanes > 0), list[float](), 0
    for step in range(iterations + 1):
        policy = policy_of(model, floor)
        if step % 10 == 0:
            curve.append(floor.expected_steps(policy))
            if settled and len(curve) > 40:
                last, before = np.mean(curve[-20:]), np.mean(curve[-40:-20])
                if abs(last - before) <= settled * before:
                    break
        states, moves, walkers, times, length = floor.walk(policy, batch, horizon, rng)
        walked += int(length.sum())
        to_go = (times - length[walkers]).astype(float)
        logits, hidden = model(pairs)
        visits = np.bincount(states, minlength=len(pairs))
        mean = np.bincount(states, to_go, minlength=len(pairs)) / np.maximum(visits, 1)
        gain = to_go - value_head(hidden.detach().double().numpy(), mean, visits)[states]
        share = gain / (gain.std() + 1e-12) / len(gain)
        weight = np.bincount(states * floor.star.nodes + moves, share, minlength=floor.lanes.size)
        logp = functional.log_softmax(logits.masked_fill(~legal, -1e9), dim=-1)
        gained = (torch.as_tensor(weight.reshape(floor.lanes.shape), dtype=torch.float32) * logp).sum()
        adam.zero_grad()
        (-gained).backward()
        adam.step()
    return curve, walked


def value_head(hidden: F64, to_go: F64, visits: I64, ridge: float = 1.0) -> F64:
    """Values, float64 [S], linear in ``hidden`` [S, d], fitted to mean rewards to go, weighted by visits."""
    design = np.hstack([hidden, np.ones((len(hidden), 1))])
    weighted = design * visits[:, None]
    centre = np.average(to_go, weights=visits)
    fitted = np.linalg.solve(design.T @ weighted + ridge * np.eye(design.shape[1]), weighted.T @ (to_go - centre))
    found: F64 = centre + design @ fitted
    return found

"""Monte Carlo tree search over whole candidates: that of 2606.26453, with progressive widening and pruned dead ends.

Constants that the paper does not give are marked ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic

from clew.methods.kernels.climbing import GAIN
from clew.methods.kernels.tries import C, Proposer, S, Tries

STALE = 8  # evaluations without a gain of 1 % after which the tree search ends (ours)
EXPLORE, MIX, WIDEN = 0.7, 0.5, 0.5  # UCT constant, share of the maximum in a value, exponent of widening (ours)
REPAIRS, TRIALS = 4, 6  # failed repairs, and expansions without 2 % gain, that freeze a node (ours)


class Node(Generic[C, S]):
    """A candidate in the tree."""

    def __init__(self, candidate: C, outcome: S, parent: Node[C, S] | None, reward: float) -> None:
        self.candidate, self.outcome, self.parent = candidate, outcome, parent
        self.children: list[Node[C, S]] = []
        self.reward = reward
        self.visits, self.total, self.top = 0, 0.0, 0.0
        self.failed, self.flat = 0, 0  # repairs that failed, expansions without gain
        self.frozen = False  # a dead end, with all below it
        self.closed = False  # has no further children to try
        self.proposals: list[C] = []

    @property
    def dead(self) -> bool:
        return self.frozen or (self.closed and all(child.dead for child in self.children))

    @property
    def value(self) -> float:
        """Half the mean, half the best of what was found below."""
        return (1 - MIX) * self.total / max(1, self.visits) + MIX * self.top

    @property
    def width(self) -> int:
        """Children it may have now: more for one that is better than its parent, one (a repair) for a broken one."""
        works = self.outcome.score > 0
        better = works and (self.parent is None or self.outcome.score > self.parent.outcome.score)
        return math.ceil((3 if better else 2 if works else 1) * float(max(1, self.visits) ** WIDEN))

    def credit(self, earned: float) -> None:
        node: Node[C, S] | None = self
        while node is not None:
            node.visits += 1
            node.total += earned
            node.top = max(node.top, earned)
            node = node.parent


async def tree_search(
    tries: Tries[C, S],
    start: C,
    begin: S,
    proposer: Proposer[C, S],
    reward: Callable[[float], float],
    stale: int | None = STALE,
) -> Node[C, S]:
    """Tree search by upper confidence over whole candidates; gives the root.

    Args:
        begin: the outcome of ``start``, which is known.
        reward: of a score, from 0 to 1.
        stale: the search ends after so many evaluations without a gain of 1 %; None: only the budget ends it.
    """
    root = Node(start, begin, None, reward(begin.score))
    root.credit(root.reward)
    idle, best = 0, begin.score
    while tries.left > 0 and not root.dead and (stale is None or idle < stale):
        node = _select(root)
        candidate = await _next(node, proposer, [root.candidate, *tries.tried])
        if candidate is None:
            node.closed = True
            continue
        outcome = await tries(candidate)
        child = Node(candidate, outcome, node, reward(outcome.score))
        node.children.append(child)
        child.credit(child.reward)
        _judge(node, child)
        idle, best = (0, outcome.score) if outcome.score > 1.01 * best else (idle + 1, best)
    return root


def _select(root: Node[C, S]) -> Node[C, S]:
    """From the root to a node that may have another child, always to the child with the highest upper bound."""
    node = root
    while True:
        alive = [c for c in node.children if not c.dead]
        if not alive or not (node.closed or len(node.children) >= node.width):
            return node
        total = math.log(max(2, node.visits))
        node = max(alive, key=lambda c: c.value + EXPLORE * math.sqrt(total / c.visits))


async def _next(node: Node[C, S], proposer: Proposer[C, S], tried: list[C]) -> C | None:
    known = set(tried)
    for fresh in (False, True):  # what is left of the last proposals, then new ones
        if fresh:
            node.proposals = await proposer.propose(node.candidate, node.outcome, tried)
        while node.proposals:
            candidate = node.proposals.pop(0)
            if candidate not in known:
                return candidate
    return None


def _judge(node: Node[C, S], child: Node[C, S]) -> None:
    """Dead ends: four failed repairs in a row, or six expansions without a gain where a sibling is worth more."""
    node.failed = node.failed + 1 if child.outcome.score <= 0 else 0
    node.flat = 0 if child.outcome.score > GAIN * node.outcome.score else node.flat + 1
    siblings = [s for s in node.parent.children if s is not node] if node.parent else []
    worse = any(s.value > node.value and not s.dead for s in siblings)
    node.frozen = (node.outcome.score <= 0 and node.failed >= REPAIRS) or (node.flat >= TRIALS and worse)

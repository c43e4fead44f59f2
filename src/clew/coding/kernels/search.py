"""Searches over the builds of a kernel: random, greedy, greedy along the rules' advice, and tree search (MCTS).

All take ``evaluate``, which tries one candidate, so that they run on a machine, in a recorded run, or over a table of
times measured before. The tree search is that of 2606.26453 (complete kernels as nodes, log reward, progressive
widening, dead ends pruned); constants the paper does not give are marked ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from clew.coding.kernels.kernel import ALSO, Candidate, Space

GAIN = 1.02  # a candidate is better where it is faster by this
STALE = 8  # evaluations without a gain of 1 % after which the tree search ends (ours)
EXPLORE, MIX, WIDEN = 0.7, 0.5, 0.5  # UCT constant, share of the maximum in a value, exponent of widening (ours)
REPAIRS, TRIALS = 4, 6  # failed repairs, and expansions without 2 % gain, that freeze a node (ours)
TOGETHER = 4  # draws of values where all advice is followed at once (ours, set on the tables of fourteen kernels)
MOST = 32.0  # speed-up that earns the whole reward, where no roofline is known


class Outcome(NamedTuple):
    """What a try came to: ``speed`` over the plain build, 0 where it failed; ``advice``, moves the rules recommend."""

    speed: float
    advice: tuple[str, ...] = ()
    why: str = ""  # what was wrong, where it failed


Evaluate = Callable[[Candidate], Awaitable[Outcome]]


class Coder(Protocol):
    """Writes new candidates from one: the catalogue of transformations, or a model."""

    async def propose(self, candidate: Candidate, outcome: Outcome, tried: Sequence[Candidate]) -> list[Candidate]:
        """Candidates to try next, the best first; none of those tried."""


class Catalogue:
    """Follows the advice: all of it at once, then one option at a time, those advised first and in its order.

    At once means that every option whose move is advised changes, first to its last value, then ``TOGETHER`` times to
    values that are drawn.

    ``advised`` False: one option at a time, in random order whatever the rules say.
    """

    def __init__(self, space: Space, rng: random.Random, advised: bool = True, together: int = TOGETHER) -> None:
        self._space, self._rng, self._advised, self._draws = space, rng, advised, together

    async def propose(self, candidate: Candidate, outcome: Outcome, tried: Sequence[Candidate]) -> list[Candidate]:
        known = set(tried)
        near = [(move, c) for move, c in self._space.around(candidate) if c not in known]
        self._rng.shuffle(near)
        if not self._advised:
            return [c for _, c in near]
        moves = known_moves(outcome.advice)
        rank = {move: i for i, move in enumerate(moves)}
        near.sort(key=lambda pair: rank.get(pair[0], len(rank)))
        together = [c for c in self._together(candidate, moves) if c not in known]
        return list(dict.fromkeys([*together, *(c for _, c in near)]))

    def _together(self, candidate: Candidate, moves: Sequence[str]) -> list[Candidate]:
        """What the advice comes to where all of it is followed in one step."""
        values = {o: len(self._space.values[o]) for o, _ in candidate.choice if self._space.moves[o] in moves}
        if not values or not self._draws:
            return []
        drawn = [{o: n - 1 for o, n in values.items()}]
        drawn += [{o: self._rng.randrange(n) for o, n in values.items()} for _ in range(self._draws)]
        return [candidate._replace(choice=tuple((o, new.get(o, at)) for o, at in candidate.choice)) for new in drawn]


def known_moves(advice: Sequence[str]) -> list[str]:
    """Moves of the advice, each followed by the name that a catalogue may have for it."""
    return list(dict.fromkeys(name for move in advice for name in (move, ALSO.get(move, move))))


@dataclass
class Tries:
    """What a search has tried, in order; ``best`` so far, first of equals."""

    evaluate: Evaluate
    budget: int
    done: list[tuple[Candidate, Outcome]] = field(default_factory=list)

    @property
    def tried(self) -> list[Candidate]:
        return [candidate for candidate, _ in self.done]

    @property
    def left(self) -> int:
        return self.budget - len(self.done)

    @property
    def best(self) -> tuple[Candidate, Outcome]:
        return max(self.done, key=lambda pair: pair[1].speed)

    async def __call__(self, candidate: Candidate) -> Outcome:
        outcome = await self.evaluate(candidate)
        self.done.append((candidate, outcome))
        return outcome


async def at_random(tries: Tries, space: Space, rng: random.Random, begin: Outcome) -> None:
    """Candidates in random order, each once. ``begin`` is the plain build's outcome, which is known."""
    rest = [c for c in space.all() if c != space.start()]
    rng.shuffle(rest)
    for candidate in rest[: tries.budget]:
        await tries(candidate)


async def greedy(tries: Tries, space: Space, rng: random.Random, begin: Outcome, coder: Coder | None = None) -> None:
    """Hill climbing: try the coder's proposals one by one, move to the first that is faster by 2 %, and on from there.

    Where nothing near is better, it begins again at a random place. Without a coder: one change at a time, at random.
    """
    coder = coder or Catalogue(space, rng, advised=False)
    here, outcome, start = space.start(), begin, space.start()
    while tries.left > 0:
        moved = False
        for candidate in await coder.propose(here, outcome, [start, *tries.tried]):
            if tries.left <= 0:
                return
            found = await tries(candidate)
            if found.speed > GAIN * outcome.speed:
                here, outcome, moved = candidate, found, True
                break
        if moved:
            continue
        known = {start, *tries.tried}
        rest = [c for c in space.all() if c not in known]
        if not rest or tries.left <= 0:
            return
        here = rng.choice(rest)
        outcome = await tries(here)


async def guided(tries: Tries, space: Space, rng: random.Random, begin: Outcome, coder: Coder | None = None) -> None:
    """``greedy`` along the advice: what the rules recommend for the present build comes first, all of it at once."""
    await greedy(tries, space, rng, begin, coder or Catalogue(space, rng))


# ---- tree search ----------------------------------------------------------------------------------------------------


def reward(speed: float, most: float = MOST, linear: bool = False) -> float:
    """0 for a failure, .1 for correct but no faster, else the share of the log speed-up that can be had (ours, after
    the paper's log-reward calibration): one lucky factor of thirty must not outweigh a steady factor of three."""
    if speed <= 0:
        return 0.0
    share = speed / most if linear else math.log(max(speed, 1.0)) / math.log(most)
    return min(1.0, max(0.1, 0.1 + 0.9 * share))


class Node:
    """A built kernel in the tree."""

    def __init__(self, candidate: Candidate, outcome: Outcome, parent: Node | None, most: float, linear: bool) -> None:
        self.candidate, self.outcome, self.parent = candidate, outcome, parent
        self.children: list[Node] = []
        self.reward = reward(outcome.speed, most, linear)
        self.visits, self.total, self.top = 0, 0.0, 0.0
        self.failed, self.flat = 0, 0  # repairs that failed, expansions without gain
        self.frozen = False  # a dead end, with all below it
        self.closed = False  # has no further children to try
        self.proposals: list[Candidate] = []

    @property
    def dead(self) -> bool:
        return self.frozen or (self.closed and all(child.dead for child in self.children))

    @property
    def value(self) -> float:
        """Half the mean, half the best of what was found below."""
        return (1 - MIX) * self.total / max(1, self.visits) + MIX * self.top

    @property
    def width(self) -> int:
        """Children it may have now: more for one that is faster than its parent, one (a repair) for a broken one."""
        works = self.outcome.speed > 0
        faster = works and (self.parent is None or self.outcome.speed > self.parent.outcome.speed)
        return math.ceil((3 if faster else 2 if works else 1) * float(max(1, self.visits) ** WIDEN))

    def credit(self, earned: float) -> None:
        node: Node | None = self
        while node is not None:
            node.visits += 1
            node.total += earned
            node.top = max(node.top, earned)
            node = node.parent


async def mcts(
    tries: Tries, space: Space, rng: random.Random, begin: Outcome, coder: Coder | None = None, *, most: float = MOST,
    linear: bool = False, stale: int | None = STALE,
) -> Node:  # fmt: skip
    """Tree search by upper confidence over complete kernels; gives the root.

    ``most`` is the speed-up the roofline allows; ``stale`` ends the search after so many evaluations without gain
    (None: only the budget does); ``linear`` is the control of the log reward.
    """
    coder = coder or Catalogue(space, rng)
    root = Node(space.start(), begin, None, most, linear)
    root.credit(root.reward)
    idle, best = 0, begin.speed
    while tries.left > 0 and not root.dead and (stale is None or idle < stale):
        node = _select(root)
        candidate = await _next(node, coder, [root.candidate, *tries.tried])
        if candidate is None:
            node.closed = True
            continue
        child = Node(candidate, await tries(candidate), node, most, linear)
        node.children.append(child)
        child.credit(child.reward)
        _judge(node, child)
        idle, best = (0, child.outcome.speed) if child.outcome.speed > 1.01 * best else (idle + 1, best)
    return root


def _select(root: Node) -> Node:
    """From the root to a node that may have another child, always to the child with the highest upper bound."""
    node = root
    while True:
        alive = [c for c in node.children if not c.dead]
        if not alive or not (node.closed or len(node.children) >= node.width):
            return node
        total = math.log(max(2, node.visits))
        node = max(alive, key=lambda c: c.value + EXPLORE * math.sqrt(total / c.visits))


async def _next(node: Node, coder: Coder, tried: list[Candidate]) -> Candidate | None:
    known = set(tried)
    for fresh in (False, True):  # what is left of the last proposals, then new ones
        if fresh:
            node.proposals = await coder.propose(node.candidate, node.outcome, tried)
        while node.proposals:
            candidate = node.proposals.pop(0)
            if candidate not in known:
                return candidate
    return None


def _judge(node: Node, child: Node) -> None:
    """Dead ends: four failed repairs in a row, or six expansions without a gain where a sibling is worth more."""
    node.failed = node.failed + 1 if child.outcome.speed <= 0 else 0
    node.flat = 0 if child.outcome.speed > GAIN * node.outcome.speed else node.flat + 1
    siblings = [s for s in node.parent.children if s is not node] if node.parent else []
    worse = any(s.value > node.value and not s.dead for s in siblings)
    node.frozen = (node.outcome.speed <= 0 and node.failed >= REPAIRS) or (node.flat >= TRIALS and worse)


SEARCHES = {"random": at_random, "greedy": greedy, "guided": guided, "mcts": mcts}

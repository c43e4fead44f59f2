"""Searches over the builds of a kernel: from the strongest options, random, greedy, guided by advice, tree (MCTS).

All take ``evaluate``, which tries one candidate, so that they run on a machine, in a recorded run, or over a table of
times measured before. The strategies are ``climbing`` and ``mcts``; here is what they know of kernels: what a
try came to, what to change next, and the log reward of 2606.26453. Constants the paper does not give are marked ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from clew.methods.kernels.climbing import at_random, climb
from clew.methods.kernels.kernel import ALSO, Candidate, Space
from clew.methods.kernels.mcts import STALE, Node, tree_search
from clew.methods.kernels.tries import Proposer
from clew.methods.kernels.tries import Tries as AnyTries

TOGETHER = 4  # draws of values where all advice is followed at once (ours, set on the tables of fourteen kernels)
MOST = 32.0  # speed-up that earns the whole reward, where no roofline is known


class Outcome(NamedTuple):
    """What a try came to: ``speed`` over the plain build, 0 where it failed; ``advice``, moves the rules recommend."""

    speed: float
    advice: tuple[str, ...] = ()
    why: str = ""  # what was wrong, where it failed

    @property
    def score(self) -> float:
        return self.speed


Evaluate = Callable[[Candidate], Awaitable[Outcome]]
Coder = Proposer[Candidate, Outcome]  # the catalogue of transformations, or a model
Tries = AnyTries[Candidate, Outcome]


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


class Strongest(Catalogue):
    """Every option at its last value at once, whatever is advised; then one option at a time, in random order.

    On sixteen kernels that no search was tuned on this took the fewest tries (E177, tier search, arm "everything")."""

    def __init__(self, space: Space, rng: random.Random) -> None:
        super().__init__(space, rng, advised=False)

    async def propose(self, candidate: Candidate, outcome: Outcome, tried: Sequence[Candidate]) -> list[Candidate]:
        last = Candidate(tuple((option, len(values) - 1) for option, values in self._space.values.items()))
        near = await super().propose(candidate, outcome, tried)
        return near if last in tried else [last, *(c for c in near if c != last)]


def known_moves(advice: Sequence[str]) -> list[str]:
    """Moves of the advice, each followed by the name that a catalogue may have for it."""
    return list(dict.fromkeys(name for move in advice for name in (move, ALSO.get(move, move))))


async def greedy(tries: Tries, space: Space, rng: random.Random, begin: Outcome, coder: Coder | None = None) -> None:
    """Hill climbing by the coder's proposals. Without a coder: one change at a time, at random."""
    await climb(tries, space, rng, begin, coder or Catalogue(space, rng, advised=False))


async def guided(tries: Tries, space: Space, rng: random.Random, begin: Outcome, coder: Coder | None = None) -> None:
    """``greedy`` along the advice: what the rules recommend for the present build comes first, all of it at once."""
    await greedy(tries, space, rng, begin, coder or Catalogue(space, rng))


async def strong(tries: Tries, space: Space, rng: random.Random, begin: Outcome, coder: Coder | None = None) -> None:
    """``greedy`` from the strongest build: see ``Strongest``."""
    await greedy(tries, space, rng, begin, coder or Strongest(space, rng))


def reward(speed: float, most: float = MOST, linear: bool = False) -> float:
    """0 for a failure, .1 for correct but no faster, else the share of the log speed-up that can be had (ours, after
    the paper's log-reward calibration): one lucky factor of thirty must not outweigh a steady factor of three."""
    if speed <= 0:
        return 0.0
    share = speed / most if linear else math.log(max(speed, 1.0)) / math.log(most)
    return min(1.0, max(0.1, 0.1 + 0.9 * share))


async def mcts(
    tries: Tries, space: Space, rng: random.Random, begin: Outcome, coder: Coder | None = None, *, most: float = MOST,
    linear: bool = False, stale: int | None = STALE,
) -> Node[Candidate, Outcome]:  # fmt: skip
    """Tree search over complete kernels; gives the root.

    ``most`` is the speed-up the roofline allows; ``stale`` ends the search after so many evaluations without gain
    (None: only the budget does); ``linear`` is the control of the log reward.
    """
    earned = partial(reward, most=most, linear=linear)
    return await tree_search(tries, space.start(), begin, coder or Catalogue(space, rng), earned, stale)


SEARCHES = {"strong": strong, "random": at_random, "greedy": greedy, "guided": guided, "mcts": mcts}

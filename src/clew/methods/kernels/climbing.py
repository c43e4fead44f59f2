"""Random search and hill climbing."""

from __future__ import annotations

import random

from clew.methods.kernels.tries import C, Problem, Proposer, S, Tries

GAIN = 1.02  # a candidate is better where its score is higher by this factor


async def at_random(tries: Tries[C, S], space: Problem[C], rng: random.Random, begin: S) -> None:
    """Candidates in random order, each once. ``begin`` is the outcome of the start, which is known."""
    rest = [c for c in space.all() if c != space.start()]
    rng.shuffle(rest)
    for candidate in rest[: tries.budget]:
        await tries(candidate)


async def climb(tries: Tries[C, S], space: Problem[C], rng: random.Random, begin: S, proposer: Proposer[C, S]) -> None:
    """Hill climbing: try the proposals one by one, move to the first that is better by 2 %, and on from there.

    Where nothing near is better, it begins again at a random place.
    """
    here, outcome, start = space.start(), begin, space.start()
    while tries.left > 0:
        moved = False
        for candidate in await proposer.propose(here, outcome, [start, *tries.tried]):
            if tries.left <= 0:
                return
            found = await tries(candidate)
            if found.score > GAIN * outcome.score:
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

"""Searches on a problem that knows nothing of kernels: the largest sum of bits, with a trap beside the start."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import NamedTuple

import pytest

from clew.methods.kernels.climbing import at_random, climb
from clew.methods.kernels.mcts import tree_search
from clew.methods.kernels.tries import Tries


class Score(NamedTuple):
    score: float


class Bits:
    def start(self):
        return (0,) * 6

    def all(self):
        return itertools.product((0, 1), repeat=6)


class Flips:
    """Flips one bit."""

    async def propose(self, candidate, outcome, tried):
        near = [tuple(b ^ (i == j) for j, b in enumerate(candidate)) for i in range(len(candidate))]
        return [c for c in near if c not in tried]


async def worth(bits):
    return Score(0.0 if bits == (1, 0, 0, 0, 0, 0) else 1.0 + sum(bits))


def found(how, budget):
    tries = Tries(worth, budget)
    rng, begin = random.Random(0), Score(1.0)
    if how == "random":
        asyncio.run(at_random(tries, Bits(), rng, begin))
    elif how == "climb":
        asyncio.run(climb(tries, Bits(), rng, begin, Flips()))
    else:
        asyncio.run(tree_search(tries, Bits().start(), begin, Flips(), lambda score: score / 7, stale=None))
    return tries


@pytest.mark.parametrize("how", ["random", "climb", "tree"])
def test_a_search_keeps_its_budget_and_tries_nothing_twice(how):
    for budget in (0, 1, 20):
        tries = found(how, budget)
        assert len(tries.done) == budget
        assert len(set(tries.tried)) == budget
        assert Bits().start() not in tries.tried


@pytest.mark.parametrize(("how", "budget"), [("climb", 25), ("tree", 50)])
def test_a_guided_search_finds_the_top(how, budget):
    assert found(how, budget).best == ((1,) * 6, Score(7.0))
    assert len(found("random", 100).done) == 63, "the whole space, without the start"

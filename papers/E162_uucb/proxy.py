"""The objective F whose marginal gains give UUCB's three terms, and the truth it stands for (specs/E162 3a, 3b)."""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
C, BETA = 0.5, 0.5


class Places(NamedTuple):
    """Nodes that may be branched: smoothed success ``rate`` [k] (of failure where all rollouts succeeded), ``tries``
    [k] so far and ``chance`` [k, options] of the next token."""

    rate: F64
    tries: F64
    chance: F64


def proxy(places: Places, counts: F64) -> F64:
    """F of multisets ``counts`` [..., k]: coverage + c (concave count) + beta (distinct next tokens expected)."""
    coverage = 1 - np.prod((1 - places.rate) ** counts, axis=-1)
    explored = (np.sqrt(places.tries + counts) - np.sqrt(places.tries)).sum(axis=-1)
    distinct = (1 - (1 - places.chance) ** counts[..., None]) * (places.chance > 0)
    return np.asarray(coverage + C * explored + BETA * distinct.sum(axis=(-1, -2)))


def truth(value: F64, counts: F64) -> F64:
    """Chance that the tree becomes mixed: 1 - prod (1 - v)^k, with the exact values of the nodes."""
    return np.asarray(1 - np.prod((1 - value) ** counts, axis=-1))


def greedy(places: Places, k: int) -> F64:
    """The multiset of ``k`` expansions that greedy choice on F gives."""
    size = len(places.rate)
    counts = np.zeros(size)
    for _ in range(k):
        counts[int(np.argmax(proxy(places, counts + np.eye(size))))] += 1
    return counts


def best(places: Places, k: int) -> float:
    """The largest F over all multisets of ``k``, by trying each."""
    size = len(places.rate)
    sets = [np.bincount(s, minlength=size) for s in itertools.combinations_with_replacement(range(size), k)]
    return float(proxy(places, np.array(sets, dtype=float)).max())


def random_places(rng: np.random.Generator, size: int) -> Places:
    tries = rng.integers(0, 6, size).astype(float)
    return Places(rng.random(size), tries, rng.dirichlet(np.ones(4), size))


def diminishing(rng: np.random.Generator, pairs: int) -> tuple[int, float]:
    """(violations, largest excess) of diminishing returns over random S within T on at most 8 nodes."""
    bad, worst = 0, -np.inf
    for _ in range(pairs):
        size = int(rng.integers(1, 9))
        places = random_places(rng, size)
        small = rng.integers(0, 3, size).astype(float)
        large = small + rng.integers(0, 3, size)
        one = np.eye(size)[rng.integers(size)]
        excess = float(
            (proxy(places, large + one) - proxy(places, large)) - (proxy(places, small + one) - proxy(places, small))
        )
        bad, worst = bad + (excess > 1e-9), max(worst, excess)
    return bad, worst


def greedy_ratio(rng: np.random.Generator, cases: int) -> float:
    """The smallest greedy / best of F over random places, up to 6 nodes and 4 expansions."""
    found = []
    for _ in range(cases):
        places, k = random_places(rng, int(rng.integers(2, 7))), int(rng.integers(1, 5))
        found.append(float(proxy(places, greedy(places, k))) / best(places, k))
    return min(found)

"""Which node of a rollout tree to branch next: pure scores over the nodes (E162, arXiv 2605.05262).

The paper's text was not to be had, so the forms are those that specs/E162 section 3 completes from its abstract. A
selector maps ``Candidates`` to one score per node; ``choose`` takes the largest among those that the budget still
allows. All arrays may carry leading axes, so that many trees are scored at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from clew.core.errors import BadInput

F64 = NDArray[np.float64]
PRIOR = 0.5  # a0 of specs/E162 section 3: half a success and half a failure before anything is seen


class Candidates(NamedTuple):
    """Nodes of one tree, all [..., k]; node 0 is the root.

    visits: rollouts through the node. wins: those of them that succeeded. tries: those of them that began there: a
    place passed often and never branched is unexplored.
    entropy: of the next token, in nats. width: how many next tokens there are in effect; entropy is at most its log.
    cost: tokens expected from the node to the end.
    """

    visits: F64
    wins: F64
    tries: F64
    entropy: F64
    width: F64
    cost: F64


Explored = Literal["tries", "visits"]
Selector = Callable[[Candidates, F64], F64]
"""(candidates, uniform noise of the same shape) -> scores [..., k]."""


def rate(candidates: Candidates) -> F64:
    """Smoothed share of successes below each node, (s + a0) / (n + 2 a0)."""
    return np.asarray((candidates.wins + PRIOR) / (candidates.visits + 2 * PRIOR))


def value(candidates: Candidates) -> F64:
    """Chance that one more rollout from here makes the tree mixed, as far as its own record tells.

    Where the tree has no success yet the chance of a success, where it has no failure that of a failure, and once it
    has both 4 V (1 - V), which is largest where the outcome is open.
    """
    v = rate(candidates)
    won, seen = candidates.wins[..., :1], candidates.visits[..., :1]
    return np.where(won == 0, v, np.where(won == seen, 1 - v, 4 * v * (1 - v)))


def forks(candidates: Candidates, scores: F64, floor: float) -> F64:
    """The scores, minus infinity where the next token is all but certain (entropy below ``floor``); not at the root.

    Branching there decodes the same tokens again. Step 2 of specs/E162 section 3 keeps the places of highest entropy.
    """
    open_ = candidates.entropy >= floor
    open_[..., 0] = True
    return np.where(open_, scores, -np.inf)


def uct(candidates: Candidates, noise: F64, c: float = 0.5, floor: float = 0.0, explored: Explored = "tries") -> F64:
    """Value plus c sqrt(ln(1 + N) / (1 + n)): UUCB without entropy. ``explored``: what n counts at a node."""
    total = candidates.visits[..., :1]
    n = candidates.tries if explored == "tries" else candidates.visits
    scores = value(candidates) + c * np.sqrt(np.log1p(total) / (1 + n))
    return forks(candidates, np.asarray(scores), floor)


def uucb(
    candidates: Candidates,
    noise: F64,
    c: float = 0.5,
    beta: float = 0.5,
    floor: float = 0.1,
    explored: Explored = "tries",
) -> F64:
    """Uncertainty-aware UCB, specs/E162 section 3: ``uct`` plus beta H / ln(width), at forks.

    The form as the specification writes it is ``explored="visits", floor=0``: every rollout that passed a node counts
    as an exploration of it, and any node may be branched. It loses most of the gain (papers/E162_uucb).
    """
    bonus = beta * candidates.entropy / np.log(np.maximum(candidates.width, 2.0))
    return uct(candidates, noise, c, floor, explored) + bonus


def uucb_cost(candidates: Candidates, noise: F64, **settings: Any) -> F64:
    """UUCB per square root of the tokens it would cost; worse than UUCB where it was measured (section 6)."""
    return np.asarray(uucb(candidates, noise, **settings) / np.sqrt(np.maximum(candidates.cost, 1.0)))


def entropy(candidates: Candidates, noise: F64, floor: float = 0.1) -> F64:
    """H / (1 + tries): branch where the next token is most open (entropy-guided, as TreeRL, arXiv 2506.11902)."""
    return forks(candidates, np.asarray(candidates.entropy / (1 + candidates.tries)), floor)


def random(candidates: Candidates, noise: F64, floor: float = 0.0) -> F64:
    """Any node alike, as the released Tree-GRPO branches; with a ``floor`` any fork alike."""
    return forks(candidates, noise, floor)


def flat(candidates: Candidates, noise: F64) -> F64:
    """Always the root: independent rollouts."""
    scores = np.full(candidates.visits.shape, -np.inf)
    scores[..., 0] = 0.0
    return scores


SELECTORS: dict[str, Selector] = {
    "flat": flat,
    "random": random,
    "entropy": entropy,
    "uct": uct,
    "uucb": uucb,
    "uucb-cost": uucb_cost,
}


def selector(name: str, **parameters: Any) -> Selector:
    """A selector by name, its parameters (``c``, ``beta``, ``floor``, ``explored``) fixed.

    Raises:
        BadInput: there is none of that name, or it does not take them.
    """
    if name not in SELECTORS:
        raise BadInput(f"no selector is called {name!r}", remedy=f"Known: {', '.join(SELECTORS)}.")
    if not parameters:
        return SELECTORS[name]
    if parameters.get("explored", "tries") not in get_args(Explored):
        raise BadInput(
            f"explored={parameters['explored']!r}",
            remedy="Give tries (rollouts begun at a node) or visits (rollouts that passed it).",
        )
    made = partial(SELECTORS[name], **parameters)
    try:
        one = np.ones(1)
        made(Candidates(one, one, one, one, 2 * one, one), one)
    except TypeError as error:
        raise BadInput(
            f"selector {name}: {error}",
            remedy="uucb takes c, beta, floor and explored, uct c, floor and explored, the others floor.",
        ) from error
    return made


def choose(scores: F64, allowed: NDArray[np.bool_], noise: F64) -> NDArray[np.intp]:
    """Index [...] of the largest score among the allowed, ties broken by the larger noise; -1 where none may be.

    A score of minus infinity is never chosen.
    """
    masked = np.where(allowed, scores, -np.inf)
    best = masked.max(axis=-1, keepdims=True)
    tied = np.where((masked == best) & np.isfinite(best), noise, -1.0)
    return np.where(np.isfinite(best[..., 0]), tied.argmax(axis=-1), -1)

"""R7: what as many calls give without a conductor. Votes are counted for nothing, which favours the controls."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.E166_route import pool
from papers.E166_route.conductor import School
from papers.E166_route.plan_pool import BEST, CHECK, JOIN, PARTS, WHOLE, Plan, Simulated, part

MOST = PARTS - 1  # calls: the last part counts the votes
TRIED, TOLD = 2, 10  # copies of luck in which crews are chosen, and in which the chosen one is measured


def vote(crew: Sequence[int]) -> Plan:
    """Everybody does the whole program; the result that most have is given, the first of those that tie."""
    if len(crew) == 1:
        return (part(crew[0], WHOLE),)
    return (*(part(w, WHOLE) for w in crew), part(BEST, JOIN, range(len(crew))))


def repair(crew: Sequence[int]) -> Plan:
    """Solve, check, check again: each sees all before it."""
    return tuple(part(w, CHECK if t else WHOLE, range(t)) for t, w in enumerate(crew))


def _mean(it: Simulated, plan: Plan, copies: int) -> float:
    return float(it.success([plan] * len(it.found.texts), copies).mean())


def _chosen(it: School, plans: Sequence[Plan]) -> Plan:
    """The plan that does best on the programs to learn from."""
    return max(plans, key=lambda plan: _mean(it.learn, plan, TRIED))


def controls(it: School) -> dict[str, Any]:
    """Success on the held-out programs, a list by calls from 1 to ``MOST`` where that can be chosen.

    ``crew`` is the best one of so many workers, chosen on the programs to learn from. ``verified`` has a verifier that
    is never wrong: a ceiling, exact. ``routed`` asks for each program the worker whose chance is highest: no router
    can do better.
    """
    chances, learnt = it.held.found.chances, it.learn.found.chances
    best, top = chances[:, BEST], chances.max(1)
    sizes = range(1, MOST + 1)
    crews = {n: list(itertools.combinations_with_replacement(range(pool.W), n)) for n in sizes}

    def passed(given: np.ndarray, crew: Sequence[int]) -> float:
        return float(1 - np.prod(1 - given[:, list(crew)], axis=1).mean())

    strong = {n: max(crews[n], key=lambda crew: passed(learnt, crew)) for n in sizes}
    votes = {n: _chosen(it, [vote(crew) for crew in crews[n]]) if n < MOST else vote([BEST] * n) for n in sizes}
    fixed = _chosen(it, [repair(crew) for crew in itertools.product((BEST, 3, 5), repeat=3)])
    out = {
        "vote": [_mean(it.held, vote([BEST] * n), TOLD) for n in sizes],
        "crew vote": [_mean(it.held, votes[n], TOLD) for n in sizes],
        "verified": [float((1 - (1 - best) ** n).mean()) for n in sizes],
        "crew verified": [passed(chances, strong[n]) for n in sizes],
        "routed verified": [float((1 - (1 - top) ** n).mean()) for n in sizes],
        "repair": _mean(it.held, fixed, TOLD),
        "routed": float(top.mean()),
        "single": float(best.mean()),
    }  # fmt: skip
    return {name: np.round(value, 5).tolist() for name, value in out.items()}

"""The cells of tier N: a small transformer in the maze, marks N1 to N3 of specs/E163."""

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from clew.worlds.loops import loop_erase
from clew.worlds.maze import FORK, HALL, Star
from papers.E163_backtrack.chain import F64
from papers.experiment import Line, apart, each, grid

STAR = Star(4, 4, 3)
BEST = 64
KEPT = STAR.branches * (2 * STAR.diamonds + 1) + 1  # H of a perfect walker that never enters a branch twice
WATCHED = (0, 50, 100, 250, 500, 1000, 2000)
ITERATIONS, SETTLED, TRACES, COPYING, WALKS, CAP = 3000, 0.02, 500, 500, 500, 20 * BEST
SEEDS = range(10, 15)  # 0 to 2 were looked at while the tier was made, 100 for how long N2 takes
cost = 100.0


portions = apart


def cells(quick: bool) -> Iterator[Line]:
    """``quick``: one seed."""
    yield from grid(kind="neural", seed=(0,) if quick else SEEDS)


def _seed(setting: Line, seed: int) -> Line:
    """One pre-trained model; what becomes of it by golden SFT, by RL, and by SFT on the RL model's traces."""
    import torch

    from papers.E163_backtrack.neural import Floor, Walker, imitate, policy_of, reinforce

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    floor, rng = Floor.of(STAR), np.random.default_rng(seed)
    model = Walker(STAR.nodes)
    steps = imitate(model, floor, lambda _: floor.counts(*floor.walk(floor.uniform, 64, 200, rng)[:2]), 3000, near=0.01)
    out: Line = {"pretrained": _measure(floor, policy_of(model, floor), rng) | {"steps": steps}}
    golden, drift = copy.deepcopy(model), [[0, *floor.keeps(policy_of(model, floor)).tolist()]]
    for start, stop in pairwise(WATCHED):
        imitate(golden, floor, lambda _: _golden(floor, rng), stop - start)
        drift.append([stop, *floor.keeps(policy_of(golden, floor)).tolist()])
    out |= {"golden": _measure(floor, policy_of(golden, floor), rng), "drift": drift}
    learner = copy.deepcopy(model)
    curve, walked = reinforce(learner, floor, ITERATIONS, rng, settled=SETTLED)
    policy = policy_of(learner, floor)
    out |= {"rl": _measure(floor, policy, rng), "curve": curve, "walked": walked}
    for name, erase in (("full", False), ("erased", True)):
        student, data = copy.deepcopy(model), _traces(floor, policy, erase, rng)
        imitate(student, floor, lambda _, data=data: data, COPYING)
        out[name] = _measure(floor, policy_of(student, floor), rng)
    return out


def _measure(floor: Any, policy: F64, rng: np.random.Generator) -> Line:
    """Exact H, chances of the desired move by family, and median, mean and success of walks cut at CAP steps."""
    length = floor.walk(policy, WALKS, CAP, rng)[-1]
    return {
        "h": floor.expected_steps(policy),
        "keeps": floor.keeps(policy).tolist(),
        "median": float(np.median(length)),
        "mean": float(length.mean()),
        "success": float((length < CAP).mean()),
    }


def _count(floor: Any, paths: list[list[int]]) -> F64:
    """Counts of the moves along paths of nodes, from the second move on."""
    number = {(int(a), int(b)): i for i, (a, b) in enumerate(floor.pairs)}
    found = np.zeros_like(floor.lanes)
    for path in paths:
        for before, here, after in zip(path, path[1:], path[2:], strict=False):
            found[number[before, here], after] += 1
    return found


def _golden(floor: Any, rng: np.random.Generator, n: int = 64) -> F64:
    lanes = [0] * STAR.diamonds
    paths = [STAR.golden(int(b), lanes) for b in rng.integers(STAR.branches, size=n)]
    return _count(floor, [[HALL, *(e.to for e in path)] for path in paths])


def _traces(floor: Any, policy: F64, erase: bool, rng: np.random.Generator) -> F64:
    """Counts of TRACES walks that arrive, whole or with every loop cut out."""
    horizon = 100_000
    states, moves, walkers, _, length = floor.walk(policy, TRACES, horizon, rng)
    arrived = (length < horizon)[walkers]
    states, moves, walkers = states[arrived], moves[arrived], walkers[arrived]
    if not erase:
        found: F64 = floor.counts(states, moves)
        return found
    order = np.argsort(walkers, kind="stable")
    paths = []
    for lot in np.split(moves[order], np.flatnonzero(np.diff(walkers[order])) + 1):
        nodes = [HALL, FORK, *lot.tolist()]
        paths.append([nodes[0], *(nodes[i + 1] for i in loop_erase(nodes))])
    return _count(floor, paths)


run = each(_seed)

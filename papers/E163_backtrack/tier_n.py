"""The cells of tier N: a small transformer in the maze, marks N1 to N3 of specs/E163."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from clew.worlds.loops import loop_erase
from clew.worlds.maze import FORK, HALL, Star
from papers.E163_backtrack.chain import F64
from papers.experiment import portions

__all__ = ["cells", "cost", "portions", "run"]

Cell = dict[str, Any]
STAR = Star(4, 4, 3)
BEST = 64
WATCHED = (0, 50, 100, 250, 500, 1000)
ITERATIONS, TRACES, COPYING, WALKS, CAP = 400, 500, 500, 500, 20 * BEST
SKILL = 0.97  # of N3's teacher: chance to go on in its direction


def cells(quick: bool) -> Iterator[Cell]:
    """``quick``: one seed of three."""
    for seed in range(1 if quick else 3):
        yield {"kind": "neural", "seed": seed}


def cost(cell: Cell) -> float:
    return 40.0


def run(setting: Cell, seeds: Sequence[int]) -> list[Cell]:
    """One pre-trained model per seed, and what becomes of it by golden SFT, by RL, and by SFT on traces."""
    return [_seed(seed) for seed in seeds]


def _seed(seed: int) -> Cell:
    import torch

    from papers.E163_backtrack.neural import Floor, Walker, imitate, policy_of, reinforce

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    floor, rng = Floor.of(STAR), np.random.default_rng(seed)
    model = Walker(STAR.nodes)
    steps = imitate(model, floor, lambda _: floor.counts(*floor.walk(floor.uniform, 64, 200, rng)[:2]), 3000, near=0.01)
    out: Cell = {"pretrained": _measure(floor, policy_of(model, floor), rng) | {"steps": steps}}
    golden, drift = copy.deepcopy(model), [[0, *floor.keeps(policy_of(model, floor)).tolist()]]
    for start, stop in pairwise(WATCHED):
        imitate(golden, floor, lambda _: _golden(floor, rng), stop - start)
        drift.append([stop, *floor.keeps(policy_of(golden, floor)).tolist()])
    out |= {"golden": _measure(floor, policy_of(golden, floor), rng), "drift": drift}
    learner = copy.deepcopy(model)
    curve, walked = reinforce(learner, floor, ITERATIONS, rng)
    policy = policy_of(learner, floor)
    out |= {"rl": _measure(floor, policy, rng), "curve": curve, "walked": walked}
    teacher = _teacher(floor)
    for name, erase in (("full", False), ("erased", True)):
        student, data = copy.deepcopy(model), _traces(floor, teacher, erase, rng)
        imitate(student, floor, _always(data), COPYING)
        out[name] = _measure(floor, policy_of(student, floor), rng)
    out["teacher"] = _measure(floor, teacher, rng)
    return out


def _always(data: F64) -> Callable[[int], F64]:
    return lambda _: data


def _measure(floor: Any, policy: F64, rng: np.random.Generator) -> Cell:
    """Exact H, chances of the desired move by family, and median, mean and success of walks cut at CAP steps."""
    length = floor.walk(policy, WALKS, CAP, rng)[-1]
    return {
        "h": floor.expected_steps(policy),
        "keeps": floor.keeps(policy).tolist(),
        "median": float(np.median(length)),
        "mean": float(length.mean()),
        "success": float((length < CAP).mean()),
    }


def _numbers(floor: Any) -> dict[tuple[int, int], int]:
    return {(int(a), int(b)): i for i, (a, b) in enumerate(floor.pairs)}


def _count(floor: Any, paths: list[list[int]]) -> F64:
    """Counts of the moves along paths of nodes, from the second move on."""
    number, found = _numbers(floor), np.zeros_like(floor.lanes)
    for path in paths:
        for before, here, after in zip(path, path[1:], path[2:], strict=False):
            found[number[before, here], after] += 1
    return found


def _golden(floor: Any, rng: np.random.Generator, n: int = 64) -> F64:
    lanes = [0] * STAR.diamonds
    paths = [STAR.golden(int(b), lanes) for b in rng.integers(STAR.branches, size=n)]
    return _count(floor, [[HALL, *(e.to for e in path)] for path in paths])


def _teacher(floor: Any) -> F64:
    """A walker that goes on in its direction with chance SKILL everywhere; uniform at the fork."""
    on = floor.lanes * floor.onward
    off = floor.lanes * ~floor.onward
    mixed = SKILL * on / np.maximum(on.sum(axis=1, keepdims=True), 1)
    mixed = mixed + (1 - SKILL) * off / np.maximum(off.sum(axis=1, keepdims=True), 1)
    found: F64 = np.where(floor.family[:, None] >= 0, mixed, floor.uniform)
    return found


def _traces(floor: Any, policy: F64, erase: bool, rng: np.random.Generator) -> F64:
    """Counts of TRACES walks of the teacher, whole or with every loop cut out."""
    states, moves, walkers, _, _ = floor.walk(policy, TRACES, 100_000, rng)
    if not erase:
        found: F64 = floor.counts(states, moves)
        return found
    order = np.argsort(walkers, kind="stable")
    paths = []
    for lot in np.split(moves[order], np.cumsum(np.bincount(walkers))[:-1]):
        nodes = [HALL, FORK, *lot.tolist()]
        paths.append([nodes[0], *(nodes[i + 1] for i in loop_erase(nodes))])
    return _count(floor, paths)

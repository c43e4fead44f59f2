"""The cells of tier D: supervised learning from the traces of a trained walker, marks D1 to D4 of specs/E163."""

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import fmean

import numpy as np

from clew.worlds.maze import Star, wander
from papers.E163_backtrack.chain import F64, Graph, expected_steps, golden, gradient
from papers.E163_backtrack.walk import erased, fit, traces
from papers.experiment import Line, grid

SMALL = Graph(3, 3, 2)
TEACHER = 38.1  # H of the teacher
SHARES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
SEARCHES = ((5, 2), (5, 4), (5, 8), (5, 16), (10, 2), (10, 4), (10, 8))
TRACES, EPISODES = 500, 150


def cells(quick: bool) -> Iterator[Line]:
    """``quick``: fewer seeds."""
    for seed in range(5 if quick else 20):
        yield from grid(kind="full", n=(10, 50, TRACES), seed=seed)
        yield {"kind": "erased", "n": TRACES, "seed": seed}
        yield from grid(kind="dose", n=TRACES, share=SHARES, seed=seed)
    for seed in range(3 if quick else 20):
        yield from ({"kind": "search", "k": k, "l": many, "seed": seed} for k, many in SEARCHES)


def cost(cell: Line) -> float:
    return 0.3 if cell["kind"] == "search" else 0.1


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    """H of the student, or mean steps of the search agent."""
    if setting["kind"] == "search":
        return [_search(Graph(5, setting["k"], setting["l"]), seed) for seed in seeds]
    share = setting.get("share", float(setting["kind"] == "full"))
    return [_student(setting["n"], share, seed) for seed in seeds]


@lru_cache(maxsize=1)
def teacher() -> F64:
    """The walker of exact sign ascent at the first step where H is at most TEACHER."""
    logits = np.zeros((4, SMALL.diamonds))
    while True:
        up, h = gradient(SMALL, SMALL.policy(logits))
        if h <= TEACHER:
            return SMALL.policy(logits)
        logits = logits + 0.01 * np.sign(up)


def _student(n: int, share: float, seed: int) -> Line:
    """Maximum likelihood on n traces of the teacher, of which a share is whole and the rest loop-erased."""
    paths = list(traces(SMALL, teacher(), n, seed))
    whole = round(share * n)
    student = fit(SMALL, [*paths[:whole], *map(erased, paths[whole:])])
    edges = sum(map(len, paths[:whole])) + sum(len(erased(p)) for p in paths[whole:])
    return {
        "h": expected_steps(SMALL, student),
        "teacher": expected_steps(SMALL, teacher()),
        "base": expected_steps(SMALL, SMALL.policy()),
        "edges": edges,
    }


def _search(graph: Graph, seed: int) -> Line:
    """Mean steps of the agent that refuses used edges, over EPISODES mazes, with golden-SFT and with perfect habits."""
    star, rng = Star(graph.branches, graph.diamonds, graph.parallel), random.Random(seed)
    habits = {"sft": golden(graph).tolist(), "rl": [[1.0] * graph.diamonds] * 4}
    exits = [rng.randrange(graph.branches) for _ in range(EPISODES)]
    return {name: fmean(len(wander(star, x, q, rng, refuse=True)) for x in exits) for name, q in habits.items()}

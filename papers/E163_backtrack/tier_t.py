"""The cells of tier T: what is exact in specs/E163, marks T1 to T5."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from clew.worlds.maze import Star
from papers.E163_backtrack import chain
from papers.E163_backtrack.chain import B, D, Graph, expected_steps, golden, gradient
from papers.E163_backtrack.walk import counts
from papers.experiment import Line, grid

GRAPHS = ((3, 3, 2), (4, 4, 3), (5, 5, 3), (10, 5, 5), (5, 15, 5), (15, 15, 5))
SHIFTS = (0.5, 1.0, 2.0)
RETREATS = (0.5, 1.0, 2.0, 3.0, 4.0)
WATCHED = (0, 25, 100, 300, 600, 1200)


def cells(quick: bool) -> Iterator[Line]:
    """All of it takes seconds, so that ``quick`` makes no difference."""
    for w, k, many in GRAPHS:
        yield {"kind": "table", "w": w, "k": k, "l": many, "seed": 0}
    yield from grid(seed=range(20), kind=("closed form", "differences"))
    yield from grid(kind="growth", w=3, l=(2, 3, 5, 10), seed=0)
    for w, k, many in GRAPHS[:3]:
        yield {"kind": "golden SFT", "w": w, "k": k, "l": many, "seed": 0}
    yield {"kind": "partial", "w": 5, "k": 5, "l": 3, "seed": 0}
    yield {"kind": "sign ascent", "w": 15, "k": 15, "l": 5, "seed": 0}


def cost(cell: Line) -> float:
    return {"golden SFT": 0.5, "sign ascent": 0.5}.get(cell["kind"], 0.02)


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    """Results of one setting for all seeds, in their order."""
    if "k" not in setting and setting["kind"] != "growth":
        return [{"closed form": _closed, "differences": _differences}[setting["kind"]](seed) for seed in seeds]
    graph = Graph(setting["w"], setting.get("k", 4), setting["l"])
    each = {"table": _table, "growth": _growth, "golden SFT": _sft, "partial": _partial, "sign ascent": _ascent}
    return [each[setting["kind"]](graph) for _ in seeds]


def _table(graph: Graph) -> Line:
    perfect = np.ones((4, graph.diamonds))
    trip = 2 * graph.diamonds + 1
    return {
        "base": expected_steps(graph, graph.policy()),
        "golden": expected_steps(graph, golden(graph)),
        "perfect": expected_steps(graph, perfect),
        "best": graph.best,
        "recurrence": 1 + trip + (graph.branches - 1) * (trip + chain.branch_exit(graph)),
    }


def _closed(seed: int) -> Line:
    rng = np.random.default_rng(seed)
    graph = Graph(*map(int, rng.integers((2, 1, 1), (20, 20, 12))))
    found = expected_steps(graph, np.ones((4, graph.diamonds)))
    return {"graph": [graph.branches, graph.diamonds, graph.parallel], "error": abs(found / graph.best - 1)}


def _differences(seed: int, step: float = 1e-5) -> Line:
    """Gradient against central differences at random logits; error relative to the largest slope."""
    graph, rng = Graph(5, 5, 3), np.random.default_rng(seed)
    logits = rng.normal(size=(4, 5))
    exact, numeric = gradient(graph, graph.policy(logits))[0], np.zeros((4, 5))
    for place in np.ndindex(4, 5):
        ends = []
        for sign in (1, -1):
            moved = logits.copy()
            moved[place] += sign * step
            ends.append(expected_steps(graph, graph.policy(moved)))
        numeric[place] = (ends[1] - ends[0]) / (2 * step)
    return {"error": float(np.abs(exact - numeric).max() / np.abs(exact).max())}


def _growth(graph: Graph) -> Line:
    """H(K + 1) / H(K) of golden-path SFT for K = 4 to 10."""
    h = [expected_steps(g, golden(g)) for g in (Graph(graph.branches, k, graph.parallel) for k in range(4, 12))]
    return {"ratios": [b / a for a, b in pairwise(h)]}


def _sft(graph: Graph, steps: int = 5000) -> Line:
    """Gradient descent on the cross-entropy of 200 golden paths; what the loss cannot go below is left out.

    The mean gradient of a path at a logit is (n_desired - n q) / paths. Irreducible are the choice of branch and that
    among the L parallel edges, ln W + K ln L nats per path.
    """
    rng, star, paths = np.random.default_rng(0), Star(graph.branches, graph.diamonds, graph.parallel), 200
    data = [
        star.golden(int(rng.integers(graph.branches)), rng.integers(graph.parallel, size=graph.diamonds).tolist())
        for _ in range(paths)
    ]
    seen = counts(graph, data) / paths
    logits, base, curve = np.zeros((4, graph.diamonds)), graph.policy(), []
    for i in range(steps + 1):
        policy = graph.policy(logits)
        if i % 250 == 0 or i in (1, 2, 5, 10, 25, 50, 100):
            curve.append([i, expected_steps(graph, policy)])
        logits = logits + seen[..., 0] - seen.sum(axis=-1) * policy
    policy = graph.policy(logits)
    loss = -float((seen[..., 0] * np.log(policy)).sum()) / float(seen.sum())
    drift = float(np.abs(policy[[B, D]] - base[[B, D]]).max())
    return {"curve": curve, "loss": loss, "drift": drift, "lowest outward": float(policy[: chain.A + 1].min())}


def _partial(graph: Graph) -> Line:
    """Where the leverage sits (specs/E163, section 4): some rows perfect or shifted, the others untrained."""

    def h(outward: float, b: float, d: float) -> float:
        logits = np.zeros((4, graph.diamonds))
        logits[list(chain.OUTWARD)], logits[B], logits[D] = outward, b, d
        return expected_steps(graph, graph.policy(logits))

    return {
        "early": [h(x, 0, 0) for x in SHIFTS],
        "retreat only": h(0, 60, 60),
        "outward and d": h(60, 0, 60),
        "outward and b": h(60, 60, 0),
        "outward and shifted": [h(60, x, x) for x in RETREATS],
    }


def _ascent(graph: Graph, rate: float = 0.01) -> Line:
    """Sign gradient ascent on J = 1 - H (Figure 3 of the paper): H along the way, whether all signs were positive."""
    logits, watched, positive, curve = np.zeros((4, graph.diamonds)), {}, True, []
    for i in range(WATCHED[-1]):
        up, h = gradient(graph, graph.policy(logits))
        positive &= bool((up > 0).all())
        if i in WATCHED:
            watched[str(i)] = h
        if i % 25 == 0:
            curve.append([i, h])
        logits = logits + rate * np.sign(up)
    policy = graph.policy(logits)
    watched[str(WATCHED[-1])] = expected_steps(graph, policy)
    curve.append([WATCHED[-1], watched[str(WATCHED[-1])]])
    return {"h": watched, "lowest": float(policy.min()), "all positive": positive, "curve": curve}

"""The authors' released potentials: what the published rule finds there, and what the mended form would test and keep.

The file holds estimates alone: no chance of a token under the sampler, and nothing to sample from. What can be said
of a listed cliff is whether its entropy rules a test out, its p-value on the one batch there is, and whether the places
around it agree.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from clew.methods.cliffs import Counts, statistics
from papers.experiment import Line, each

PATHS = Path(__file__).resolve().parents[3] / "shared" / "data" / "cliffs" / "paths.jsonl.gz"
cost = 0.1


def cells(quick: bool) -> Iterator[Line]:
    """One for each solution; none where the data is absent."""
    if PATHS.exists():
        yield from ({"kind": "path", "path": path["id"], "seed": 0} for path in load())


def load() -> list[dict[str, Any]]:
    with gzip.open(PATHS, "rt") as file:
        return [json.loads(line) for line in file]


def audited(setting: Line, seed: int) -> Line:
    """What is listed, what the rule finds, and what is known of each."""
    path = next(p for p in load() if p["id"] == setting["path"])
    n = int(path["n_rollouts"])
    right = np.round(np.array(path["potential"]) * n).astype(int)
    found = statistics.published(right, n)
    listed = {c["position"]: c for c in path["cliffs"]}
    before, after = Counts.all_decided(right[found - 1], n), Counts.all_decided(right[found], n)
    p, (low, high) = statistics.p_values(before, after), statistics.drop_interval(before, after)
    near = statistics.around(right, found, n)
    again = statistics.p_values(*near)
    rows = []
    for i, position in enumerate(found.tolist()):
        item = listed.get(position)
        bounds = chances(item["entropy"], item["rank"]) if item else (0.0, 1.0)
        rows.append(
            {
                "position": position, "token": path["tokens"][position], "listed": item is not None,
                "type": item["type"] if item else "", "entropy": item["entropy"] if item else None,
                "rank": item["rank"] if item else None, "chance": bounds,
                "before": float(before.potential[i]), "after": float(after.potential[i]),
                "low": float(low[i]), "high": float(high[i]), "p": float(p[i]),
                "near before": float(near[0].potential[i]), "near after": float(near[1].potential[i]),
                "p near": float(again[i]),
            }
        )  # fmt: skip
    chance = [statistics.fire_rate(v, v, n) for v in (right / n)[1:].tolist()]
    return {
        "model": path["model"], "tokens": len(path["tokens"]), "listed": sorted(listed), "found": found.tolist(),
        "cliffs": rows, "false expected": float(np.sum(chance)),
    }  # fmt: skip


def chances(entropy: float, rank: int) -> tuple[float, float]:
    """Least and most chance, at temperature 1, of a token of that rank, by the entropy of the 20 likeliest tokens.

    A greedy chance p of more than 1/2 leaves an entropy of h(p) at least, where one other token has the rest, and
    h(p) + (1 - p) ln 19 at most. The listed entropy is a lower bound of the whole one, which is nearly it at 20 tokens.
    """
    if rank > 1:
        return 0.0, 1 / rank

    def coin(p: float) -> float:
        return float(-p * np.log(p) - (1 - p) * np.log(1 - p))

    top = 1 - 1e-12
    least = brentq(lambda p: coin(p) - entropy, 0.5, top) if entropy < np.log(2) else 1 / 20
    most = brentq(lambda p: coin(p) + (1 - p) * np.log(19) - entropy, 1 / 20 + 1e-9, top)
    return float(least), float(most)


run = each(audited)

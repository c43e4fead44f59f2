"""T4 and T5: what the small target accepts of drafters that differ in one thing each, in expectation over its own
decode loop (see clew.train.drafters.acceptance), by prompt and by position."""

from collections.abc import Iterator

import numpy as np
import torch

from clew.train.drafters import acceptance
from papers.E179_dspark import drafting, small
from papers.experiment import Line, each

PROMPTS = 252  # of each seed: 84 of each domain, the same for all arms
QUICK = 30


def cells(quick: bool) -> Iterator[Line]:
    """Four arms at block 7 over three seeds; the gap of DSpark and DFlash at 3 and 15; three more arms at one seed."""
    if quick:
        yield from ({"kind": "quick", "arm": a, "block": 7, "seed": 0} for a in ("D0", "D1", "D2", "D3"))
        return
    for arm, block, seed in drafting.jobs("small"):
        yield {"kind": "small", "arm": arm, "block": block, "seed": seed}


def cost(cell: Line) -> float:
    """CPU-seconds: measuring, and training where the drafter is not there yet."""
    made = drafting.place(cell["kind"], cell["arm"], cell["block"], cell["seed"]).exists()
    if cell["kind"] == "quick":
        return 2.0 if made else 12.0
    return (2.0 if made else 7.0) * cell["block"] + (0.0 if made else 40.0)


def _measured(setting: Line, seed: int) -> Line:
    """The expected rounds and tokens of every prompt, and rounds that accept at least k, by domain."""
    torch.set_num_threads(1)
    kind, arm, block = setting["kind"], setting["arm"], setting["block"]
    module, count = drafting.drafter(kind, arm, block, seed), QUICK if kind == "quick" else PROMPTS
    rows, walked, overlap = np.arange(count) + seed * count, [], []
    for _, along, chance in acceptance.acceptances(module, drafting.tapped(kind, "held"), rows, drafting.COUNTED):
        walked.append(acceptance.walk(along))
        overlap.append(chance.mean(0))
    reached = np.array([w[1] for w in walked])
    return {
        "rounds": [round(w[0], 4) for w in walked],
        "emitted": [round(float(r.sum()), 4) for r in reached],
        "reached": [reached[d::3].sum(0).round(3).tolist() for d in range(len(small.DOMAINS))],
        "overlap": np.mean(overlap, 0).round(5).tolist(),
        "trained": drafting.made(kind, arm, block, seed),
    }


run = each(_measured)

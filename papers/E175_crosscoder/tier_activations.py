"""Layer 0: which method finds the planted features of one model, by how often they are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from clew.methods.features import crosscoder_files, learning
from papers.E175_crosscoder.activations import WIDTH, plant, recovered
from papers.experiment import Line, apart, each, grid

FIT = {"latents": 256, "k": 8, "batch": 512, "lr": 2e-3, "dead": 100}
RELEASED = {"method": "dedicated", "aux": 0.0}  # as in the released code: dead latents stay dead
METHODS: dict[str, dict[str, Any]] = {
    "plain, TopK": {"method": "plain"},
    "plain, BatchTopK": {"method": "plain", "kind": "batchtopk"},
    "plain, L1": {"method": "plain", "kind": "l1"},
    "dedicated, TopK": RELEASED,
    "dedicated, BatchTopK": {**RELEASED, "kind": "batchtopk"},
    "dedicated, AuxK": {"method": "dedicated"},
    "dedicated, visible 1e-3/0": {**RELEASED, "shared": 1e-3},
    "dedicated, visible 1e-3/1e-3": {**RELEASED, "shared": 1e-3, "exclusive": 1e-3},
    "dedicated, exclusive 1e-3/1e-3": {**RELEASED, "shared": 1e-3, "exclusive": 1e-3, "penalty": "exclusive"},
    "dedicated, shared 1": {**RELEASED, "shared": 1.0},
    "handicap .7": {**RELEASED, "method": "handicap", "gamma": 0.7},
    "handicap .4": {**RELEASED, "method": "handicap", "gamma": 0.4},
    "reseated, TopK": {"method": "reseated"},
    "reseated, BatchTopK": {"method": "reseated", "kind": "batchtopk"},
}
MAIN = ("plain, TopK", "dedicated, TopK", "handicap .4", "reseated, TopK")
cost = 12.0
portions = apart


def cells(quick: bool) -> Iterator[Line]:
    if quick:
        yield from grid(method=MAIN, often=0.03, cosine=0.97, steps=1000, seed=0)
        return
    yield from grid(method=MAIN, often=0.03, cosine=0.97, steps=2000, seed=range(3))
    yield from grid(method=MAIN, often=0.005, cosine=0.97, steps=2000, seed=range(3))
    rest = [name for name in METHODS if name not in MAIN]
    yield from grid(method=rest, often=0.03, cosine=0.97, steps=2000, seed=range(3))
    yield from grid(method=rest, often=0.005, cosine=0.97, steps=2000, seed=range(3))
    yield from grid(method=MAIN, often=0.03, cosine=0.85, steps=2000, seed=range(3))


def _one(setting: Line, seed: int) -> Line:
    made = plant(seed, setting["often"], setting["cosine"])
    how = learning.Learning(**FIT, **METHODS[setting["method"]], steps=setting["steps"], seed=seed)
    module = learning.learn(made.held(seed), WIDTH, how)
    leak = module.leak()
    crosscoder_files.unit_norms(module)
    module.eval()
    states = made.draw(np.random.default_rng([175, seed, 2]), 20_000)
    x = module.scaled(states)
    alive = (module.code(x) > 0).any(0)
    first, shares = np.cumsum([0, *module.design.own]), module.shares()
    number = torch.arange(module.design.latents)
    out: Line = {"leak": leak, "unexplained": module.unexplained(x).tolist(), "alive": int(alive.sum())}
    found, false, anywhere, called = [], [], [], 0
    for model in (0, 1):
        if sum(module.design.own):
            mine = (number >= int(first[model])) & (number < int(first[model + 1])) & alive
        else:
            mine = ((shares if model == 0 else 1 - shares) > learning.PERIOD) & alive
        vectors = module.decoder.view(len(number), 2, -1)[:, model].detach()
        recall, wrong = recovered(vectors[mine], made.own(model))
        found.append(recall)
        false.append(wrong)
        anywhere.append(recovered(vectors[alive], made.own(model))[0])
        called += int(mine.sum())
    means = {"recall": found, "false": false, "anywhere": anywhere}
    return out | {name: float(np.mean(x)) for name, x in means.items()} | {"called": called}


run = each(_one)

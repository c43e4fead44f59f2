"""Tier T6: does DSpark's confidence foretell acceptance, and does sequential temperature scaling calibrate it?

Rounds are drafted freely and verified whole, behind anchors of texts of held-out prompts. The tables are fitted on one
half of the texts and judged on the other.
"""

from collections.abc import Iterator

import numpy as np
import torch

from clew.core.stats import auroc
from clew.models.drafters import ready
from clew.train.drafters import acceptance, temperature_scaling
from papers.E179_dspark import drafting
from papers.experiment import Line, each, grid

SCALED = 2.5  # logits of a head that is made overconfident, for calibration to repair


def cells(quick: bool) -> Iterator[Line]:
    kind, seeds = ("quick", (0,)) if quick else ("small", range(3))
    yield from grid(kind=kind, arm="D3", block=7, seed=seeds)


def cost(cell: Line) -> float:
    made = drafting.place(cell["kind"], cell["arm"], cell["block"], cell["seed"]).exists()
    return (10.0 if cell["kind"] == "quick" else 60.0) + (0.0 if made else 90.0)


def _one(setting: Line, seed: int) -> Line:
    """By position: AUROC, calibration error raw, scaled, and its noise floor; the same of a head scaled wrongly."""
    torch.set_num_threads(1)
    kind = setting["kind"]
    module, (target, _) = drafting.drafter(kind, setting["arm"], setting["block"], seed), drafting.target(kind)
    data, drafter = drafting.tapped(kind, "held"), ready(module)
    half = len(data) // 4  # the last half of the texts, which T4 does not use; of these, one half to fit
    each = 20 if kind == "quick" else 54
    fit, test = (
        acceptance.rounds(target, drafter, data, np.arange(half) + i * half, each, seed=10 * seed + i) for i in (2, 3)
    )
    out: Line = {"fitted_on": len(fit.accepted), "rounds": len(test.accepted), "share": test.mask.mean(0).tolist()}
    for name, factor in (("own", 1.0), ("wrong", SCALED)):
        heat = temperature_scaling.scale(factor * fit.logits, fit.mask)
        out[name] = {"heat": heat.round(4).tolist()}
        for how, t in (("raw", np.ones_like(heat)), ("scaled", heat)):
            chance = temperature_scaling.survival(factor * test.logits, t)
            columns = list(zip(chance.T, test.mask.T, strict=True))
            out[name][how] = {
                "ece": [temperature_scaling.ece(c, y) for c, y in columns],
                "floor": [temperature_scaling.noise_floor(c, seed=seed) for c in chance.T],
                "auroc": [auroc(c, y) for c, y in columns],
            }
    return out


run = each(_one)

"""Cost tables of the load simulations: four made by rule, one measured.

    python -m papers.E179_dspark.tables        # measures an untrained Qwen3 on this machine and writes costs.json

A drafter's costs where none is measured: a quarter of the target's (2 of 8 layers) for the 7 tokens of each row.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from clew.models.engine.costs import Costs

HERE = Path(__file__).resolve().parent
BLOCK, MOST = 7, 512
NAMES = ("jagged", "smooth", "knee", "flat", "measured")


def table(name: str) -> Costs:
    """By name.

    Jagged: 18 ms and .06 ms for each token, padded to multiples of 8, from 65 tokens on of 32, from 257 on of 64
    (specs/E179, section 9.3). Smooth: the same unpadded. Knee: 18 ms up to 128 tokens, then in proportion. Flat: 18 ms.
    """
    if name == "measured":
        held = json.loads((HERE / "costs.json").read_text())
        return Costs(**{k: tuple(v) if isinstance(v, list) else v for k, v in held.items()}).by_process_time()
    tokens = np.arange(1, MOST * (BLOCK + 1) + 1)
    pad = np.where(tokens <= 64, 8, np.where(tokens <= 256, 32, 64))
    seconds = {
        "jagged": 18e-3 + 6e-5 * (-(-tokens // pad) * pad),
        "smooth": 18e-3 + 6e-5 * tokens,
        "knee": 18e-3 * np.maximum(1.0, tokens / 128),
        "flat": np.full(len(tokens), 18e-3),
    }[name]
    rows = tuple(range(1, MOST + 1))
    draft = 2e-3 + 4e-6 * BLOCK * np.arange(1, MOST + 1) * (name != "flat")
    verify = tuple(seconds.tolist())
    return Costs(tuple(tokens.tolist()), verify, rows, verify[:MOST], tuple(draft.tolist()), BLOCK, steps=True)


def main() -> None:
    import torch

    from clew.models.engine.costs import measure
    from clew.models.local import small

    torch.set_num_threads(1)
    model = small([f"w{i}" for i in range(1017)], d=256, layers=8)
    found = measure(model, None, advance=lambda what, done, every: print(f"{done}/{every} {what}", flush=True))
    model.close()
    tokens = BLOCK * np.array(found.rows)
    wall, cpu = (tuple((0.25 * c.verify_seconds(tokens)).tolist()) for c in (found, found.by_process_time()))
    found = replace(found, draft=wall, draft_cpu=cpu)
    (HERE / "costs.json").write_text(json.dumps(asdict(found), indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Cost tables of the load simulations: four made by rule, one measured.

python -m papers.E179_dspark.tables        # measures `large` and its DSpark drafter here and writes costs.json
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from clew.models.engine.speculation.costs import Costs

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

    from clew.models.drafters import ready
    from clew.models.engine.speculation.profile import measure
    from clew.models.local import Local
    from papers.E179_dspark import drafting
    from papers.E179_dspark.tier_exact import Plain

    torch.set_num_threads(1)
    renderer: Any = Plain(())
    model = Local(drafting.target("large")[0], renderer=renderer)
    drafter = ready(drafting.drafter("large", "D3", BLOCK, 0))
    found = measure(model, drafter, advance=lambda what, done, every: print(f"{done}/{every} {what}", flush=True))
    model.close()
    (HERE / "costs.json").write_text(json.dumps(asdict(found), indent=1) + "\n")


if __name__ == "__main__":
    main()

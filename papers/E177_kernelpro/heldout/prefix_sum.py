"""Inclusive prefix sum of floats."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()

kernel = Kernel(
    "prefix_sum",
    SOURCE,
    "prefix_sum",
    arrays=(Array("x", lambda n: n), Array("out", lambda n: n, role="out")),
    sizes=("n",),
    shapes=({"n": 16384}, {"n": 5003}, {"n": 64}, {"n": 3}),
    inputs=lambda rng, n: {"x": rng.standard_normal(n).astype(np.float32)},
    reference=lambda x, n: {"out": np.cumsum(x)},
    flops=lambda n: float(n),
    options=(Option("CHUNKS", (1, 4, 8), "accumulators"), Option("BLOCK", (0, 8), "tile")),
    tolerance=1e-4,
)

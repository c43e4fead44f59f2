"""Histogram of bytes: how often each of the 256 values occurs."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()

kernel = Kernel(
    "histogram",
    SOURCE,
    "histogram",
    arrays=(Array("x", lambda n: n, "uint8"), Array("out", lambda n: 256, "int32", role="out")),
    sizes=("n",),
    shapes=({"n": 32768}, {"n": 10007}, {"n": 256}, {"n": 3}),
    inputs=lambda rng, n: {"x": np.clip(rng.normal(128, 6, n), 0, 255).astype(np.uint8)},
    reference=lambda x, n: {"out": np.bincount(x, minlength=256)},
    flops=lambda n: float(n),
    options=(Option("PRIVATE", (1, 2, 4), "accumulators"), Option("WORDS", (0, 1), "unroll")),
)

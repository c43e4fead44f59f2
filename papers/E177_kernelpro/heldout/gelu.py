"""GELU of every element, in its form with tanh."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()

kernel = Kernel(
    "gelu",
    SOURCE,
    "gelu",
    arrays=(Array("x", lambda n: n), Array("out", lambda n: n, role="out")),
    sizes=("n",),
    shapes=({"n": 4096}, {"n": 1003}, {"n": 64}, {"n": 7}),
    inputs=lambda rng, n: {"x": (2 * rng.standard_normal(n)).astype(np.float32)},
    reference=lambda x, n: {"out": 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))},
    flops=lambda n: 8.0 * n,
    options=(Option("FLOAT", (0, 1), "literals"), Option("FORM", (0, 1, 2), "precision")),
)

"""Squared distances between the points of two small sets."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(a, b, n, m, d):
    return {"out": np.sum((a.reshape(n, 1, d) - b.reshape(1, m, d)) ** 2, axis=2).ravel()}


kernel = Kernel(
    "pairwise",
    SOURCE,
    "pairwise",
    arrays=(
        Array("a", lambda n, m, d: n * d),
        Array("b", lambda n, m, d: m * d),
        Array("out", lambda n, m, d: n * m, role="out"),
    ),
    sizes=("n", "m", "d"),
    shapes=(
        {"n": 64, "m": 64, "d": 16},
        {"n": 37, "m": 29, "d": 11},
        {"n": 9, "m": 101, "d": 3},
        {"n": 2, "m": 1, "d": 1},
    ),
    inputs=lambda rng, n, m, d: {
        "a": rng.standard_normal(n * d).astype(np.float32),
        "b": rng.standard_normal(m * d).astype(np.float32),
    },
    reference=reference,
    flops=lambda n, m, d: 3.0 * n * m * d,
    options=(Option("TRANSPOSED", (0, 1), "layout"), Option("ROWS", (1, 2, 4), "tile")),
)

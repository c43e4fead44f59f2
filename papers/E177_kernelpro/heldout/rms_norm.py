"""Rows divided by their root mean square, times a gain per column."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(x, gain, rows, cols):
    x = x.reshape(rows, cols)
    return {"out": (x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-5) * gain).ravel()}


kernel = Kernel(
    "rms_norm",
    SOURCE,
    "rms_norm",
    arrays=(
        Array("x", lambda rows, cols: rows * cols),
        Array("gain", lambda rows, cols: cols),
        Array("out", lambda rows, cols: rows * cols, role="out"),
    ),
    sizes=("rows", "cols"),
    shapes=({"rows": 32, "cols": 512}, {"rows": 7, "cols": 203}, {"rows": 65, "cols": 33}, {"rows": 1, "cols": 3}),
    inputs=lambda rng, rows, cols: {
        "x": rng.standard_normal(rows * cols).astype(np.float32),
        "gain": rng.uniform(0.5, 1.5, cols).astype(np.float32),
    },
    reference=reference,
    flops=lambda rows, cols: 4.0 * rows * cols,
    options=(Option("SUMS", (1, 4, 16), "accumulators"), Option("INVERSE", (0, 1), "fast-math")),
)

"""Product of a matrix and a vector of int8, with int32 results."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(w, x, rows, cols):
    return {"y": w.reshape(rows, cols).astype(np.int64) @ x.astype(np.int64)}


kernel = Kernel(
    "int8_dot",
    SOURCE,
    "int8_dot",
    arrays=(
        Array("w", lambda rows, cols: rows * cols, "int8"),
        Array("x", lambda rows, cols: cols, "int8"),
        Array("y", lambda rows, cols: rows, "int32", role="out"),
    ),
    sizes=("rows", "cols"),
    shapes=({"rows": 256, "cols": 256}, {"rows": 67, "cols": 131}, {"rows": 5, "cols": 1003}, {"rows": 1, "cols": 3}),
    inputs=lambda rng, rows, cols: {
        "w": rng.integers(-128, 128, rows * cols, dtype=np.int8),
        "x": rng.integers(-128, 128, cols, dtype=np.int8),
    },
    reference=reference,
    flops=lambda rows, cols: 2.0 * rows * cols,
    options=(Option("ROWS", (1, 2, 4), "tile"), Option("WIDE", (0, 1), "precision")),
)

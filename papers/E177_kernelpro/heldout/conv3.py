"""Convolution of an image with 3x3 weights, only where they fit entirely (not flipped)."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(x, w, rows, cols):
    windows = np.lib.stride_tricks.sliding_window_view(x.reshape(rows, cols), (3, 3))
    return {"out": np.einsum("ijkl,kl->ij", windows, w.reshape(3, 3)).ravel()}


kernel = Kernel(
    "conv3",
    SOURCE,
    "conv3",
    arrays=(
        Array("x", lambda rows, cols: rows * cols),
        Array("w", lambda rows, cols: 9),
        Array("out", lambda rows, cols: (rows - 2) * (cols - 2), role="out"),
    ),
    sizes=("rows", "cols"),
    shapes=({"rows": 98, "cols": 98}, {"rows": 37, "cols": 53}, {"rows": 5, "cols": 131}, {"rows": 3, "cols": 3}),
    inputs=lambda rng, rows, cols: {
        "x": rng.standard_normal(rows * cols).astype(np.float32),
        "w": rng.standard_normal(9).astype(np.float32),
    },
    reference=reference,
    flops=lambda rows, cols: 18.0 * (rows - 2) * (cols - 2),
    options=(Option("ORDER", (0, 1, 2), "interchange"), Option("TAPS", (0, 1), "unroll")),
)

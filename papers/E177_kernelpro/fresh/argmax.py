"""Place of the largest value of each row."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(x, rows, cols):
    return {"out": x.reshape(rows, cols).argmax(1).astype(np.int32)}


kernel = Kernel(
    "argmax",
    SOURCE,
    "argmax",
    arrays=(Array("x", lambda rows, cols: rows * cols), Array("out", lambda rows, cols: rows, "int32", role="out")),
    sizes=("rows", "cols"),
    shapes=({"rows": 384, "cols": 1000}, {"rows": 9, "cols": 37}, {"rows": 5, "cols": 3}),
    inputs=lambda rng, rows, cols: {"x": rng.standard_normal(rows * cols).astype(np.float32)},
    reference=reference,
    flops=lambda rows, cols: 1.0 * rows * cols,
    options=(Option("ACC", (1, 4, 8), "accumulators"), Option("PASSES", (1, 2), "simd")),
)

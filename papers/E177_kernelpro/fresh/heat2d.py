"""Heat on a plate: sweeps of the five-point stencil; the rim stays as it is."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(x, rows, cols, sweeps):
    u = x.reshape(rows, cols).copy()
    for _ in range(sweeps):
        near = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        u[1:-1, 1:-1] += 0.2 * (near - 4 * u[1:-1, 1:-1])
    return {"out": u.ravel()}


kernel = Kernel(
    "heat2d",
    SOURCE,
    "heat2d",
    arrays=(
        Array("x", lambda rows, cols, sweeps: rows * cols),
        Array("out", lambda rows, cols, sweeps: rows * cols, role="out"),
    ),
    sizes=("rows", "cols", "sweeps"),
    shapes=(
        {"rows": 254, "cols": 254, "sweeps": 6},
        {"rows": 19, "cols": 37, "sweeps": 5},
        {"rows": 4, "cols": 3, "sweeps": 3},
    ),
    inputs=lambda rng, rows, cols, sweeps: {"x": rng.standard_normal(rows * cols).astype(np.float32)},
    reference=reference,
    flops=lambda rows, cols, sweeps: 7.0 * (rows - 2) * (cols - 2) * sweeps,
    options=(Option("TIME", (0, 1, 2), "tile"), Option("ROWS", (1, 2), "register-block")),
)

"""Product of a matrix and a vector of int8, with int32 results."""

import numpy as np

from clew.coding.kernels.kernel import Array, Kernel, Option

SOURCE = """
#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void int8_dot(const signed char *RESTRICT w, const signed char *RESTRICT x, int *RESTRICT y, long rows, long cols) {
    long i = 0;
#if WIDE /* the vector widened once, for products of 16 bits */
    short v[cols];
    for (long j = 0; j < cols; j++)
        v[j] = x[j];
#else
    const signed char *v = x;
#endif
#if ROWS > 1
    for (; i + ROWS <= rows; i += ROWS) {
        int s[ROWS];
        for (long r = 0; r < ROWS; r++)
            s[r] = 0;
        for (long j = 0; j < cols; j++)
            for (long r = 0; r < ROWS; r++)
                s[r] += w[(i + r) * cols + j] * v[j];
        for (long r = 0; r < ROWS; r++)
            y[i + r] = s[r];
    }
#endif
    for (; i < rows; i++) {
        int s = 0;
#ifdef SIMD
#pragma omp simd reduction(+ : s)
#endif
        for (long j = 0; j < cols; j++)
            s += w[i * cols + j] * v[j];
        y[i] = s;
    }
}
"""


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
    shapes=(
        {"rows": 256, "cols": 256},
        {"rows": 67, "cols": 131},
        {"rows": 5, "cols": 1003},
        {"rows": 1, "cols": 3},
    ),
    inputs=lambda rng, rows, cols: {
        "w": rng.integers(-128, 128, rows * cols, dtype=np.int8),
        "x": rng.integers(-128, 128, cols, dtype=np.int8),
    },
    reference=reference,
    flops=lambda rows, cols: 2.0 * rows * cols,
    options=(Option("ROWS", (1, 2, 4), "tile"), Option("WIDE", (0, 1), "precision")),
)

"""Rows divided by their root mean square, times a gain per column."""

import numpy as np

from clew.coding.kernels.kernel import Array, Kernel, Option

SOURCE = """
#include <math.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void rms_norm(const float *RESTRICT x, const float *RESTRICT gain, float *RESTRICT out, long rows, long cols) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * cols;
        float s = 0;
        long j = 0;
#if SUMS > 1
        float t[SUMS];
        for (long a = 0; a < SUMS; a++)
            t[a] = 0;
        for (; j + SUMS <= cols; j += SUMS)
            for (long a = 0; a < SUMS; a++)
                t[a] += row[j + a] * row[j + a];
        for (long a = 0; a < SUMS; a++)
            s += t[a];
#elif defined SIMD
#pragma omp simd reduction(+ : s)
#endif
        for (long k = j; k < cols; k++)
            s += row[k] * row[k];
        float rms = sqrtf(s / cols + 1e-5f);
#if INVERSE
        float inverse = 1 / rms;
#endif
#ifdef SIMD
#pragma omp simd
#endif
        for (long k = 0; k < cols; k++)
#if INVERSE
            out[i * cols + k] = row[k] * inverse * gain[k];
#else
            out[i * cols + k] = row[k] / rms * gain[k];
#endif
    }
}
"""


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

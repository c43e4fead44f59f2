"""Squared distances between the points of two small sets."""

import numpy as np

from clew.coding.kernels.kernel import Array, Kernel, Option

SOURCE = """
#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void pairwise(const float *RESTRICT a, const float *RESTRICT b, float *RESTRICT out, long n, long m, long d) {
    long i = 0;
#if TRANSPOSED /* coordinates of b one after the other, so that j can be innermost */
    float t[m * d];
    for (long j = 0; j < m; j++)
        for (long k = 0; k < d; k++)
            t[k * m + j] = b[j * d + k];
    for (; i + ROWS <= n; i += ROWS) {
        for (long p = i * m; p < (i + ROWS) * m; p++)
            out[p] = 0;
        for (long k = 0; k < d; k++)
#ifdef SIMD
#pragma omp simd
#endif
            for (long j = 0; j < m; j++)
                for (long r = 0; r < ROWS; r++) {
                    float e = a[(i + r) * d + k] - t[k * m + j];
                    out[(i + r) * m + j] += e * e;
                }
    }
#elif ROWS > 1
    for (; i + ROWS <= n; i += ROWS)
        for (long j = 0; j < m; j++) {
            float s[ROWS];
            for (long r = 0; r < ROWS; r++)
                s[r] = 0;
            for (long k = 0; k < d; k++)
                for (long r = 0; r < ROWS; r++) {
                    float e = a[(i + r) * d + k] - b[j * d + k];
                    s[r] += e * e;
                }
            for (long r = 0; r < ROWS; r++)
                out[(i + r) * m + j] = s[r];
        }
#endif
    for (; i < n; i++)
        for (long j = 0; j < m; j++) {
            float s = 0;
#ifdef SIMD
#pragma omp simd reduction(+ : s)
#endif
            for (long k = 0; k < d; k++) {
                float e = a[i * d + k] - b[j * d + k];
                s += e * e;
            }
            out[i * m + j] = s;
        }
}
"""


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

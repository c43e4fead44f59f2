"""Rotary position embedding: each pair of neighbours within a head is turned by an angle of its position."""

import numpy as np

from clew.coding.kernels.kernel import Array, Kernel, Option

SOURCE = """
#include <math.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

#if FLOAT
#define REAL float
#define FREQUENCY(i) powf(10000.0f, -2.0f * (i) / dim)
#define COS cosf
#define SIN sinf
#else
#define REAL double
#define FREQUENCY(i) pow(10000.0, -2.0 * (i) / dim)
#define COS cos
#define SIN sin
#endif

void rope(const float *RESTRICT x, float *RESTRICT out, long positions, long heads, long dim) {
    long half = dim / 2;
#if ORDER == 0
    for (long t = 0; t < positions; t++)
        for (long h = 0; h < heads; h++)
#ifdef SIMD
#pragma omp simd
#endif
            for (long i = 0; i < half; i++) {
                REAL angle = t * FREQUENCY(i);
                float c = COS(angle), s = SIN(angle);
                long p = (t * heads + h) * dim + 2 * i;
                out[p] = x[p] * c - x[p + 1] * s;
                out[p + 1] = x[p] * s + x[p + 1] * c;
            }
#else
#if ORDER == 1 /* an angle once for all heads */
    for (long t = 0; t < positions; t++)
        for (long i = 0; i < half; i++) {
            REAL angle = t * FREQUENCY(i);
#else /* a frequency once for all positions, too */
    for (long i = 0; i < half; i++) {
        REAL frequency = FREQUENCY(i);
        for (long t = 0; t < positions; t++) {
            REAL angle = t * frequency;
#endif
            float c = COS(angle), s = SIN(angle);
#ifdef SIMD
#pragma omp simd
#endif
            for (long h = 0; h < heads; h++) {
                long p = (t * heads + h) * dim + 2 * i;
                out[p] = x[p] * c - x[p + 1] * s;
                out[p + 1] = x[p] * s + x[p + 1] * c;
            }
        }
#if ORDER == 2
    }
#endif
#endif
}
"""


def reference(x, positions, heads, dim):
    pairs = x.reshape(positions, heads, dim // 2, 2)
    angle = np.arange(positions)[:, None] * 10000.0 ** (-2.0 * np.arange(dim // 2) / dim)
    c, s = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    a, b = pairs[..., 0], pairs[..., 1]
    return {"out": np.stack([a * c - b * s, a * s + b * c], -1).ravel()}


kernel = Kernel(
    "rope",
    SOURCE,
    "rope",
    arrays=(
        Array("x", lambda positions, heads, dim: positions * heads * dim),
        Array("out", lambda positions, heads, dim: positions * heads * dim, role="out"),
    ),
    sizes=("positions", "heads", "dim"),
    shapes=(
        {"positions": 64, "heads": 8, "dim": 64},
        {"positions": 7, "heads": 3, "dim": 10},
        {"positions": 33, "heads": 1, "dim": 6},
    ),
    inputs=lambda rng, positions, heads, dim: {"x": rng.standard_normal(positions * heads * dim).astype(np.float32)},
    reference=reference,
    flops=lambda positions, heads, dim: 3.0 * positions * heads * dim,
    options=(Option("ORDER", (0, 1, 2), "interchange"), Option("FLOAT", (0, 1), "literals")),
)

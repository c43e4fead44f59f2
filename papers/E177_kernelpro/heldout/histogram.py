"""Histogram of bytes: how often each of the 256 values occurs."""

import numpy as np

from clew.coding.kernels.kernel import Array, Kernel, Option

SOURCE = """
#include <string.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void histogram(const unsigned char *RESTRICT x, int *RESTRICT out, long n) {
#if PRIVATE == 1
    int (*count)[256] = (int (*)[256])out;
#else
    int count[PRIVATE][256];
#endif
    long i = 0;
    for (long c = 0; c < PRIVATE; c++)
        for (long b = 0; b < 256; b++)
            count[c][b] = 0;
#if WORDS
    for (; i + 8 <= n; i += 8) {
        unsigned long w;
        memcpy(&w, x + i, 8);
        count[0][w & 255]++;
        count[1 % PRIVATE][w >> 8 & 255]++;
        count[2 % PRIVATE][w >> 16 & 255]++;
        count[3 % PRIVATE][w >> 24 & 255]++;
        count[4 % PRIVATE][w >> 32 & 255]++;
        count[5 % PRIVATE][w >> 40 & 255]++;
        count[6 % PRIVATE][w >> 48 & 255]++;
        count[7 % PRIVATE][w >> 56]++;
    }
#elif PRIVATE > 1
    for (; i + PRIVATE <= n; i += PRIVATE)
        for (long c = 0; c < PRIVATE; c++)
            count[c][x[i + c]]++;
#endif
    for (; i < n; i++)
        count[0][x[i]]++;
#if PRIVATE > 1
    for (long b = 0; b < 256; b++) {
        int s = 0;
        for (long c = 0; c < PRIVATE; c++)
            s += count[c][b];
        out[b] = s;
    }
#endif
}
"""

kernel = Kernel(
    "histogram",
    SOURCE,
    "histogram",
    arrays=(Array("x", lambda n: n, "uint8"), Array("out", lambda n: 256, "int32", role="out")),
    sizes=("n",),
    shapes=({"n": 32768}, {"n": 10007}, {"n": 256}, {"n": 3}),
    inputs=lambda rng, n: {"x": np.clip(rng.normal(128, 6, n), 0, 255).astype(np.uint8)},
    reference=lambda x, n: {"out": np.bincount(x, minlength=256)},
    flops=lambda n: float(n),
    options=(Option("PRIVATE", (1, 2, 4), "accumulators"), Option("WORDS", (0, 1), "unroll")),
)

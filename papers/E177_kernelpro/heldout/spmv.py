"""Product of a sparse matrix, in compressed rows, and a vector."""

import numpy as np

from clew.coding.kernels.kernel import Array, Kernel, Option

SOURCE = """
#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

static inline float part(const float *RESTRICT val, const int *RESTRICT col, const float *RESTRICT x, int k, int end) {
    float s = 0;
#if SUMS > 1
    float t[SUMS];
    for (int a = 0; a < SUMS; a++)
        t[a] = 0;
    for (; k + SUMS <= end; k += SUMS)
        for (int a = 0; a < SUMS; a++)
            t[a] += val[k + a] * x[col[k + a]];
    for (int a = 0; a < SUMS; a++)
        s += t[a];
#elif defined SIMD
#pragma omp simd reduction(+ : s)
#endif
    for (int p = k; p < end; p++)
        s += val[p] * x[col[p]];
    return s;
}

void spmv(const float *RESTRICT val, const int *RESTRICT col, const int *RESTRICT start, const float *RESTRICT x,
          float *RESTRICT y, long rows, long cols, long nnz) {
    long i = 0;
#if ROWS == 2
    for (; i + 2 <= rows; i += 2) {
        int p = start[i], q = start[i + 1], end = start[i + 2];
        int both = q - p < end - q ? q - p : end - q;
        float s = 0, t = 0;
        for (int k = 0; k < both; k++) {
            s += val[p + k] * x[col[p + k]];
            t += val[q + k] * x[col[q + k]];
        }
        y[i] = s + part(val, col, x, p + both, q);
        y[i + 1] = t + part(val, col, x, q + both, end);
    }
#endif
    for (; i < rows; i++)
        y[i] = part(val, col, x, start[i], start[i + 1]);
}
"""


def inputs(rng, rows, cols, nnz):
    counts = rng.multinomial(nnz, rng.dirichlet(np.full(rows, 4.0)))
    col = rng.integers(0, cols, nnz)
    order = np.lexsort((col, np.repeat(np.arange(rows), counts)))
    return {
        "val": rng.standard_normal(nnz).astype(np.float32),
        "col": col[order].astype(np.int32),
        "start": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "x": rng.standard_normal(cols).astype(np.float32),
    }


def reference(val, col, start, x, rows, cols, nnz):
    return {"y": np.bincount(np.repeat(np.arange(rows), np.diff(start)), weights=val * x[col], minlength=rows)}


kernel = Kernel(
    "spmv",
    SOURCE,
    "spmv",
    arrays=(
        Array("val", lambda rows, cols, nnz: nnz),
        Array("col", lambda rows, cols, nnz: nnz, "int32"),
        Array("start", lambda rows, cols, nnz: rows + 1, "int32"),
        Array("x", lambda rows, cols, nnz: cols),
        Array("y", lambda rows, cols, nnz: rows, role="out"),
    ),
    sizes=("rows", "cols", "nnz"),
    shapes=(
        {"rows": 1000, "cols": 2000, "nnz": 20000},
        {"rows": 101, "cols": 67, "nnz": 1511},
        {"rows": 7, "cols": 300, "nnz": 907},
        {"rows": 3, "cols": 2, "nnz": 4},
    ),
    inputs=inputs,
    reference=reference,
    flops=lambda rows, cols, nnz: 2.0 * nnz,
    options=(Option("SUMS", (1, 2, 4), "accumulators"), Option("ROWS", (1, 2), "tile")),
)

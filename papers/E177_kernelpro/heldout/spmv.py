"""Product of a sparse matrix, in compressed rows, and a vector."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


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

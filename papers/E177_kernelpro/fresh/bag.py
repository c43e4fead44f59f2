"""Weighted sum of the table's rows that each bag names (embedding bag)."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(table, index, weight, vocab, bags, per, dim):
    rows = table.reshape(vocab, dim)[index.reshape(bags, per)]
    return {"out": np.einsum("bkd,bk->bd", rows, weight.reshape(bags, per)).ravel()}


kernel = Kernel(
    "bag",
    SOURCE,
    "bag",
    arrays=(
        Array("table", lambda vocab, bags, per, dim: vocab * dim),
        Array("index", lambda vocab, bags, per, dim: bags * per, "int32"),
        Array("weight", lambda vocab, bags, per, dim: bags * per),
        Array("out", lambda vocab, bags, per, dim: bags * dim, role="out"),
    ),
    sizes=("vocab", "bags", "per", "dim"),
    shapes=(
        {"vocab": 4000, "bags": 128, "per": 32, "dim": 64},
        {"vocab": 101, "bags": 7, "per": 11, "dim": 37},
        {"vocab": 5, "bags": 3, "per": 3, "dim": 1},
    ),
    inputs=lambda rng, vocab, bags, per, dim: {
        "table": rng.standard_normal(vocab * dim).astype(np.float32),
        "index": rng.integers(0, vocab, bags * per).astype(np.int32),
        "weight": rng.uniform(0, 1, bags * per).astype(np.float32),
    },
    reference=reference,
    flops=lambda vocab, bags, per, dim: 2.0 * bags * per * dim,
    options=(Option("ORDER", (0, 1), "interchange"), Option("ITEMS", (1, 4), "unroll")),
)

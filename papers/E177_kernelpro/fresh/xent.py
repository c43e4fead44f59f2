"""Cross-entropy of each row of logits with its label."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(x, label, rows, classes):
    x = x.reshape(rows, classes)
    m = x.max(1)
    return {"loss": np.log(np.exp(x - m[:, None]).sum(1)) + m - x[np.arange(rows), label]}


kernel = Kernel(
    "xent",
    SOURCE,
    "xent",
    arrays=(
        Array("x", lambda rows, classes: rows * classes),
        Array("label", lambda rows, classes: rows, "int32"),
        Array("loss", lambda rows, classes: rows, role="out"),
    ),
    sizes=("rows", "classes"),
    shapes=({"rows": 200, "classes": 500}, {"rows": 5, "classes": 37}, {"rows": 11, "classes": 3}),
    inputs=lambda rng, rows, classes: {
        "x": (4 * rng.standard_normal(rows * classes)).astype(np.float32),
        "label": rng.integers(0, classes, rows).astype(np.int32),
    },
    reference=reference,
    flops=lambda rows, classes: 4.0 * rows * classes,
    options=(Option("EXP", (0, 1), "vector-libm"), Option("ACC", (1, 2, 4), "accumulators")),
)

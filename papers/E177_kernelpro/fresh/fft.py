"""Complex Fourier transforms of a batch, radix 2 with a table of roots; the length is a power of two."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def inputs(rng, batch, n):
    roots = np.exp(-2j * np.pi * np.arange(n // 2) / n).astype(np.complex64)
    return {"x": rng.standard_normal(2 * batch * n).astype(np.float32), "roots": roots.view(np.float32)}


def reference(x, roots, batch, n):
    return {"out": np.fft.fft(x.view(np.complex128).reshape(batch, n)).ravel().view(np.float64)}


kernel = Kernel(
    "fft",
    SOURCE,
    "fft",
    arrays=(
        Array("x", lambda batch, n: 2 * batch * n),
        Array("roots", lambda batch, n: 2 * (n // 2)),
        Array("out", lambda batch, n: 2 * batch * n, role="out"),
    ),
    sizes=("batch", "n"),
    shapes=({"batch": 24, "n": 1024}, {"batch": 5, "n": 32}, {"batch": 3, "n": 2}),
    inputs=inputs,
    reference=reference,
    flops=lambda batch, n: 5.0 * batch * n * (n.bit_length() - 1),
    options=(Option("ORDER", (0, 1, 2), "interchange"), Option("REALS", (0, 1), "fast-math")),
)

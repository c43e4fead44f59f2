"""Bundled kernels, each in its plainest form with the changes a person would try; ``load`` finds one, or a user's own.

The tuning world and tests read it. A bundled kernel must never change its name or its inputs: stored runs repeat them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.coding.kernels.kernel import Array, Kernel, Option
from clew.core.errors import BadInput, UnknownName

F64 = npt.NDArray[np.float64]

SIMD = """
#ifdef SIMD
#define VECTORISE _Pragma("omp simd")
#define VECTORISE_SUM(s) _Pragma(TEXT(omp simd reduction(+:s)))
#define TEXT(x) #x
#else
#define VECTORISE
#define VECTORISE_SUM(s)
#endif
"""


def _normal(rng: np.random.Generator, *lengths: int) -> list[Any]:
    return [rng.standard_normal(n).astype(np.float32) for n in lengths]


DOT = Kernel(
    "dot",
    SIMD
    + """
void dot(const float *restrict x, const float *restrict y, float *restrict out, long n) {
#if SUMS == 1
    float s = 0;
    VECTORISE_SUM(s)
    for (long i = 0; i < n; i++)
        s += x[i] * y[i];
    out[0] = s;
#else
    float s[SUMS] = {0};
    long i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            s[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        s[0] += x[i] * y[i];
    for (int k = 1; k < SUMS; k++)
        s[0] += s[k];
    out[0] = s[0];
#endif
}
""",
    "dot",
    (Array("x", lambda n: n), Array("y", lambda n: n), Array("out", lambda n: 1, role="out")),
    ("n",),
    ({"n": 16384}, {"n": 1000}, {"n": 37}),
    lambda rng, n: dict(zip("xy", _normal(rng, n, n), strict=True)),
    lambda x, y, n: {"out": np.array([x @ y])},
    lambda n: 2.0 * n,
    (Option("SUMS", (1, 8, 32), "accumulators"),),
    tolerance=1e-4,
)

STENCIL = Kernel(
    "stencil",
    SIMD
    + """
#if DOUBLE
#define C(x) x
#else
#define C(x) x##f
#endif
void stencil(const float *restrict x, float *restrict out, long n) {
    out[0] = x[0];
    VECTORISE
    for (long i = 1; i < n - 1; i++)
        out[i] = C(0.25) * x[i - 1] + C(0.5) * x[i] + C(0.25) * x[i + 1];
    out[n - 1] = x[n - 1];
}
""",
    "stencil",
    (Array("x", lambda n: n), Array("out", lambda n: n, role="out")),
    ("n",),
    ({"n": 16384}, {"n": 1000}, {"n": 37}),
    lambda rng, n: {"x": _normal(rng, n)[0]},
    lambda x, n: {"out": np.concatenate([x[:1], 0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:], x[-1:]])},
    lambda n: 5.0 * n,
    (Option("DOUBLE", (1, 0), "literals"),),
)

SOFTMAX = Kernel(
    "softmax",
    "#include <math.h>"
    + SIMD
    + """
void softmax(const float *restrict x, float *restrict out, long rows, long n) {
    for (long r = 0; r < rows; r++) {
        const float *restrict a = x + r * n;
        float *restrict o = out + r * n;
        float top = a[0], sum = 0;
        for (long i = 1; i < n; i++)
            top = a[i] > top ? a[i] : top;
        VECTORISE
        for (long i = 0; i < n; i++)
            o[i] = expf(a[i] - top);
        VECTORISE_SUM(sum)
        for (long i = 0; i < n; i++)
            sum += o[i];
        VECTORISE
        for (long i = 0; i < n; i++)
#if DIVIDE
            o[i] /= sum;
#else
            o[i] *= 1 / sum;
#endif
    }
}
""",
    "softmax",
    (Array("x", lambda rows, n: rows * n), Array("out", lambda rows, n: rows * n, role="out")),
    ("rows", "n"),
    ({"rows": 16, "n": 1024}, {"rows": 3, "n": 77}, {"rows": 1, "n": 5}),
    lambda rng, rows, n: {"x": _normal(rng, rows * n)[0]},
    lambda x, rows, n: {"out": _softmax(x.reshape(rows, n))},
    lambda rows, n: 5.0 * rows * n,
    (Option("DIVIDE", (1, 0), "precision"),),
)


def _softmax(x: F64) -> F64:
    e = np.exp(x - x.max(1, keepdims=True))
    return np.ravel(e / e.sum(1, keepdims=True))


LAYERNORM = Kernel(
    "layernorm",
    "#include <math.h>"
    + SIMD
    + """
#if DOUBLE
#define real double
#else
#define real float
#endif
void layernorm(const float *restrict x, const float *restrict w, const float *restrict b, float *restrict out,
               long rows, long n) {
    for (long r = 0; r < rows; r++) {
        const float *restrict a = x + r * n;
        real mean = 0, square = 0;
        VECTORISE_SUM(mean)
        for (long i = 0; i < n; i++)
            mean += a[i];
        mean /= n;
        VECTORISE_SUM(square)
        for (long i = 0; i < n; i++)
            square += (a[i] - mean) * (a[i] - mean);
        real scale = 1 / sqrt(square / n + 1e-5);
        VECTORISE
        for (long i = 0; i < n; i++)
            out[r * n + i] = (a[i] - mean) * scale * w[i] + b[i];
    }
}
""",
    "layernorm",
    (
        Array("x", lambda rows, n: rows * n),
        Array("w", lambda rows, n: n),
        Array("b", lambda rows, n: n),
        Array("out", lambda rows, n: rows * n, role="out"),
    ),
    ("rows", "n"),
    ({"rows": 16, "n": 1024}, {"rows": 3, "n": 77}, {"rows": 1, "n": 5}),
    lambda rng, rows, n: dict(zip("xwb", _normal(rng, rows * n, n, n), strict=True)),
    lambda x, w, b, rows, n: {"out": _layernorm(x.reshape(rows, n), w, b)},
    lambda rows, n: 8.0 * rows * n,
    (Option("DOUBLE", (1, 0), "literals"),),
)


def _layernorm(x: F64, w: F64, b: F64) -> F64:
    centred = x - x.mean(1, keepdims=True)
    return np.ravel(centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * w + b)


GEMM = Kernel(
    "gemm",
    SIMD
    + """
static void block(const float *restrict a, const float *restrict b, float *restrict c, long n, long k0, long k1,
                  long j0, long j1) {
    for (long i = 0; i < n; i++) {
#if ORDER == 0
        for (long j = j0; j < j1; j++) {
            float s = c[i * n + j];
            VECTORISE_SUM(s)
            for (long k = k0; k < k1; k++)
                s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
#else
        for (long k = k0; k < k1; k++) {
            float v = a[i * n + k];
            VECTORISE
            for (long j = j0; j < j1; j++)
                c[i * n + j] += v * b[k * n + j];
        }
#endif
    }
}
void gemm(const float *restrict a, const float *restrict b, float *restrict c, long n) {
    for (long i = 0; i < n * n; i++)
        c[i] = 0;
    long t = TILE ? TILE : n;
    for (long k = 0; k < n; k += t)
        for (long j = 0; j < n; j += t)
            block(a, b, c, n, k, k + t < n ? k + t : n, j, j + t < n ? j + t : n);
}
""",
    "gemm",
    (
        Array("a", lambda n: n * n),
        Array("b", lambda n: n * n),
        Array("c", lambda n: n * n, role="out"),
    ),
    ("n",),
    ({"n": 192}, {"n": 67}, {"n": 5}),
    lambda rng, n: dict(zip("ab", _normal(rng, n * n, n * n), strict=True)),
    lambda a, b, n: {"c": (a.reshape(n, n) @ b.reshape(n, n)).ravel()},
    lambda n: 2.0 * n**3,
    (Option("ORDER", (0, 1), "interchange"), Option("TILE", (0, 32, 64), "tile")),
    gemm=True,
)

TRANSPOSE = Kernel(
    "transpose",
    """
void transpose(const float *restrict x, float *restrict out, long n) {
    long t = TILE ? TILE : n;
    for (long i0 = 0; i0 < n; i0 += t)
        for (long j0 = 0; j0 < n; j0 += t)
            for (long i = i0; i < (i0 + t < n ? i0 + t : n); i++)
                for (long j = j0; j < (j0 + t < n ? j0 + t : n); j++)
                    out[j * n + i] = x[i * n + j];
}
""",
    "transpose",
    (Array("x", lambda n: n * n), Array("out", lambda n: n * n, role="out")),
    ("n",),
    ({"n": 1024}, {"n": 67}, {"n": 5}),
    lambda rng, n: {"x": _normal(rng, n * n)[0]},
    lambda x, n: {"out": x.reshape(n, n).T.ravel()},
    lambda n: 0.0,
    (Option("TILE", (0, 8, 16, 32, 64), "tile"),),
)

CATALOGUE = {kernel.name: kernel for kernel in (DOT, STENCIL, SOFTMAX, LAYERNORM, GEMM, TRANSPOSE)}


def load(name: str) -> Kernel:
    """A bundled kernel by name, or the ``kernel`` of a Python file.

    Raises:
        UnknownName: no such kernel or file. BadInput: the file does not define one.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    path = Path(name)
    if path.suffix in (".cu", ".cuh", ".cubin", ".ptx"):
        raise BadInput(
            f"{name}: kernels are tuned on the CPU; one for a GPU is diagnosed, not run",
            remedy="nvcc -cubin -Xptxas -v k.cu 2> k.txt; clew kernels explain k.cubin --ptxas k.txt",
        )
    if not path.is_file():
        raise UnknownName(
            f"no kernel {name!r}",
            remedy=f"Bundled: {', '.join(CATALOGUE)}; or give a Python file that defines `kernel`.",
        )
    spec = importlib.util.spec_from_file_location(f"kernel_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is no Python file", remedy="Give a .py file that defines `kernel = Kernel(...)`.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadInput(f"{path} does not load: {type(error).__name__}: {error}", remedy="Mend the file.") from error
    found = getattr(module, "kernel", None)
    if not isinstance(found, Kernel):
        raise BadInput(f"{path} defines no `kernel`", remedy="Let it say kernel = Kernel(...); see docs/kernels.md.")
    return found

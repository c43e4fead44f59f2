"""Bundled kernels, each in its plainest form with the changes a person would try; ``load`` finds one, or a user's own.

The tuning world and tests read it. A bundled kernel must never change its name or its inputs: stored runs repeat them.
"""

from __future__ import annotations

import importlib.util
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, UnknownName
from clew.methods.kernels.kernel import Array, Kernel, Option
from clew.methods.kernels.program import Program, program

F64 = npt.NDArray[np.float64]


def _source(name: str) -> str:
    """The C text of a bundled kernel, whole: what its file in ``sources`` includes of ours stands in it."""
    folder = files("clew.methods.kernels") / "sources"
    text = (folder / f"{name}.c").read_text()
    return text.replace('\n#include "simd.h"\n', (folder / "simd.h").read_text())


def _normal(rng: np.random.Generator, *lengths: int) -> list[Any]:
    return [rng.standard_normal(n).astype(np.float32) for n in lengths]


DOT = Kernel(
    "dot",
    _source("dot"),
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
    _source("stencil"),
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
    _source("softmax"),
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
    _source("layernorm"),
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
    _source("gemm"),
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
    _source("transpose"),
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


def load(name: str) -> Kernel | Program:
    """A bundled kernel by name, the ``kernel`` of a Python file, or a C file.

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
    if path.suffix in (".cpp", ".cc", ".cxx", ".h"):
        raise BadInput(
            f"{name}: kernels are tuned in C", remedy="Give a .c file, or a Python file that defines `kernel`."
        )
    if not path.is_file():
        raise UnknownName(
            f"no kernel {name!r}",
            remedy=f"Bundled: {', '.join(CATALOGUE)}; or give a C file, or a Python file that defines `kernel`.",
        )
    if path.suffix == ".c":
        return program(path)
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

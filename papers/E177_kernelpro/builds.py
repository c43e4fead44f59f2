"""Labelled builds for the fallback detector: each source with flags under which its hot loop does, or does not, run on a
slow path. The label is by construction, from how the source and flags were chosen, and not from what any rule says.

PAIRS are the same work on the slow and on the fast path, for the question whether utilisation could tell them apart.
"""

# ruff: noqa: E501  (C sources read better in one line each)
from typing import NamedTuple

AVX2 = "-O3 -mavx2 -mfma"
FAST = f"{AVX2} -ffast-math"


class Build(NamedTuple):
    name: str
    kind: str  # of the slow path: reduction, literal, aliasing, libm, isa, gather; or "none"
    flags: str
    source: str  # defines void k(...)


def _loop(body: str, before: str = "", after: str = "", restrict: str = "restrict", head: str = "") -> str:
    return (
        f"#include <math.h>\n{head}\n"
        f"void k(const float *{restrict} x, const float *{restrict} y, float *{restrict} out, const int *{restrict} at, long n) {{\n"
        f"    {before}\n    for (long i = 0; i < n; i++) {{\n        {body}\n    }}\n    {after}\n}}\n"
    )


SUM = _loop("s += x[i];", "float s = 0;", "out[0] = s;")
DOT = _loop("s += x[i] * y[i];", "float s = 0;", "out[0] = s;")
NORM = _loop("float d = x[i] - y[i]; s += d * d;", "float s = 0;", "out[0] = s;")
PEAK = _loop("s = x[i] > s ? x[i] : s;", "float s = x[0];", "out[0] = s;")
TWO = _loop("s += x[i]; q += x[i] * x[i];", "float s = 0, q = 0;", "out[0] = s; out[1] = q;")
SCALE = "out[i] = x[i] * {0} + {1};"
HORNER = "out[i] = (({0} * x[i] + {1}) * x[i] + {2}) * x[i] + {3};"
BLEND = "out[i] = x[i] * {0} + y[i] * (1 - {0});"
INTO = "out[0] += x[i] * y[i];"
BUCKET = "out[i / 64] += x[i];"
EXP, SIN, TANH, POW = (f"out[i] = {f}(x[i]);" for f in ("expf", "sinf", "tanhf", "cbrtf"))
SIGMOID = "out[i] = 1 / (1 + expf(-x[i]));"
AXPY, MUL, RELU = "out[i] = 2.5f * x[i] + y[i];", "out[i] = x[i] * y[i];", "out[i] = x[i] > 0 ? x[i] : 0;"
TAKE, SCATTERED, STRIDE = "out[i] = x[at[i]] * 2.0f;", "s += x[at[i]];", "out[i] = x[7 * i] + 1.0f;"

BUILDS = (
    # Sums that may not be reordered.
    Build("sum", "reduction", AVX2, SUM), Build("dot", "reduction", AVX2, DOT), Build("norm", "reduction", AVX2, NORM),
    Build("peak", "reduction", AVX2, PEAK), Build("two sums", "reduction", AVX2, TWO),
    # Double literals in float arithmetic.
    Build("scale by doubles", "literal", FAST, _loop(SCALE.format("0.3", "0.1"))),
    Build("polynomial of doubles", "literal", FAST, _loop(HORNER.format("0.1", "0.2", "0.3", "0.4"))),
    Build("blend by doubles", "literal", FAST, _loop(BLEND.format("0.3"))),
    Build("root of doubles", "literal", FAST, _loop("out[i] = sqrt(x[i] * x[i] + 0.1);")),
    # A target that could be any of the sources.
    Build("sum into memory", "aliasing", FAST, _loop(INTO, restrict="")),
    Build("sum into memory twice", "aliasing", FAST, _loop("out[0] += x[i]; out[1] += y[i];", restrict="")),
    Build("carried through memory", "aliasing", FAST, _loop("out[i + 1] = out[i] * 0.5f + x[i];", restrict="")),
    # Library calls element by element.
    Build("exponential", "libm", AVX2, _loop(EXP)), Build("sine", "libm", AVX2, _loop(SIN)),
    Build("sigmoid", "libm", AVX2, _loop(SIGMOID)), Build("hyperbolic tangent", "libm", AVX2, _loop(TANH)),
    Build("cube root", "libm", AVX2, _loop(POW)),
    # Not compiled for the machine.
    Build("axpy at O1", "isa", "-O1", _loop(AXPY)), Build("axpy of SSE", "isa", "-O3 -msse2 -mno-avx", _loop(AXPY)),
    Build("product at O1 with AVX2", "isa", "-O1 -mavx2 -mfma", _loop(MUL)), Build("relu at O1", "isa", "-O1", _loop(RELU)),
    # Elements from all over.
    Build("take", "gather", FAST, _loop(TAKE)), Build("sum of a take", "gather", FAST, _loop(SCATTERED, "float s = 0;", "out[0] = s;")),
    Build("every seventh", "gather", FAST, _loop(STRIDE)),
    # The same things done well, and other honest loops.
    Build("sum, reordered", "none", FAST, SUM), Build("dot, reordered", "none", FAST, DOT),
    Build("norm, reordered", "none", FAST, NORM), Build("peak, reordered", "none", FAST, PEAK),
    Build("two sums, reordered", "none", FAST, TWO),
    Build("scale by floats", "none", AVX2, _loop(SCALE.format("0.3f", "0.1f"))),
    Build("polynomial of floats", "none", AVX2, _loop(HORNER.format("0.1f", "0.2f", "0.3f", "0.4f"))),
    Build("blend by floats", "none", AVX2, _loop(BLEND.format("0.3f"))),
    Build("root of floats", "none", FAST, _loop("out[i] = sqrtf(x[i] * x[i] + 0.1f);")),
    Build("sum in a register", "none", FAST, _loop("s += x[i] * y[i];", "float s = out[0];", "out[0] = s;")),
    Build("exponential, vector libm", "none", FAST, _loop(EXP)), Build("sine, vector libm", "none", FAST, _loop(SIN)),
    Build("sigmoid, vector libm", "none", FAST, _loop(SIGMOID)),
    Build("axpy", "none", AVX2, _loop(AXPY)), Build("axpy, unrolled", "none", f"{AVX2} -funroll-loops", _loop(AXPY)),
    Build("axpy for this machine", "none", "-O3 -march=native", _loop(AXPY)), Build("product", "none", AVX2, _loop(MUL)),
    Build("relu", "none", FAST, _loop(RELU)), Build("clip", "none", FAST, _loop("float v = x[i]; v = v < -1 ? -1 : v; out[i] = v > 1 ? 1 : v;")),
    Build("three arrays", "none", AVX2, _loop("out[i] = x[i] * y[i] + out[i];")),
    Build("doubles throughout", "none", AVX2,
          "void k(const double *restrict x, double *restrict out, long n) { for (long i = 0; i < n; i++) out[i] = x[i] * 0.3 + 0.1; }"),
    Build("integers", "none", AVX2,
          "void k(const int *restrict x, int *restrict out, long n) { for (long i = 0; i < n; i++) out[i] = x[i] * 3 + 1; }"),
)  # fmt: skip

PAIRS = (
    ("sum", "sum, reordered"), ("dot", "dot, reordered"), ("norm", "norm, reordered"), ("peak", "peak, reordered"),
    ("two sums", "two sums, reordered"), ("scale by doubles", "scale by floats"),
    ("polynomial of doubles", "polynomial of floats"), ("blend by doubles", "blend by floats"),
    ("root of doubles", "root of floats"), ("sum into memory", "sum in a register"),
    ("exponential", "exponential, vector libm"), ("sine", "sine, vector libm"), ("sigmoid", "sigmoid, vector libm"),
    ("axpy at O1", "axpy"), ("relu at O1", "relu"), ("product at O1 with AVX2", "product"),
)  # fmt: skip

"""The cells of tier cuda: K9, static rules on hand-made pairs of CUDA kernels, with a compiler and no GPU."""

# ruff: noqa: E501  (C sources read better in one line each)
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import MissingExtra
from clew.methods.kernels import cubins
from clew.methods.kernels.rules import BY_NAME
from papers.experiment import Line, grid

AT = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"


class Pair(NamedTuple):
    """Two bodies of ``__global__ void k(...)``: on the first the rule must fire, on the second it must not."""

    rule: str
    parameters: str
    faulty: str
    sound: str
    head: str = ""
    gemm: bool = False
    sound_parameters: str = ""


F = "const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ o, int n"
F4 = "const float4 *__restrict__ a, const float4 *__restrict__ b, float4 *__restrict__ o, int n"
MMA = "#include <mma.h>\nusing namespace nvcuda;"
TENSOR = """
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x; wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c; wmma::fill_fragment(c, 0.f);
    for (int k = 0; k < n; k += 16) { wmma::load_matrix_sync(x, a + k, n); wmma::load_matrix_sync(y, b + k * n, n); wmma::mma_sync(c, x, y, c); }
    wmma::store_matrix_sync(o, c, n, wmma::mem_row_major);"""
H = "const half *__restrict__ a, const half *__restrict__ b, float *__restrict__ o, int n"
PLAIN_GEMM = (
    AT + " float s = 0; for (int k = 0; k < n; k++) s += __half2float(a[k]) * __half2float(b[k * n + i]); o[i] = s;"
)
SPILL = AT + " float v[{0}]; for (int k = 0; k < {0}; k++) v[k] = a[i + k * n]; for (int r = 0; r < n; r++)"
SPILL += " {{ float s = b[r];\n#pragma unroll\n for (int k = 0; k < {0}; k++) v[k] = v[k] * s + v[(k + 7) % {0}]; }}"
SPILL += " float t = 0; for (int k = 0; k < {0}; k++) t += v[k] * v[k]; o[i] = t;"
PAIRS = {
    "scale": Pair("Vectorization", F, AT + " o[i] = a[i] * 2.f;",
                  AT + " float4 v = a[i]; v.x *= 2.f; v.y *= 2.f; v.z *= 2.f; v.w *= 2.f; o[i] = v;", sound_parameters=F4),
    "add": Pair("Vectorization", F, AT + " o[i] = a[i] + b[i];",
                AT + " float4 v = a[i], w = b[i]; v.x += w.x; v.y += w.y; v.z += w.z; v.w += w.w; o[i] = v;", sound_parameters=F4),
    "literal": Pair("ScalarFallback", F, AT + " o[i] = a[i] * 0.3;", AT + " o[i] = a[i] * 0.3f;"),
    "polynomial": Pair("ScalarFallback", F, AT + " o[i] = (0.1 * a[i] + 0.2) * a[i] + 0.7;", AT + " o[i] = (.1f * a[i] + .2f) * a[i] + .7f;"),
    "root": Pair("ScalarFallback", F, AT + " o[i] = sqrt((double)a[i]);", AT + " o[i] = rsqrtf(a[i]) * a[i];"),
    "spill": Pair("RegisterSpill", F, SPILL.format(300), SPILL.format(16)),
    "spill, wide": Pair("RegisterSpill", F, SPILL.format(400), SPILL.format(24)),
    "registers": Pair("HighRegisterUsage", F, SPILL.format(120), SPILL.format(16)),
    "product": Pair("TensorCore", H, PLAIN_GEMM, TENSOR, MMA, gemm=True),
    "tiling": Pair("SharedMemTiling", F, AT + " float s = 0; for (int k = 0; k < n; k++) s += a[k] * b[k * n + i]; o[i] = s;",
                   "__shared__ float t[256]; int i = blockIdx.x * 256 + threadIdx.x; float s = 0;"
                   " for (int k0 = 0; k0 < n; k0 += 256) { t[threadIdx.x] = a[k0 + threadIdx.x]; __syncthreads();"
                   " for (int k = 0; k < 256; k++) s += t[k] * b[(k0 + k) * n + i]; __syncthreads(); } o[i] = s;"),
}  # fmt: skip
cost = 5.0


def cells(quick: bool) -> Iterator[Line]:
    """One a pair; a quick run without the compiler has none, and its report says so."""
    if quick and not present():
        return
    yield from grid(kind="pair", name=list(PAIRS)[:: 3 if quick else 1], seed=0)


def present() -> bool:
    return bool(shutil.which("nvcc") and cubins.nvdisasm())


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    """Whether the rule fires on both kernels of the pair.

    Raises:
        MissingExtra: there is no nvcc or no nvdisasm.
    """
    if not present():
        raise MissingExtra("tier cuda needs nvcc and nvdisasm", remedy="Install a CUDA toolkit; no GPU is needed.")
    pair, found = PAIRS[setting["name"]], {}
    for kind, body, parameters in (
        ("faulty", pair.faulty, pair.parameters),
        ("sound", pair.sound, pair.sound_parameters or pair.parameters),
    ):
        metrics = compiled(f'{pair.head}\nextern "C" __global__ void k({parameters}) {{ {body} }}\n')
        metrics |= {"gemm_like": float(pair.gemm), "reuse": 256.0 if pair.rule == "SharedMemTiling" else 0.0}
        found[kind] = BY_NAME[pair.rule](metrics, "cuda") is not None
        found[f"{kind} all"] = [name for name, rule in BY_NAME.items() if rule(metrics, "cuda")]
    return [{"rule": pair.rule, **found}]


def compiled(source: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "k.cu").write_text("#include <cuda_fp16.h>\n" + source)
        command = ["nvcc", "-cubin", "-arch=sm_80", "-Xptxas", "-v", "k.cu", "-o", "k.cubin"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return cubins.count_sass(cubins.sass(folder / "k.cubin"), "k") | cubins.count_ptxas(done.stderr, "k")

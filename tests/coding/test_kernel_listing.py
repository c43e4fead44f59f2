"""Counts of compiled code, on what this machine's compilers make of known sources."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from clew.core.errors import BadInput
from clew.methods.kernels import counts, cubins, disassembly
from clew.methods.kernels.rules import diagnose

needs_gcc = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("objdump")), reason="did not run: no gcc and objdump"
)
SOURCE = """
#include <math.h>
float dot(const float *a, const float *b, long n) {
    float s = 0;
    for (long i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}
void scale(const float *restrict a, float *restrict o, long n) {
    for (long i = 0; i < n; i++)
        o[i] = a[i] * 2.0f + 1.0f;
}
void wide(const float *restrict a, float *restrict o, long n) {
    for (long i = 0; i < n; i++)
        o[i] = a[i] * 0.3;
}
void grow(const float *restrict a, float *restrict o, long n) {
    for (long i = 0; i < n; i++)
        o[i] = expf(a[i]);
}
long walk(const long *next, long n) {
    long at = 0;
    for (long i = 0; i < n; i++)
        at = next[at];
    return at;
}
struct item { struct item *next; float v; };
float items(const struct item *p) {
    float s = 0;
    for (; p; p = p->next)
        s += p->v;
    return s;
}
int total(const int *a, long n) {
    int s = 0;
    for (long i = 0; i < n; i++)
        s += a[i] * 3 + 1;
    return s;
}
unsigned mix(const unsigned char *a, long n) {
    unsigned h = 5381;
    for (long i = 0; i < n; i++)
        h = h * 33 ^ a[i];
    return h;
}
int most(const int *a, long n) {
    int top = a[0];
    for (long i = 0; i < n; i++)
        top = a[i] > top ? a[i] : top;
    return top;
}
void tally(const unsigned char *a, int *o, long n) {
    for (long i = 0; i < n; i++)
        o[a[i]]++;
}
void seventh(const float *restrict a, float *restrict o, long n) {
    for (long i = 0; i < n; i++)
        o[i] = a[7 * i] + 1.0f;
}
float column(const float *a, long n, long j) {
    float s = 0;
    for (long i = 0; i < n; i++)
        s += a[i * n + j];
    return s;
}
struct point { float x, y, z; };
void lengths(const struct point *restrict a, float *restrict o, long n) {
    for (long i = 0; i < n; i++)
        o[i] = a[i].x * a[i].x + a[i].y * a[i].y + a[i].z * a[i].z;
}
void powers(const float *restrict a, float *restrict o, long n) {
    for (long i = 0; i < n; i++)
        o[i] = powf(a[i], 2.5f);
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    (folder / "k.c").write_text(SOURCE)
    made = {}
    builds = {"strict": "-O3 -mavx2 -mfma", "fast": "-O3 -mavx2 -mfma -ffast-math", "plain": "-O1"}
    builds |= {"none": "-O0", "scalar": "-O2 -march=znver3 -fno-tree-vectorize"}
    for name, flags in builds.items():
        command = ["gcc", "-g", *flags.split(), "-c", str(folder / "k.c"), "-o", str(folder / f"{name}.o")]
        subprocess.run(command, check=True, timeout=60)
        made[name] = folder / f"{name}.o"
    return made


@needs_gcc
def test_a_reduction_that_may_not_be_reordered_is_seen_as_scalar(built):
    strict, fast = (counts.x86_metrics(built[name], "dot") for name in ("strict", "fast"))
    assert strict["scalar_share"] > 0.5
    assert strict["chains"] == 1
    assert fast["scalar_share"] == 0
    assert fast["fma_wide"] >= 1


@needs_gcc
def test_the_vector_loop_stands_for_its_remainder_and_its_versions(built):
    found = counts.x86_metrics(built["strict"], "scale")
    assert found["width"] == 32
    assert found["scalar"] == 0
    assert not diagnose(found, "cpu")


@needs_gcc
def test_double_literals_and_libm_calls_are_seen(built):
    assert counts.x86_metrics(built["strict"], "wide")["conversions"] > 0
    assert counts.x86_metrics(built["strict"], "grow")["calls"] == 1
    vector = counts.x86_metrics(built["fast"], "grow")
    assert vector["calls"] == 0  # libm's vector version is no slow path
    assert "ScalarFallback" in {f.rule for f in diagnose(counts.x86_metrics(built["strict"], "grow"), "cpu")}


@needs_gcc
@pytest.mark.parametrize("build", ["strict", "fast", "plain", "none", "scalar"])
def test_a_walk_along_pointers_is_seen_and_a_sum_is_none(built, build):
    for name in ("walk", "items"):
        assert counts.x86_metrics(built[build], name)["address_chain"] == 1
    for name in ("dot", "scale", "wide", "grow", "total", "mix", "most", "tally", "seventh", "column", "lengths"):
        assert counts.x86_metrics(built[build], name)["address_chain"] == 0


@needs_gcc
@pytest.mark.parametrize("build", ["none", "plain", "scalar"])
@pytest.mark.parametrize("name", ["total", "mix", "most", "tally"])
def test_scalar_loops_over_integers_are_counted_and_named(built, build, name):
    found = counts.x86_metrics(built[build], name)
    assert found["integer_ops"] >= 1
    assert found["width"] == 0
    assert found["scalar_share"] == 1
    assert {"Vectorization", "ScalarFallback"} <= {f.rule for f in diagnose(found, "cpu", most=99)}


@needs_gcc
@pytest.mark.parametrize("name", ["total", "most"])
def test_vector_loops_over_integers_are_no_scalar_ones(built, name):
    found = counts.x86_metrics(built["strict"], name)
    assert (found["width"], found["scalar_share"]) == (32, 0)
    assert not {"Vectorization", "ScalarFallback"} & {f.rule for f in diagnose(found, "cpu", most=99)}


@needs_gcc
@pytest.mark.parametrize(
    ("name", "metric", "said"),
    [
        ("powers", "calls", "calls powf"),
        ("wide", "conversions", "converts float to double"),
        ("seventh", "strided", "uses 4 of every 28 bytes"),
        ("column", "strided", "steps by a distance known only at run time"),
        ("items", "address_chain", "loads from an address that the load before it gave"),
    ],
)
def test_what_is_measured_is_named_with_its_line(built, name, metric, said):
    code = disassembly.disassemble(built["scalar"], name)
    head = next(n for n, row in enumerate(SOURCE.splitlines(), 1) if f" {name}(" in row)
    found = [site for site in counts.sites(code) if site.metric == metric]
    assert said in {site.what for site in found}
    assert {head <= site.line < head + 6 and site.file.endswith("k.c") for site in found} == {True}
    fired = diagnose(counts.count_x86(code), "cpu", most=99)
    assert metric in {metric for finding in fired for metric, *_ in finding.evidence}


@needs_gcc
@pytest.mark.parametrize("build", ["strict", "fast", "plain", "scalar"])
def test_loops_that_use_all_they_step_over_are_not_called_strided(built, build):
    for name in ("dot", "scale", "wide", "total", "mix", "most", "tally", "lengths"):
        assert counts.x86_metrics(built[build], name)["strided"] == 0, name


@needs_gcc
def test_loops_are_natural_and_innermost(built):
    code = disassembly.disassemble(built["plain"], "dot")
    assert [len(loop) > 3 for loop in disassembly.loops(code)] == [True]
    assert disassembly.loops([]) == []
    straight = [disassembly.Instruction(0, "add", "rax,rbx"), disassembly.Instruction(4, "ret", "")]
    assert disassembly.loops(straight) == []
    assert counts.hot(straight) == [straight]


@needs_gcc
def test_what_is_no_object_or_has_no_such_function_is_refused(built, tmp_path):
    with pytest.raises(BadInput, match=r"no function 'none'[^$]*dot"):
        counts.x86_metrics(built["strict"], "none")
    (tmp_path / "text.o").write_text("hello")
    with pytest.raises(BadInput, match="cannot be read"):
        counts.x86_metrics(tmp_path / "text.o", "dot")
    assert disassembly.functions(tmp_path / "text.o") == []
    names = set(re.findall(r"^\w[\w ]*?\*?(\w+)\(", SOURCE, re.MULTILINE))
    assert set(disassembly.functions(built["strict"])) == names


def test_a_loop_entered_at_its_test_is_one_and_a_loop_with_two_entries_is_none():
    code = [
        disassembly.Instruction(0, "jmp", "8 <f+0x8>"),
        disassembly.Instruction(4, "vaddss", "xmm0,xmm0,xmm1"),
        disassembly.Instruction(8, "dec", "rax"),
        disassembly.Instruction(12, "jne", "4 <f+0x4>"),
        disassembly.Instruction(14, "ret", ""),
    ]
    assert disassembly.loops(code) == [code[1:4]]
    two = [disassembly.Instruction(0, "jne", "8 <f+0x8>"), *code[1:]]
    assert disassembly.loops(two) == []


def test_accumulators_are_registers_that_only_sums_write():
    loop = [
        disassembly.Instruction(0, "vmovups", "ymm2,YMMWORD PTR [rdi]"),
        disassembly.Instruction(4, "vfmadd231ps", "ymm0,ymm2,YMMWORD PTR [rsi]"),
        disassembly.Instruction(8, "vaddps", "ymm1,ymm1,ymm2"),
        disassembly.Instruction(12, "addss", "xmm5,xmm6"),  # two operands: the first is read as well
        disassembly.Instruction(16, "vmulps", "ymm3,ymm2,ymm2"),
    ]
    assert counts.carried(loop) == 3


# ---- CUDA: the compiler and the disassembler need no GPU ------------------------------------------------------------

CUDA = """
extern "C" __global__ void narrow(const float* a, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = a[i] * 2.f;
}
extern "C" __global__ void broad(const float4* a, float4* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { float4 v = a[i]; v.x *= 2.f; v.y *= 2.f; v.z *= 2.f; v.w *= 2.f; o[i] = v; }
}
extern "C" __global__ void literal(const float* a, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = a[i] * 0.3;
}
"""


@pytest.mark.skipif(
    not (shutil.which("nvcc") and shutil.which("gcc") and cubins.nvdisasm()),
    reason="did not run: no nvcc, nvdisasm (CUDA toolkit) and gcc",
)
def test_static_rules_of_cuda_need_no_gpu(tmp_path):
    (tmp_path / "k.cu").write_text(CUDA)
    command = ["nvcc", "-cubin", "-arch=sm_80", "-Xptxas", "-v", "k.cu", "-o", "k.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    text = cubins.sass(tmp_path / "k.cubin")
    assert set(cubins.kernels(text)) == {"narrow", "broad", "literal"}
    fired = {
        name: {f.rule for f in diagnose(cubins.count_sass(text, name) | cubins.count_ptxas(done.stderr, name), "cuda")}
        for name in cubins.kernels(text)
    }
    assert fired == {"narrow": {"Vectorization"}, "broad": set(), "literal": {"Vectorization", "ScalarFallback"}}
    assert cubins.count_ptxas(done.stderr, "narrow")["registers"] == cubins.count_sass(text, "narrow")["registers"]


def test_a_listing_of_sass_is_counted():
    text = """
	.section	.text.k,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=128"
.text.k:
        /*0000*/                   HFMA2.MMA R5, -RZ, RZ, 0, 2.384185791015625e-07 ;
        /*0010*/                   LDG.E.128 R4, [R2.64] ;
        /*0020*/              @!P0 STL [R1], R4 ;
        /*0030*/                   LDL R4, [R1] ;
        /*0040*/                   HMMA.16816.F32 R4, R4, R8, R12 ;
        /*0050*/                   DFMA R4, R4, R8, R12 ;
"""
    found = cubins.count_sass(text, "k")
    assert (found["local_ops"], found["mma_ops"], found["wide_ops"], found["conversions"]) == (2, 1, 1, 1)
    assert found["registers"] == 128
    assert found["mma_share"] == 0.5  # HFMA2.MMA is a move of constants, no tensor core
    with pytest.raises(BadInput, match="no kernel 'x'"):
        cubins.count_sass(text, "x")

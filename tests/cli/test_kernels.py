"""clew kernels with what users hand it by mistake: each bad kernel and file gets one clear sentence, no traceback."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from clew.core import registry
from clew.methods.kernels.world import Kernels

needs_gcc = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("objdump")), reason="did not run: no gcc or objdump"
)
GOOD = "for (long i = 0; i < n; i++) y[i] = x[i] * 0.3f;"
FILE = """
import numpy as np
from clew.methods.kernels.kernel import Array, Kernel, Option

kernel = Kernel(
    "scale", "void scale(const float *restrict x, float *restrict y, long n) {{ {body} }}", {symbol!r},
    (Array("x", lambda n: n), Array("y", lambda n: n, role="out")), ("n",),
    ({{"n": 4096}}, {{"n": 1000}}, {{"n": 37}}), {inputs}, {reference}, lambda n: n, {options},
)
"""
INPUTS = 'lambda rng, n: {"x": rng.standard_normal(n).astype(np.float32)}'
REFERENCE = 'lambda x, n: {"y": 0.3 * x}'


def write(path, body=GOOD, symbol="scale", inputs=INPUTS, reference=REFERENCE, options="()"):
    path.write_text(FILE.format(body=body, symbol=symbol, inputs=inputs, reference=reference, options=options))
    return path


@pytest.fixture
def tune(clew, monkeypatch):
    registry.register("tasksets", "kernels", Kernels)
    monkeypatch.setattr("clew.methods.kernels.cpu.BUILD_SECONDS", 20.0)
    monkeypatch.setattr("clew.methods.kernels.cpu.RUN_SECONDS", 2.0)

    def call(path, *words, code=0):
        return clew("kernels", "tune", path, "--budget", 4, "--store", "s.db", *words, code=code)

    return call


BAD = {
    "does not compile": ({"body": "y[0] = zz;"}, "kernel scale does not build: ", "'zz' undeclared"),
    "wrong": ({"body": GOOD.replace("0.3", "0.4")}, "kernel scale is wrong on 0-0: y is off by 0."),
    "crashes": ({"body": f"*(volatile int *)0 = 1; {GOOD}"}, "kernel scale fails on a case: ended by SIGSEGV"),
    "hangs": ({"body": "for (;;) y[0] += x[0];"}, "kernel scale fails on a case: more than 2 s"),
    "has no such function": ({"symbol": "other"}, "has no function: other"),
    "reference raises": (
        {"reference": 'lambda x, n: {"y": 1 / 0}'},
        "reference of kernel scale raised ZeroDivisionError",
    ),
    "reference of another name": ({"reference": 'lambda x, n: {"z": x}'}, "reference of kernel scale gave", "{'y': 4"),
    "reference too short": ({"reference": 'lambda x, n: {"y": x[:3]}'}, "gave {'y': 3} elements"),
    "reference is no dict": ({"reference": "lambda x, n: x"}, "reference of kernel scale gave a ndarray"),
    "inputs raise": ({"inputs": "lambda rng, n: {}['x']"}, "inputs of kernel scale raised KeyError"),
    "inputs of another type": ({"inputs": 'lambda rng, n: {"x": np.zeros(n)}'}, "gave 4096 x float64 for x"),
}


@pytest.mark.whole
@needs_gcc
@pytest.mark.parametrize("name", BAD)
def test_a_kernel_that_is_wrong_from_the_start_is_refused_in_one_sentence(tune, tmp_path, monkeypatch, name):
    monkeypatch.setenv("LC_ALL", "C")
    given, *said = BAD[name]
    done = tune(write(tmp_path / "mine.py", **given), code=2)
    assert [text for text in said if text not in done.output] == []
    assert "Traceback" not in done.output


@pytest.mark.whole
@needs_gcc
def test_variants_that_break_hang_or_lie_are_lines_of_the_report(tune, tmp_path):
    body = f"""if (BAD == 1) for (;;) y[0] += x[0]; if (BAD == 2) *(volatile int *)0 = 1;
#if BAD == 4
        zz;
#endif
        if (BAD == 3) {{ y[0] = 0; return; }} {GOOD}""".replace("\n", "\\n")
    path = write(tmp_path / "mine.py", body, options='(Option("BAD", (0, 1, 2, 3, 4), "tile"),)')
    tries = []
    for seed in range(12):  # what is drawn hangs on the file's path too
        tries += json.loads(tune(path, "--search", "random", "--budget", 6, "--seed", seed, "--json").stdout)["tries"]
        whys = {t["build"].partition("-DBAD=")[2]: t.get("why", "") for t in tries}
        if len(whys) == 5:
            break
    assert set(whys) == set("01234")
    assert "more than 2 s" in whys["1"]
    assert "ended by SIGSEGV" in whys["2"]
    assert "never written" in whys["3"]
    assert "does not compile" in whys["4"]
    assert all(t["speed"] == 0 for t in tries if t.get("why"))


def test_without_a_compiler_it_says_what_to_install(tune, clew, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = tune("dot", code=2)
    assert "kernels need a C compiler and objdump" in done.output
    assert "Install gcc and binutils" in done.output
    (tmp_path / "x.o").write_bytes(b"")
    assert "Install binutils" in clew("kernels", "explain", "x.o", code=2).output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.py", b"", "x.py defines no `kernel`"),
        ("x.py", b"\0\xff\xfe", "x.py does not load"),
        ("nothing.py", None, "no kernel"),
        ("softmaks", None, "Bundled: dot"),
        ("k.cu", b"__global__ void k() {}", "one for a GPU is diagnosed, not run"),
    ],
)
def test_what_is_no_kernel_is_named(tune, tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert said in tune(name, code=2).output


def test_cuda_source_is_sent_to_its_compiler(clew, tmp_path):
    (tmp_path / "k.cu").write_text("")
    done = clew("kernels", "explain", "k.cu", code=2)
    assert "k.cu is source" in done.output
    assert "nvcc -cubin" in done.output


POWERS = """#include <math.h>
void powers(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++)
        y[i] = powf(x[i], 2.5f) * 0.3;
}
"""


@needs_gcc
@pytest.mark.parametrize("name", ["k.c", "k.cpp"])
def test_source_is_compiled_and_told_with_its_lines_flags_and_remarks(clew, tmp_path, name):
    (tmp_path / name).write_text(POWERS)
    if name == "k.cpp" and not shutil.which("g++"):
        pytest.skip("did not run: no g++")
    done = clew("kernels", "explain", name, "--flags", "-O3 -march=znver3").output
    assert "with -march=znver3 -O3" in done
    assert f"{name}:4: calls powf" in done
    assert f"{name}:4: converts float to double" in done
    assert f"the compiler, {name}:4: statement clobbers memory" in done
    assert "flags to try: -ffast-math\n" in done  # neither -O3 nor -march=native, for they were used
    assert "flags to try: -O3 -march=native -ffast-math\n" in clew("kernels", "explain", name).output
    (tmp_path / "bad.c").write_text("int x = ;")
    assert "bad.c does not compile" in clew("kernels", "explain", "bad.c", code=2).output
    assert "bad.c does not compile" not in clew("kernels", "explain", name, "--flags", "'", code=2).output


@needs_gcc
def test_an_object_tells_its_flags_and_takes_remarks_from_a_file(clew, tmp_path):
    (tmp_path / "k.c").write_text(POWERS)
    command = ["gcc", "-g", "-O2", "-march=znver3", "-fopt-info-vec-missed=r.txt", "-c", "k.c", "-o", "k.o"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    told = json.loads(clew("kernels", "explain", "k.o", "--remarks", "r.txt", "--json").stdout)
    assert {"-O2", "-march=znver3"} <= set(told["built"]["flags"])
    assert told["flags_to_try"] == ["-O3", "-ffast-math"]
    assert {remark["line"] for remark in told["remarks"]} <= {3, 4}
    assert any("powf" in remark["text"] for remark in told["remarks"])
    clang = """k.c:3:5: remark: loop not vectorized: a call cannot be vectorized [-Rpass-analysis=loop-vectorize]
    for (long i = 0; i < n; i++)
    ^
k.c:3:5: remark: loop not vectorized [-Rpass-missed=loop-vectorize]
k.c:90:5: remark: loop not vectorized: of another function [-Rpass-analysis=loop-vectorize]
other.c:3:5: remark: loop not vectorized: of another file [-Rpass-analysis=loop-vectorize]
"""
    (tmp_path / "clang.txt").write_text(clang)
    told = json.loads(clew("kernels", "explain", "k.o", "--remarks", "clang.txt", "--json").stdout)
    assert told["remarks"] == [{"file": "k.c", "line": 3, "text": "a call cannot be vectorized"}]
    subprocess.run(["objcopy", "--strip-debug", "k.o", "bare.o"], cwd=tmp_path, check=True, timeout=60)
    assert "unless they were used (the object does not say)" in clew("kernels", "explain", "bare.o").output
    for words in (("k.c", "--remarks", "r.txt"), ("k.o", "--flags", "-O3")):
        assert f"{words[1]} goes with" in clew("kernels", "explain", *words, code=2).output


def test_a_report_of_another_kernel_is_named(clew, tmp_path):
    sass = ".text.k:\n        /*0000*/                   LDG.E R2, desc[UR4][R2.64] ;\n"
    (tmp_path / "k.sass").write_text(sass)
    assert "k (cuda" in clew("kernels", "explain", "k.sass").output
    (tmp_path / "k.txt").write_bytes(b"\xff\x00")
    assert "k.txt does not mention kernel k" in clew("kernels", "explain", "k.sass", "--ptxas", "k.txt", code=2).output


@pytest.mark.parametrize("content", [b"", b"\0\x7fELF" * 99, b"int main;\n"])
@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("o", "has no functions that can be read"),
        ("sass", "holds no kernel"),
        ("csv", "has no launches"),
        ("json", "is no profile"),
    ],
)
def test_files_that_are_neither_objects_nor_profiles_are_named(clew, tmp_path, ending, said, content):
    if ending == "o" and not shutil.which("objdump"):
        pytest.skip("did not run: no objdump")
    (tmp_path / f"x.{ending}").write_bytes(content)
    assert said in clew("kernels", "explain", f"x.{ending}", code=2).output


SAXPY = """void saxpy(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++)
        y[i] = y[i] * 0.5 + x[i] * 0.3;
}
"""
MAIN = """#include <stdio.h>
#include <stdlib.h>
void saxpy(const float *x, float *y, long n);
int main(void) {
    long n = 4096;
    float *x = malloc(n * sizeof *x), *y = calloc(n, sizeof *y);
    for (long i = 0; i < n; i++) x[i] = (i * 37 % 101) / 101.0f;
    for (int k = 0; k < CALLS; k++) saxpy(x, y, n);
    double sum = 0;
    for (long i = 0; i < n; i++) sum += y[i];
    printf("sum %g\\n", sum);
    return 0;
}
"""


@pytest.fixture
def driven(tmp_path):
    """A C file, and a C file whose main calls it."""
    (tmp_path / "saxpy.c").write_text(SAXPY)
    (tmp_path / "main.c").write_text(MAIN.replace("CALLS", "16000"))
    return tmp_path


@pytest.mark.whole
@needs_gcc
@pytest.mark.parametrize("sandbox", ["none", "bubblewrap"])
def test_a_plain_c_file_with_a_driver_is_tuned(tune, driven, sandbox, monkeypatch):
    monkeypatch.setattr("clew.methods.kernels.cpu.RUN_SECONDS", 120.0)  # a busy machine takes more than what hangs gets
    if sandbox == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("did not run: no bubblewrap")
    told = json.loads(tune("saxpy.c", "--driver", "main.c", "--sandbox", sandbox, "--json").stdout)
    assert len(told["tries"]) == 4
    assert [t["why"] for t in told["tries"] if "why" in t] == []
    assert all(t["speed"] > 0 and t["metrics"]["fp_ops"] > 0 for t in told["tries"])
    assert set(told["final"]) >= {"build", "over_plain", "over_compiler"}


@pytest.mark.whole
@needs_gcc
def test_a_c_file_of_its_own_main_goes_on_from_any_try(tune, clew, driven):
    main = MAIN.replace("4096", "N").replace("CALLS", "48000")
    (driven / "whole.c").write_text(f'#include "saxpy.c"\n{main}')
    run = json.loads(tune("whole.c", "--flags", "-DN=4096", "--json").stdout)["run"]
    assert "calls equal" in clew("replay", run, "--store", "s.db").output
    forked = json.loads(clew("fork", f"{run}@3", "--store", "s.db", "--json").stdout)["forks"]
    assert [fork["stop"] for fork in forked] == ["done"]
    assert "undeclared" in tune("whole.c", code=2).output, "what --flags gave is needed, and known of a run"


@pytest.mark.whole
@needs_gcc
def test_a_build_that_prints_other_results_is_no_gain(tune, driven):
    lies = "#ifdef __FAST_MATH__\n#define C 0.4\n#else\n#define C 0.3\n#endif\n"
    (driven / "saxpy.c").write_text(lies + SAXPY.replace("0.3", "C"))
    tries = json.loads(tune("saxpy.c", "--driver", "main.c", "--json").stdout)["tries"]
    for told in tries:
        assert ("-ffast-math" in told["build"]) == ("where the plain build prints" in told.get("why", ""))
    assert any("why" in told for told in tries)


CLOCK = """#include <stdio.h>
#include <time.h>
int main(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    printf("%ld\\n", t.tv_nsec % 1000003);
    return 0;
}
"""
C_FILES = {
    "no main": ({}, (), "saxpy.c does not build: ", "undefined reference to `main'", "--driver MAIN.c"),
    "two mains": (
        {"saxpy.c": f"{SAXPY} int main(void) {{}}"},
        ("main.c",),
        "multiple definition",
        "leave --driver out",
    ),
    "no C": ({"saxpy.c": "int x = ;"}, ("main.c",), "saxpy.c does not build: saxpy.c:1:9: error"),
    "no text": ({"saxpy.c": b"\xff\xfe"}, ("main.c",), "saxpy.c is no text in UTF-8"),
    "driver does not compile": ({"main.c": "int x = ;"}, ("main.c",), "main.c does not compile"),
    "prints nothing": ({"main.c": "int main(void) { return 0; }"}, ("main.c",), "prints no number"),
    "prints the time": ({"main.c": CLOCK}, ("main.c",), "prints other numbers each time"),
    "too short": ({"main.c": MAIN.replace("CALLS", "1")}, ("main.c",), "too little to be compared", "more often"),
    "hangs": ({"main.c": "int main(void) { for (;;); }"}, ("main.c",), "fails when it runs: more than 2 s"),
    "crashes": ({"main.c": "int main(void) { return *(volatile int *)0; }"}, ("main.c",), "ended by SIGSEGV"),
}


@pytest.mark.whole
@needs_gcc
@pytest.mark.parametrize("name", C_FILES)
def test_a_c_file_that_cannot_be_tuned_is_refused_in_one_sentence(tune, driven, monkeypatch, name):
    monkeypatch.setenv("LC_ALL", "C")
    files, driver, *said = C_FILES[name]
    for file, content in files.items():
        (driven / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = tune("saxpy.c", *(("--driver", driver[0]) if driver else ()), code=2)
    assert [text for text in said if text not in done.output] == []
    assert "Traceback" not in done.output


def test_what_goes_with_a_c_file_goes_with_no_other(tune, driven):
    assert "--driver goes with a C file, not with dot" in tune("dot", "--driver", "main.c", code=2).output
    assert "--flags goes with a C file" in tune("mine.py", "--flags", "-O1", code=2).output
    said = tune("saxpy.c", "--model", "echo", code=2).output
    assert "no reference that source of a model could be judged by" in said
    (driven / "k.cpp").write_text(SAXPY)
    assert "kernels are tuned in C" in tune("k.cpp", code=2).output

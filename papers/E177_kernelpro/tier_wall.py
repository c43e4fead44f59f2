"""The cells of tier wall: K5, cheats and honest builds before the correctness wall; K10, equal builds timed."""

# ruff: noqa: E501  (C sources read better in one line each)
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clew.methods.kernels.catalogue import CATALOGUE
from clew.methods.kernels.cpu import Cpu, Speed
from clew.methods.kernels.kernel import Kernel, Space
from clew.methods.kernels.runs import Direct
from papers.experiment import Line, grid

# What a cheat does around a right implementation `honest`, whose arguments are ARGS and whose outputs are n values at o.
CHEATS = {
    "all zeros": "for (long i = 0; i < N; i++) O[i] = 0;",
    "stale memory": ";",
    "changes its input": "honest(ARGS); ((float *)IN)[0] += 1;",
    "kept result": "static const void *seen[64]; static float *kept[64]; static int count;"
    " for (int k = 0; k < count; k++) if (seen[k] == (void *)IN) { memcpy(O, kept[k], 4 * N); return; }"
    " honest(ARGS); if (count < 64) { seen[count] = IN; kept[count] = malloc(4 * N); memcpy(kept[count++], O, 4 * N); }",
    "reduced precision": "honest(ARGS); for (long i = 0; i < N; i++) {"
    " union { float f; unsigned u; } v = {O[i]}; v.u &= 0xffff0000; O[i] = v.f; }",
    "wrong tail": "honest(ARGS); if (N % 8) for (long i = N / 8 * 8; i < N; i++) O[i] = 0;",
}
WHERE = {  # kernel -> its parameters, arguments, first input, output and number of outputs
    "stencil": ("const float *restrict x, float *restrict out, long n", "x, out, n", "x", "out", "n"),
    "softmax": ("const float *restrict x, float *restrict out, long rows, long n", "x, out, rows, n", "x", "out", "rows * n"),
    "layernorm": (
        "const float *restrict x, const float *restrict w, const float *restrict b, float *restrict out, long rows, long n",
        "x, w, b, out, rows, n", "x", "out", "rows * n",
    ),
    "gemm": ("const float *restrict a, const float *restrict b, float *restrict c, long n", "a, b, c, n", "a", "c", "n * n"),
    "transpose": ("const float *restrict x, float *restrict out, long n", "x, out, n", "x", "out", "n * n"),
}  # fmt: skip
HONEST, PAIRS = 30, 200
cost = {"cheat": 1.5, "honest": 2.0, "equal": 0.25}


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(kind="cheat", name="stencil" if quick else WHERE, arm=CHEATS, seed=0)
    for seed in range(6 if quick else HONEST):
        yield {"kind": "honest", "name": list(CATALOGUE)[seed % len(CATALOGUE)], "arm": "", "seed": seed}
    for seed in range(10 if quick else PAIRS):
        yield {"kind": "equal", "name": "stencil" if seed % 2 else "dot", "arm": "", "seed": seed}


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    """``refused``: why the wall did not let it through, empty where it did; ``gain``: whether equal builds differed."""
    kernel = CATALOGUE[setting["name"]]
    with tempfile.TemporaryDirectory() as folder:
        cpu = Cpu(kernel, Direct(Path(folder)))
        if setting["kind"] == "cheat":
            return [{"refused": refused(cpu, cpu.space.start()._replace(source=cheating(kernel, setting["arm"])))}]
        if setting["kind"] == "honest":
            return [{"refused": refused(cpu, drawn(cpu.space, seed))} for seed in seeds]
        out = []
        for seed in seeds:
            found = cpu.time(cpu.plain, cpu.plain, seed=seed)
            assert isinstance(found, Speed)
            out.append({"gain": found.gain, "ratio": round(found.ratio, 4), "low": round(found.low, 4)})
        return out


def refused(cpu: Cpu, candidate: Any) -> str:
    built = cpu.build(candidate)
    assert built.path is not None, built.why
    found = cpu.check(built) or cpu.time(cpu.plain, built)
    return "" if isinstance(found, Speed) else f"{found.why} ({found.case})"


def drawn(space: Space, seed: int) -> Any:
    rng, candidate = random.Random(f"honest {seed}"), space.start()
    for option, values in space.values.items():
        candidate = candidate.changed(option, rng.randrange(len(values)))
    return candidate


def cheating(kernel: Kernel, cheat: str) -> str:
    """The kernel's own source under the name ``honest``, and the cheat under the kernel's."""
    parameters, arguments, given, out, count = WHERE[kernel.name]
    body = CHEATS[cheat]
    for word, text in (
        ("ARGS", arguments),
        ("IN", given),
        ("O[", f"{out}["),
        ("(O,", f"({out},"),
        (" O,", f" {out},"),
        ("N", f"({count})"),
    ):
        body = body.replace(word, text)
    source = kernel.source.replace(f"void {kernel.symbol}(", "static void honest(", 1)
    return f"#include <stdlib.h>\n#include <string.h>\n{source}\nvoid {kernel.symbol}({parameters}) {{ {body} }}\n"

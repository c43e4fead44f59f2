"""The CPU backend: builds a kernel with the C compiler, checks it, times it against another build, and measures it.

The tuning world calls it. Times are CPU time of the process, of two builds in turn, so that other work on the machine
changes little; the counts of objdump and cachegrind do not depend on other work. A build must never be timed before it
has passed the checks.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput, MissingExtra
from clew.methods.kernels import counts, disassembly, wall
from clew.methods.kernels.kernel import CTYPES, STRONG, Arrays, Candidate, Kernel, Sizes, Space
from clew.methods.kernels.rules import Bound
from clew.methods.kernels.runs import Run

BLOCKS = 9  # blocks of each side in a timing
BLOCK = 3e6  # nanoseconds of a block
TIMED = 4  # cases a timing turns through
RESAMPLES = 1000
GAIN = 1.02  # the lower end of the interval a speed-up must reach to be believed
BUILD_SECONDS, RUN_SECONDS = 60.0, 120.0
YARDSTICK_SECONDS = 120.0  # they are ours and end; a busy machine only makes them slow
AVX512 = re.compile(r"\bavx512f\b")


class Built(NamedTuple):
    """A shared library; ``why`` says what the compiler found wrong where there is none."""

    candidate: Candidate
    path: Path | None
    why: str = ""


class Speed(NamedTuple):
    """How much faster ``b`` is than ``a``: ratio of the median times of a call, 95 % bootstrap interval, seconds."""

    ratio: float
    low: float
    high: float
    a: float
    b: float
    blocks: int

    @property
    def gain(self) -> bool:
        return self.low > GAIN


class Ceilings(NamedTuple):
    """What this machine reaches: floating-point operations and bytes from memory a second, seconds of an empty call."""

    flops: float
    bytes: float
    call: float

    @property
    def ridge(self) -> float:
        return self.flops / self.bytes


def compiler() -> str:
    """The C compiler.

    Raises:
        MissingExtra: there is none, or no objdump.
    """
    found = shutil.which("gcc") or shutil.which("cc") or ""
    if not found or not shutil.which("objdump"):
        raise MissingExtra("kernels need a C compiler and objdump", remedy="Install gcc and binutils.")
    return found


class Cpu:
    """Builds and measures candidates of one kernel.

    Args:
        run: how commands are run, and the folder for sources, builds and cases.

    Raises:
        MissingExtra: there is no C compiler or no objdump.
        BadInput: the kernel's own source does not build, or gives wrong results.
    """

    def __init__(self, kernel: Kernel, run: Run, space: Space | None = None) -> None:
        self.kernel, self.folder, self._run = kernel, run.folder, run
        self.space = space or Space(kernel)
        self.compiler = compiler()
        self._builds: dict[str, Built] = {}
        self._cases: dict[str, tuple[Arrays, Sizes]] = {}
        self._make_bench()
        self._write_cases()
        self.plain = self.build(self.space.start())
        if self.plain.path is None:
            raise BadInput(f"kernel {kernel.name} does not build: {self.plain.why}", remedy="Mend its source.")
        self._plain_error: dict[str, float] = {}
        found = self._outputs(self.plain)
        if isinstance(found, wall.Wrong):
            raise BadInput(f"kernel {kernel.name} fails on {found.case}: {found.why}", remedy="Mend its source.")
        for case, after in found.items():
            before, sizes = self._cases[case]
            self._plain_error[case] = wall.error(after, kernel.expected(before, sizes))
            if wrong := wall.judge(kernel, before, after, sizes, 0.0, case):
                raise BadInput(
                    f"kernel {kernel.name} is wrong on {case}: {wrong.why}", remedy="Mend its source or reference."
                )

    def build(self, candidate: Candidate) -> Built:
        """Compile; the same text and flags once."""
        source, flags = candidate.source or self.kernel.source, self.space.flags(candidate)
        name = hashlib.blake2b(repr((source, flags)).encode(), digest_size=8).hexdigest()
        if name not in self._builds:
            text, target = self.folder / f"{name}.c", self.folder / f"{name}.so"
            text.write_text(source, encoding="utf-8")
            # Debug lines change no instruction, and tell which loops are versions of one another.
            command = [self.compiler, "-g", "-fPIC", "-shared", *flags, text.name, "-o", target.name, "-lm"]
            done = self._run(command, [text.name], [target.name], BUILD_SECONDS)
            built = done.code == 0 and target.exists()
            self._builds[name] = Built(candidate, target if built else None, "" if built else done.reason)
        return self._builds[name]._replace(candidate=candidate)

    def check(self, built: Built) -> wall.Wrong | None:
        """Every case once, against the reference."""
        found = self._outputs(built)
        if isinstance(found, wall.Wrong):
            return found
        return self._judge(found)

    def time(self, a: Built, b: Built, blocks: int = BLOCKS, seed: int = 0) -> Speed | wall.Wrong:
        """Blocks of both builds in turn on cases whose contents move on; ``b`` judged again by what it left behind."""
        cases = [name for name in self._cases if name.startswith("0-")][:TIMED]
        assert a.path is not None
        assert b.path is not None
        command = ["./bench", "time", str(blocks), str(BLOCK), f"./{a.path.name}", f"./{b.path.name}", *cases]
        left = [f"{name}.b" for name in cases]
        done = self._run(command, ["bench", a.path.name, b.path.name, *cases], left, RUN_SECONDS)
        if done.code:
            return wall.Wrong(done.reason, "timing")
        for i in range(len(cases)):
            origin = cases[(i - blocks) % len(cases)]  # contents moved on once a block
            before, sizes = self._cases[origin]
            after = self._arrays(self.folder / left[i], sizes)
            if wrong := wall.judge(self.kernel, before, after, sizes, self._plain_error[origin], f"{origin}, timed"):
                return wrong
        return speed(*times(done.out), seed)

    def metrics(self, built: Built, seconds: float | None = None, profile: bool = True) -> dict[str, float]:
        """What is known of a build: counts of its inner loops (of x86-64 only), roofline shares, cache misses where
        cachegrind runs."""
        assert built.path is not None
        sizes = self.kernel.shapes[0]
        found = inner_loops(built.path, self.kernel.symbol)
        moved = self.kernel.call_bytes(sizes)
        found["gemm_like"] = float(self.kernel.gemm)
        found["reuse"] = self.kernel.flops(**sizes) / moved * 4  # operations on each element
        found["working_set_share"] = moved / l2_bytes()
        if seconds is not None:
            ceilings = self.ceilings()
            found["flops_share"] = self.kernel.flops(**sizes) / seconds / ceilings.flops
            found["bandwidth_share"] = moved / seconds / ceilings.bytes
            found["region_share"] = ceilings.call / seconds
        if profile and (rate := self._misses(built)) is not None:
            found["d1_miss_rate"] = rate
        return found

    def bound(self, metrics: dict[str, float]) -> tuple[Bound, bool]:
        """The bottleneck, and whether theory and measurement agree on it; where they do not, theory holds (paper).

        Theory: arithmetic intensity against the ridge, a fifth to either side undecided; a chain of loads that each
        wait for the last, or calls shorter than five times an empty one, are latency.
        """
        sizes, ceilings = self.kernel.shapes[0], self.ceilings()
        intensity = self.kernel.flops(**sizes) / self.kernel.call_bytes(sizes)
        theory: Bound = "mixed"
        if intensity > 1.25 * ceilings.ridge:
            theory = "compute"
        elif intensity < 0.8 * ceilings.ridge:
            theory = "memory"
        if metrics.get("address_chain", 0) > 0 or metrics.get("region_share", 0) > 0.2:
            theory = "latency"
        flops, moved = metrics.get("flops_share", 0.0), metrics.get("bandwidth_share", 0.0)
        measured: Bound = "latency" if max(flops, moved) < 0.5 else "compute" if flops > moved else "memory"
        return theory, measured == theory

    def ceilings(self) -> Ceilings:
        """Of this machine, measured once by three yardsticks and kept."""
        return measure_ceilings(self.compiler, self._run, self.kernel.call_bytes(self.kernel.shapes[0]))

    # ---- files ----

    def _make_bench(self) -> None:
        kernel = self.kernel
        kinds = ", ".join(f"{'const ' * (a.role == 'in')}{CTYPES[a.dtype]} *" for a in kernel.arrays)
        given = ", ".join(
            [f"p[{i}]" for i in range(len(kernel.arrays))] + [f"n[{i}]" for i in range(len(kernel.sizes))]
        )
        header = [
            f"#define ARRAYS {len(kernel.arrays)}",
            f"#define SIZES {len(kernel.sizes)}",
            f'#define SYMBOL "{kernel.symbol}"',
            f"typedef void (*kernel_t)({kinds}{', long' * len(kernel.sizes)});",
            f"#define CALL_KERNEL(f, p, n) f({given})",
            f"static const int IS_OUT[] = {{{', '.join(str(int(a.role == 'out')) for a in kernel.arrays)}}};",
        ]
        (self.folder / "call.h").write_text("\n".join(header) + "\n")
        (self.folder / "bench.c").write_text((files("clew.methods.kernels") / "bench.c").read_text())
        command = [self.compiler, "-O2", '-DCALL="call.h"', "bench.c", "-o", "bench", "-ldl"]
        done = self._run(command, ["bench.c", "call.h"], ["bench"], BUILD_SECONDS)
        if done.code:
            raise BadInput(
                f"the bench of kernel {kernel.name} does not build: {done.reason}", remedy="Check its arrays."
            )

    def _write_cases(self) -> None:
        for i, sizes in enumerate(self.kernel.shapes):
            for seed in wall.SEEDS:
                inputs, name = self.kernel.case(seed, sizes), f"{i}-{seed}"
                self._cases[name] = inputs, sizes
                arrays = self.kernel.arrays
                head = [sizes[n] for n in self.kernel.sizes]
                head += [a.length(**sizes) * np.dtype(a.dtype).itemsize for a in arrays]
                data = b"".join(inputs[a.name].tobytes() for a in arrays if a.role == "in")
                (self.folder / name).write_bytes(np.array(head, np.int64).tobytes() + data)

    def _arrays(self, path: Path, sizes: Sizes) -> Arrays:
        data, at, found = path.read_bytes(), 0, {}
        for a in self.kernel.arrays:
            end = at + a.length(**sizes) * np.dtype(a.dtype).itemsize
            found[a.name] = np.frombuffer(data[at:end], a.dtype)
            at = end
        return found

    def _outputs(self, built: Built) -> dict[str, Arrays] | wall.Wrong:
        assert built.path is not None
        command, left = (
            ["./bench", "check", f"./{built.path.name}", *self._cases],
            [f"{name}.out" for name in self._cases],
        )
        done = self._run(command, ["bench", built.path.name, *self._cases], left, RUN_SECONDS)
        if done.code or not all((self.folder / name).exists() for name in left):
            return wall.Wrong(done.reason, "a case")
        return {name: self._arrays(self.folder / f"{name}.out", sizes) for name, (_, sizes) in self._cases.items()}

    def _judge(self, found: dict[str, Arrays]) -> wall.Wrong | None:
        for name, after in found.items():
            before, sizes = self._cases[name]
            if wrong := wall.judge(self.kernel, before, after, sizes, self._plain_error[name], name):
                return wrong
        return None

    def _misses(self, built: Built) -> float | None:
        """Share of the kernel's reads and writes that miss the first-level cache, by cachegrind; None where that cannot
        be had (no valgrind, or instructions it does not know)."""
        if (
            not shutil.which("valgrind")
            or built.path is None
            or counts.width(_code(built.path, self.kernel.symbol)) > 32
        ):
            return None
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=grind.out"]
        command += ["./bench", "check", f"./{built.path.name}", "0-0"]
        if self._run(command, ["bench", built.path.name, "0-0"], ["grind.out"], RUN_SECONDS).code:
            return None
        return miss_rate((self.folder / "grind.out").read_text(), self.kernel.symbol)


def times(printed: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Seconds of the runs of both sides, from lines ``a SECONDS`` and ``b SECONDS``."""
    rows = [row.split() for row in printed.splitlines()]
    a, b = (np.array([float(seconds) for side, seconds in rows if side == name]) for name in "ab")
    return a, b


def speed(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], seed: int = 0) -> Speed:
    """The ratio of medians of block times [n] with its percentile bootstrap interval."""
    rng = np.random.default_rng(seed)
    draws = [np.median(x[rng.integers(0, len(x), (RESAMPLES, len(x)))], axis=1) for x in (a, b)]
    low, high = np.quantile(draws[0] / draws[1], [0.025, 0.975])
    first, second = float(np.median(a)), float(np.median(b))
    return Speed(first / second, float(low), float(high), first, second, len(a))


def miss_rate(text: str, symbol: str) -> float | None:
    """First-level data misses over accesses of one function in what cachegrind wrote; None where it is not there."""
    events: list[str] = []
    sums: dict[str, float] = {}
    here = False
    for row in text.splitlines():
        if row.startswith("events:"):
            events = row.split()[1:]
        elif row.startswith("fn="):
            here = row[3:] == symbol
        elif here and row[:1].isdigit():
            for event, value in zip(events, row.split()[1:], strict=False):
                sums[event] = sums.get(event, 0.0) + float(value)
    accesses = sums.get("Dr", 0.0) + sums.get("Dw", 0.0)
    return (sums["D1mr"] + sums["D1mw"]) / accesses if accesses else None


def l2_bytes() -> int:
    """Of one core; 1 MiB where the system does not say."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
        return int(text.rstrip("KM")) * (1 << (20 if text.endswith("M") else 10))
    except (OSError, ValueError):
        return 1 << 20


def machine() -> str:
    """Names the machine in reports: processor, cores, compiler."""
    try:
        model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        model = None
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[
        0
    ]
    return f"{model[1] if model else platform.processor()}, {os.cpu_count()} cores, {compiler}"


@functools.cache
def _has_avx512() -> bool:
    try:
        return bool(AVX512.search(Path("/proc/cpuinfo").read_text()))
    except OSError:
        return False


@functools.lru_cache(maxsize=64)
def _code(path: Path, symbol: str) -> tuple[disassembly.Instruction, ...]:
    """The instructions of a build; none where they are of a machine that cannot be read here."""
    try:
        return tuple(disassembly.disassemble(path, symbol))
    except disassembly.OtherMachine:
        return ()


def inner_loops(path: Path, symbol: str) -> dict[str, float]:
    """Counts of a function's inner loops; empty where they are of a machine that cannot be read here."""
    code = _code(path, symbol)
    return counts.count_x86(code, 32 if _has_avx512() else 16) if code else {}


_yardsticks: dict[str, dict[str, float]] = {}


def measure_ceilings(compiler: str, run: Run, working_set: int) -> Ceilings:
    """Run the yardsticks, once a process: fused multiply-adds in registers, copies of several sizes, empty calls.

    The bandwidth is that of the smallest copy that is as large as ``working_set`` bytes: what stays in a cache is not
    held against the memory behind it.

    Raises:
        BadInput: they do not build or run.
    """
    if compiler not in _yardsticks:
        (run.folder / "yardsticks.c").write_text((files("clew.methods.kernels") / "yardsticks.c").read_text())
        flags = " ".join(STRONG.values()).split()
        command = [compiler, *flags, "yardsticks.c", "-o", "yardsticks"]
        done = run(command, ["yardsticks.c"], ["yardsticks"], BUILD_SECONDS)
        if not done.code:
            done = run(["./yardsticks"], ["yardsticks"], [], YARDSTICK_SECONDS)
        if done.code:
            raise BadInput(f"the yardsticks do not run: {done.reason}", remedy="Check the C compiler.")
        _yardsticks[compiler] = {name: float(value) for name, value in map(str.split, done.out.splitlines())}
    found = _yardsticks[compiler]
    copies = sorted((int(name[5:]), value) for name, value in found.items() if name.startswith("copy-"))
    moved = next((value for size, value in copies if size >= working_set), copies[-1][1])
    return Ceilings(found["flops"], moved, found["call"])

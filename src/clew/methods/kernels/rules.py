"""The fifteen rules that turn measurements of a kernel into advice (KernelPro, arXiv 2606.26453, its tools).

The tuning world and ``clew kernels explain`` call them. A rule is a row of one table: when it fires, on a GPU's metrics
and on a CPU's, what it says and which moves it recommends. Rules are pure functions of a dictionary of metrics; a
metric that was not measured must never fire one. Thresholds marked P are the paper's, tuned on A100 and H100; the CPU's
are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Metrics = Mapping[str, float]
Backend = Literal["cpu", "cuda"]
Bound = Literal["compute", "memory", "latency", "mixed"]

HIT_RATE = 0.08  # of rules the paper gives none for: about the middle of those it gives


class Test(NamedTuple):
    """A comparison of one metric with a number."""

    metric: str
    sign: Literal[">", "<"]
    threshold: float

    def holds(self, metrics: Metrics) -> bool:
        value = metrics.get(self.metric)
        if value is None or value != value:
            return False
        return value > self.threshold if self.sign == ">" else value < self.threshold


def over(metric: str, threshold: float) -> Test:
    return Test(metric, ">", threshold)


def under(metric: str, threshold: float) -> Test:
    return Test(metric, "<", threshold)


When = tuple[tuple[Test, ...], ...]  # any of these, in each of which all tests hold


class Finding(NamedTuple):
    """What a fired rule says. ``evidence`` holds (metric, value, sign, threshold) of the tests that fired it."""

    rule: str
    severity: float
    evidence: tuple[tuple[str, float, str, float], ...]
    cause: str
    action: str
    moves: tuple[str, ...]
    hit_rate: float

    def line(self) -> str:
        """One sentence for a terminal or a prompt."""
        seen = ", ".join(f"{m} {v:.3g} {s} {t:g}" for m, v, s, t in self.evidence)
        return f"{self.rule} ({seen}): {self.cause}; {self.action}."

    def json(self) -> dict[str, Any]:
        fields = self._asdict()
        fields["evidence"] = {m: {"value": v, "fires": f"{s} {t:g}"} for m, v, s, t in self.evidence}
        return fields


class Rule(NamedTuple):
    """One row of the table. ``bounds`` are the bottlenecks it is asked about; ``moves`` name what a coder can try."""

    name: str
    number: int  # in the paper's table
    bounds: tuple[Bound, ...]
    severity: float  # 0 to 1, how much time the fault can cost
    cuda: When
    cpu: When
    cause: str
    gpu_action: str
    cpu_action: str
    moves: tuple[str, ...]
    hit_rate: float = HIT_RATE  # share of its advice that was followed by a speed-up over 1.5 (paper, 42 tasks)

    def __call__(self, metrics: Metrics, backend: Backend) -> Finding | None:
        """What it finds, with the evidence of every one of its cases that holds."""
        cases = self.cuda if backend == "cuda" else self.cpu
        held = [tests for tests in cases if all(test.holds(metrics) for test in tests)]
        if not held:
            return None
        tests = dict.fromkeys(test for case in held for test in case)
        seen = tuple((t.metric, float(metrics[t.metric]), t.sign, t.threshold) for t in tests)
        cause, action = self.cause, self.gpu_action if backend == "cuda" else self.cpu_action
        faults = dict.fromkeys(t.metric for t in tests if t.metric in CPU_FAULTS) if backend == "cpu" else ()
        if faults:
            causes, actions = zip(*(CPU_FAULTS[metric] for metric in faults), strict=True)
            cause, action = ", ".join(causes), "; ".join(actions)
        return Finding(self.name, self.severity, seen, cause, action, self.moves, self.hit_rate)


# What a metric of compiled code shows, and its remedy, where a rule has several cases.
CPU_FAULTS = {
    "scalar_share": (
        "arithmetic goes one element at a time",
        "say restrict, mend literals and types, allow the compiler to reorder sums",
    ),
    "conversions": (
        "elements are converted between float and double",
        "write literals and functions of the arrays' own type (0.3f for 0.3, sqrtf for sqrt)",
    ),
    "calls": (
        "a function is called for every element",
        "write it out (x * x for powf(x, 2)), let the compiler inline it, or use a vector version of it",
    ),
    "chains": (
        "each sum waits for the one before it",
        "sum into four to eight accumulators, or allow the compiler to reorder sums",
    ),
    "address_chain": (
        "each load waits for the address that the load before it gives",
        "keep the items in an array, or walk several chains in turn",
    ),
    "strided": (
        "the loop steps over memory that it does not use",
        "interchange loops so that the innermost one walks by one element, tile, or split structures into arrays",
    ),
}


ALL: tuple[Bound, ...] = ("compute", "memory", "latency", "mixed")
MEMORY: tuple[Bound, ...] = ("memory", "mixed")
COMPUTE: tuple[Bound, ...] = ("compute", "mixed")
WAITING: tuple[Bound, ...] = ("memory", "latency", "mixed")

RULES = (
    Rule(
        "MemoryCoalescing", 1, MEMORY, 0.9,
        cuda=((under("l1_hit", 0.30), over("stall_memory", 0.40)),),  # P
        cpu=((over("strided", 0),), (over("d1_miss_rate", 0.10),)),
        cause="neighbouring work reads distant addresses",
        gpu_action="let the fastest index run across lanes, transpose in shared memory, or keep arrays apart (SoA)",
        cpu_action="interchange loops so that the innermost one walks by one element, or tile",
        moves=("interchange", "tile", "layout"), hit_rate=0.059,
    ),
    Rule(
        "HighDRAMThroughput", 2, MEMORY, 0.5,
        cuda=((over("dram_throughput", 0.80),),),  # P
        cpu=((over("bandwidth_share", 0.80),),),
        cause="the memory is busy nearly all the time",
        gpu_action="move fewer bytes: fuse, lower the precision, recompute; else it is at the roofline, stop",
        cpu_action="move fewer bytes: fuse, tile, lower the precision; else it is at the roofline, stop",
        moves=("fuse", "tile", "precision"),
    ),
    Rule(
        "OccupancyLimiter", 3, ALL, 0.7,
        cuda=((under("occupancy", 0.50),),),  # P
        cpu=((under("thread_share", 1.0),), (under("chunks_per_thread", 4.0), over("threads", 1.0))),
        cause="too little runs at once to hide waiting",
        gpu_action="shrink what limits it (registers, shared memory, block size), or bound it with __launch_bounds__",
        cpu_action="use every core and give each at least four chunks",
        moves=("launch-bounds", "smaller-tile", "schedule"), hit_rate=0.133,
    ),
    Rule(
        "HighRegisterUsage", 4, ALL, 0.5,
        cuda=((over("registers", 96),),),  # P
        cpu=((over("register_share", 0.90),),),
        cause="nearly every register is taken",
        gpu_action="unroll less, recompute values, take a smaller tile",
        cpu_action="take a smaller register block or unroll less",
        moves=("less-unroll", "smaller-tile"),
    ),
    Rule(
        "WarpStall", 5, ALL, 0.8,
        cuda=((over("stall_dominant", 0.40),),),  # P, critical at .60
        cpu=((over("address_chain", 0),), (over("chains", 0), under("chains", 4))),
        cause="each step waits for the one before it",
        gpu_action="tile, prefetch (cp.async), or give each thread more independent work",
        cpu_action="do more independent work in each step",
        moves=("fast-math", "accumulators", "unroll"), hit_rate=0.110,
    ),
    Rule(
        "BarrierStall", 6, ("latency", "mixed"), 0.6,
        cuda=((over("stall_barrier", 0.30),),),  # P
        cpu=((over("barrier_share", 0.20),),),
        cause="threads wait for one another",
        gpu_action="double buffer, synchronise by warp, or use fewer barriers",
        cpu_action="drop barriers that nothing needs (nowait), or schedule dynamically",
        moves=("double-buffer", "schedule"),
    ),
    Rule(
        "LaunchOverhead", 7, ALL, 0.7,
        cuda=((over("launch_share", 0.20),),),  # P
        cpu=((over("region_share", 0.20),),),
        cause="starting the work costs a large part of its time",
        gpu_action="fuse kernels, capture a CUDA graph, or keep a persistent kernel",
        cpu_action="hoist the parallel region, or run small inputs on one core",
        moves=("fuse", "serial-path"), hit_rate=0.085,
    ),
    Rule(
        "Uncoalesced", 8, WAITING, 0.6,
        cuda=((over("sectors_ratio", 1.2),),),  # P: sectors per request over the ideal
        cpu=((over("gathers", 0),),),
        cause="a vector is put together from single elements",
        gpu_action="load whole aligned vectors, pad rows",
        cpu_action="pack the operand, align it, or interchange loops so that elements are neighbours",
        moves=("layout", "interchange", "align"),
    ),
    Rule(
        "RegisterSpill", 9, ALL, 0.9,
        cuda=(
            # P; then P but for the .10; then ours, for a compiled object without a profile.
            (over("local_ops", 0), over("stall_long_scoreboard", 0.15), under("compute", 0.50), under("memory", 0.50)),
            (over("local_ops", 0), over("memory", 0.60), over("local_share", 0.10)),
            (over("local_ops", 0), over("spill_bytes", 0)),
        ),
        cpu=((over("spills", 0),),),
        cause="values that should stay in registers go through memory",
        gpu_action="take a smaller tile, split the kernel, or raise the cap on registers",
        cpu_action="take a smaller tile or unroll less",
        moves=("smaller-tile", "less-unroll"), hit_rate=0.182,
    ),
    Rule(
        "SharedMemTiling", 10, MEMORY, 0.8,
        cuda=((over("reuse", 2.0), over("global_ops", 0), under("shared_ops", 1)),),
        cpu=((over("reuse", 2.0), over("working_set_share", 1.0)),),
        cause="operands that are used again are fetched from far away each time",
        gpu_action="tile into shared memory, with a barrier between loading and computing",
        cpu_action="tile so that what is used again stays in the second-level cache",
        moves=("tile", "interchange"), hit_rate=0.093,
    ),
    Rule(
        "TensorCore", 11, COMPUTE, 0.8,
        cuda=((over("gemm_like", 0), under("mma_ops", 1)),),
        cpu=((over("gemm_like", 0), under("fma_wide", 1)),),
        cause="a matrix product is computed without the instructions made for it",
        gpu_action="use mma or WGMMA (CuTe), TF32 or BF16, or call the library",
        cpu_action="block it for wide fused multiply-adds (innermost loop over columns), or call BLAS",
        moves=("interchange", "isa", "register-block", "library"), hit_rate=0.081,
    ),
    Rule(
        "Vectorization", 12, ALL, 0.6,
        cuda=((over("narrow_ops", 0), under("wide_ops", 1), under("ops_per_access", 4.0)),),
        cpu=((over("fp_ops", 0), under("width", 32)), (over("integer_ops", 0), under("width", 32))),
        cause="memory and arithmetic go one narrow element at a time",
        gpu_action="load and store float4 (128 bits), with a tail",
        cpu_action="let the loop vectorise (restrict, omp simd), with vectors as wide as the machine has them",
        moves=("isa", "simd", "restrict"), hit_rate=0.040,
    ),
    Rule(
        "ScalarFallback", 13, ALL, 0.9,
        cuda=((over("conversions", 0),), (over("calls", 0),), (over("gemm_like", 0), under("mma_share", 0.10))),
        cpu=((over("scalar_share", 0.50),), (over("conversions", 0),), (over("calls", 0),)),
        cause="the hot loop runs on a slow path that no utilisation figure shows",
        gpu_action="mend literals and types (1.0f for 1.0), aliasing and slow-path calls; use intrinsics",
        cpu_action="mend literals and types (1.0f for 1.0), say restrict, use vector math",
        moves=("fast-math", "literals", "restrict", "vector-libm", "simd"),
    ),
    Rule(
        "BankConflict", 14, ("latency", "memory", "mixed"), 0.5,
        cuda=((over("bank_conflicts", 1.1),),),
        cpu=((over("aliasing", 0),),),
        cause="addresses that are used together fall on the same bank or cache set",
        gpu_action="pad rows by one, or swizzle",
        cpu_action="pad the leading dimension, so that it is no multiple of 4096 bytes, or tile",
        moves=("pad", "tile"),
    ),
    Rule(
        "WaveTail", 15, ("latency", "compute", "mixed"), 0.4,
        cuda=((under("last_wave", 0.50),), (under("branch_efficiency", 0.80),)),
        cpu=((over("branches", 0),), (over("tail_share", 0.20),)),
        cause="part of the machine idles at the end, or at a branch",
        gpu_action="split the reduction (split-K), use a persistent grid, predicate",
        cpu_action="turn the branch into a mask or a blend, and share out the rest of the iterations",
        moves=("mask", "fast-math", "schedule"),
    ),
)  # fmt: skip
BY_NAME = {rule.name: rule for rule in RULES}


def diagnose(metrics: Metrics, backend: Backend, bound: Bound = "mixed", most: int = 5) -> list[Finding]:
    """Ask every rule that concerns the bottleneck; the findings by severity times hit rate, at most ``most``.

    All of them are asked, always: a model that chooses its own tools leaves most of them out (paper, proactive tools
    1.37 against 1.12).
    """
    found = [finding for rule in RULES if bound in rule.bounds and (finding := rule(metrics, backend))]
    return sorted(found, key=lambda f: -f.severity * f.hit_rate)[:most]


def advice(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The moves that findings recommend, the most urgent first, each once."""
    return tuple(dict.fromkeys(move for finding in findings for move in finding.moves))

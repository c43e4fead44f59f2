"""The cells of tier machine: K8, four yardsticks and their bottlenecks; and the final table of the tuned kernels."""

import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clew.harness import Runner
from clew.methods.kernels.catalogue import CATALOGUE, GEMM
from clew.methods.kernels.cpu import Cpu, Speed, machine
from clew.methods.kernels.kernel import Array, Kernel
from clew.methods.kernels.runs import Direct
from clew.methods.kernels.world import Kernels, tries_of
from papers.E177_kernelpro.held import HELDOUT, HERE
from papers.E177_kernelpro.packed import PACKED
from papers.experiment import Line, grid


def _permutation(rng: np.random.Generator, n: int) -> dict[str, Any]:
    order, following = rng.permutation(n), np.empty(n, np.int64)
    following[order] = np.roll(order, -1)  # one cycle through all places
    return {"next": following}


def _walked(next: Any, n: int) -> dict[str, Any]:
    at = 0
    for _ in range(n):
        at = int(next[at])
    return {"out": np.array([at])}


COPY = Kernel(
    "copy",
    "void k(const float *restrict x, float *restrict o, long n) { for (long i = 0; i < n; i++) o[i] = x[i]; }", "k",
    (Array("x", lambda n: n), Array("o", lambda n: n, role="out")), ("n",), ({"n": 1 << 22}, {"n": 1000}, {"n": 37}),
    lambda rng, n: {"x": rng.standard_normal(n).astype(np.float32)}, lambda x, n: {"o": x}, lambda n: 0.0,
)  # fmt: skip
TINY = dataclasses.replace(COPY, name="tiny calls", shapes=({"n": 1}, {"n": 2}, {"n": 3}))
CHASE = Kernel(
    "pointer chase",
    "void k(const long *restrict next, long *restrict out, long n) {"
    " long at = 0; for (long i = 0; i < n; i++) at = next[at]; *out = at; }",
    "k", (Array("next", lambda n: n, "int64"), Array("out", lambda n: 1, "int64", "out")), ("n",),
    ({"n": 1 << 18}, {"n": 1000}, {"n": 37}), _permutation, _walked, lambda n: 0.0,
)  # fmt: skip
YARDSTICKS = {
    "copy": (COPY, "memory"),
    "gemm": (PACKED, "compute"),
    "tiny calls": (TINY, "latency"),
    "pointer chase": (CHASE, "latency"),
}
BUDGET = 24
cost = {"yardstick": 3.0, "tuned": 25.0, "blas": 8.0}


def cells(quick: bool) -> Iterator[Line]:
    yield from grid(kind="yardstick", name=YARDSTICKS, seed=0)
    yield from grid(kind="tuned", name=[*CATALOGUE, *HELDOUT][:: 5 if quick else 1], seed=0)
    yield {"kind": "blas", "name": "gemm", "seed": 0}


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    if setting["kind"] == "yardstick":
        kernel, wanted = YARDSTICKS[setting["name"]]
        with tempfile.TemporaryDirectory() as folder:
            cpu = Cpu(kernel, Direct(Path(folder)))
            strong = cpu.space.start().changed("opt", 1).changed("isa", 2).changed("math", 1)
            if kernel is PACKED:
                strong = strong.changed("BLOCK", 2)
            built = cpu.build(strong)
            found = cpu.time(cpu.plain, built)
            assert isinstance(found, Speed)
            metrics = cpu.metrics(built, found.b)
            bound, agreed = cpu.bound(metrics)
        kept = ("flops_share", "bandwidth_share", "region_share", "address_chain")
        return [{"wanted": wanted, "bound": bound, "agreed": agreed, "machine": machine(),
                 "metrics": {k: round(metrics.get(k, 0.0), 4) for k in kept}}]  # fmt: skip
    if setting["kind"] == "blas":
        return [against_blas()]
    taskset = Held(sandbox="")
    runner = Runner(
        "clew.coding.kernels.world:tuner", taskset, None, ":memory:", {"search": "guided", "budget": BUDGET}
    )
    out = []
    for seed in seeds:
        run = runner.collect([taskset.find(setting["name"])], 1, seed).runs[0]
        final = json.loads(run.calls[-2].text)
        out.append({"final": final, "tries": [round(told["speed"], 3) for _, told in tries_of(run)]})
    return out


class Held(Kernels):
    """The bundled kernels and those held out."""

    def find(self, task_id: str) -> Any:
        if task_id in HELDOUT:
            return super().find(str(HERE / "heldout" / f"{task_id}.py"))
        return super().find(task_id)


def against_blas() -> Line:
    """Seconds of a product of 256 x 256 by our best packed build and by NumPy's BLAS, in turn, CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        cpu = Cpu(PACKED, Direct(Path(folder)))
        best = cpu.space.start()
        for option, index in {"opt": 1, "isa": 2, "math": 1}.items():
            best = best.changed(option, index)
        timed = {}
        for block in range(4):
            found = cpu.time(cpu.plain, cpu.build(best.changed("BLOCK", block)), blocks=5)
            assert isinstance(found, Speed)
            timed[block] = found.b
        n = PACKED.shapes[0]["n"]
        made = GEMM.case(0, {"n": n})
        a, b = made["a"].reshape(n, n), made["b"].reshape(n, n)
        blas = []
        for _ in range(9):
            start = time.process_time()
            for _ in range(20):
                a @ b
            blas.append((time.process_time() - start) / 20)
    library = np.__config__.show(mode="dicts")["Build Dependencies"]["blas"]["name"]  # type: ignore[no-untyped-call]
    return {"ours": min(timed.values()), "blas": float(np.median(blas)), "library": library}

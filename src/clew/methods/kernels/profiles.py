"""Reads recorded profiles as metrics of the rules: our own JSON, and the CSV of Nsight Compute.
``clew kernels explain`` calls it. It must never run a profiler."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path

from clew.core.errors import BadInput
from clew.methods.kernels.rules import Backend

# Names of Nsight Compute's metrics, by ours, with the factor between them.
NCU = {
    "compute": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "memory": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "dram_throughput": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 0.01),
    "l1_hit": ("l1tex__t_sector_hit_rate.pct", 0.01),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", 0.01),
    "registers": ("launch__registers_per_thread", 1.0),
    "branch_efficiency": ("smsp__sass_average_branch_targets_threads_uniform.pct", 0.01),
    "sectors_ratio": ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio", 0.25),  # 4 are ideal
    "bank_conflicts": ("derived__memory_l1_conflicts_shared_nway", 1.0),
    "local_ops": ("smsp__inst_executed_op_local_ld.sum", 1.0),
}
WAVES = "launch__waves_per_multiprocessor"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
REASONS = (
    "long_scoreboard",
    "short_scoreboard",
    "barrier",
    "mio_throttle",
    "lg_throttle",
    "math_pipe_throttle",
    "wait",
)
ON_MEMORY = ("long_scoreboard", "lg_throttle")


def read(path: Path, kernel: str = "") -> tuple[dict[str, float], Backend]:
    """Metrics of a recorded profile, and the backend they are of.

    ``.json``: {"backend": "cpu" or "cuda", "metrics": {name: number}}. ``.csv``: ``ncu --csv --page raw``; of several
    launches the first whose kernel name holds ``kernel``.

    Raises:
        BadInput: neither, or no such kernel.
    """
    if path.suffix == ".csv":
        return read_ncu(path, kernel), "cuda"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        metrics = {str(k): float(v) for k, v in found["metrics"].items()}
        backend: Backend = found["backend"]
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path} is no profile: {error}", remedy='It should hold {"backend": "cuda", "metrics": {name: number}}.'
        ) from None
    if backend not in ("cpu", "cuda"):
        raise BadInput(f"{path}: backend {backend!r}", remedy="Backends are cpu and cuda.")
    return metrics, backend


def read_ncu(path: Path, kernel: str = "") -> dict[str, float]:
    """See ``read``."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = [line for line in file if line.startswith('"')]  # ncu writes its own remarks before the table
    rows = [row for row in csv.DictReader(lines) if row.get("ID")]  # the row of units has none
    if not rows:
        raise BadInput(f"{path} has no launches", remedy="Write it with ncu --csv --page raw.")
    chosen = next((row for row in rows if kernel in row.get("Kernel Name", "")), None)
    if chosen is None:
        names = sorted({row.get("Kernel Name", "") for row in rows})
        raise BadInput(f"{path} has no launch of {kernel!r}", remedy=f"Kernels there: {', '.join(names[:8])}.")
    return metrics_of({name: _number(value) for name, value in chosen.items() if name and value})


def metrics_of(ncu: Mapping[str, float]) -> dict[str, float]:
    """Our metrics from Nsight Compute's; what was not collected is left out."""
    found = {ours: ncu[theirs] * factor for ours, (theirs, factor) in NCU.items() if theirs in ncu}
    if WAVES in ncu:
        found["last_wave"] = ncu[WAVES] - math.floor(ncu[WAVES]) or 1.0
    if ncu.get(LATENCY):
        stalls = {r: ncu[STALL.format(r)] / ncu[LATENCY] for r in REASONS if STALL.format(r) in ncu}
        if stalls:
            found["stall_dominant"] = max(stalls.values())
            found["stall_memory"] = sum(stalls.get(r, 0.0) for r in ON_MEMORY)
            found |= {f"stall_{r}": share for r, share in stalls.items() if r in ("long_scoreboard", "barrier")}
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan

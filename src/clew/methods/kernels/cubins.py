"""Counts the instructions of a compiled CUDA kernel, from what nvdisasm and ptxas write.

``clew kernels explain`` calls it. It must never estimate time. Counts need no permission and no GPU.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

from clew.core.errors import BadInput, MissingExtra

SECONDS = 60  # a disassembler gets
SASS = re.compile(r"^\s*(?:/\*([0-9a-f]+)\*/)\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
TENSOR = re.compile(r"^(?:HMMA|IMMA|DMMA|BMMA|QMMA|OMMA|HGMMA|IGMMA|QGMMA|WGMMA|UTC\w*MMA)\b")
GLOBAL = re.compile(r"^(?:LDG|STG|LD|ST)\b")
FLOATING = re.compile(r"^(?:FADD|FMUL|FFMA|HADD2|HMUL2|HFMA2|DADD|DMUL|DFMA)\b")


def nvdisasm() -> str | None:
    """Path of NVIDIA's disassembler, on the PATH or from its package; None where there is none."""
    if found := shutil.which("nvdisasm"):
        return found
    spec = importlib.util.find_spec("nvidia")
    places = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    return next((str(tool) for place in places for tool in sorted(place.glob("*/bin/nvdisasm"))), None)


def sass(path: Path) -> str:
    """What nvdisasm writes of a cubin.

    Raises:
        MissingExtra: there is no nvdisasm. BadInput: not a cubin.
    """
    tool = nvdisasm()
    if tool is None:
        raise MissingExtra("nvdisasm is not installed", remedy="pip install nvidia-cuda-nvdisasm, or a CUDA toolkit.")
    done = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise BadInput(f"{path} cannot be read: {done.stderr.strip()[:200]}", remedy="Give a cubin (nvcc -cubin).")
    return done.stdout


def kernels(text: str) -> list[str]:
    """Names of the kernels in a listing."""
    return re.findall(r"^\.text\.(\S+):$", text, re.MULTILINE)


def count_sass(text: str, kernel: str) -> dict[str, float]:
    """Metrics of one kernel of an nvdisasm listing, whole: numbers of instructions unless said otherwise.

    global_ops with wide_ops (128 bits) and narrow_ops (32 bits) of them; shared_ops; local_ops and their local_share of
    all loads and stores; mma_ops and mma_share of the arithmetic; conversions: arithmetic and casts in double; calls;
    ops_per_access: arithmetic for each global load or store; registers, where the listing tells.

    Raises:
        BadInput: no such kernel.
    """
    parts = re.split(r"^\.text\.(\S+):$", text, flags=re.MULTILINE)
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    if kernel not in bodies:
        known = ", ".join(bodies) or "none"
        raise BadInput(f"no kernel {kernel!r} in the listing", remedy=f"Kernels there: {known}.")
    rows = [found.groups() for row in bodies[kernel].splitlines() if (found := SASS.match(row))]
    ops = [op for _, op, _ in rows]
    reach = [op for op in ops if GLOBAL.match(op)]
    local = sum(op.startswith(("LDL", "STL")) for op in ops)
    shared = sum(op.startswith(("LDS", "STS", "LDSM", "LDGSTS")) for op in ops)
    mma = sum(bool(TENSOR.match(op)) for op in ops)
    arithmetic = mma + sum(bool(FLOATING.match(op)) and not op.startswith("HFMA2.MMA") for op in ops)
    double = sum(op.startswith(("DADD", "DMUL", "DFMA", "DSETP", "F2F.F64", "F2F.F32.F64")) for op in ops)
    metrics = {
        "global_ops": len(reach), "wide_ops": sum(".128" in op for op in reach),
        "narrow_ops": sum(not re.search(r"\.(?:64|128|U8|S8|U16|S16)\b", op) for op in reach),
        "shared_ops": shared, "local_ops": local, "local_share": local / max(1, local + shared + len(reach)),
        "mma_ops": mma, "mma_share": mma / max(1, arithmetic), "conversions": double,
        "calls": sum(op.startswith("CALL") and ".L_" not in args for _, op, args in rows),  # .L_: only rejoins a warp
        "fp_ops": arithmetic,
        "ops_per_access": arithmetic / max(1, len(reach)),
    }  # fmt: skip
    if found := re.search(
        rf"\.section\s+\.text\.{re.escape(kernel)}\b.*\n\s*\.sectioninfo\s+@\"SHI_REGISTERS=(\d+)", text
    ):
        metrics["registers"] = int(found[1])
    return {key: float(value) for key, value in metrics.items()}


def count_ptxas(text: str, kernel: str) -> dict[str, float]:
    """Registers a thread and bytes spilled, from what ``ptxas -v`` printed of a kernel; empty where it names none."""
    metrics: dict[str, float] = {}
    if part := re.search(rf"Function properties for {re.escape(kernel)}\n(.*?\n.*?)\n", text + "\n", re.DOTALL):
        if spilled := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part[1]):
            metrics["spill_bytes"] = float(spilled[1]) + float(spilled[2])
        if used := re.search(r"Used (\d+) registers", part[1]):
            metrics["registers"] = float(used[1])
    return metrics

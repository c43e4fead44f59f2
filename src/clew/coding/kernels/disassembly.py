"""Counts the instructions in the inner loops of a compiled kernel: x86-64 by objdump, CUDA by nvdisasm.

The CPU backend and ``clew kernels explain`` call it. It must never estimate time. Counts are the same on every machine,
need no permission and no GPU, and show what utilisation figures cannot (2606.26453, the static tools).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, MissingExtra

SECONDS = 60  # a disassembler gets
ARITHMETIC = re.compile(
    r"v?(?:add|sub|mul|div|sqrt|max|min|rcp\w*|rsqrt\w*|dp|hadd|fn?m(?:add|sub|addsub)\d*)(ps|pd|ss|sd)$"
)
INTEGER = re.compile(r"v?p(?:add|sub|mul|mull|madd|max|min|abs|sad|cmpeq|cmpgt)\w*$")
CONVERSION = re.compile(r"v?cvt(?:ss2sd|ps2pd|sd2ss|pd2ps)")
VECTOR = re.compile(r"\b([xyz])mm(\d+)\b")
WIDTH = {"x": 16, "y": 32, "z": 64}
JUMP = re.compile(r"^j[a-z]+$")
ROW = re.compile(r"^\s*([0-9a-f]+):\s+([a-z][\w.]*)\s*(.*?)\s*(?:#.*)?$")
VECTOR_MATH = "_ZGV"  # how the vector versions of libm's functions are named
PREFIXES = ("bnd", "rep", "repz", "repnz", "lock", "data16", "cs", "notrack")


class Instruction(NamedTuple):
    """``line`` is of the source, 0 where the object does not say."""

    at: int
    op: str
    args: str
    line: int = 0


# ---- x86-64 ---------------------------------------------------------------------------------------------------------


def _objdump() -> str:
    if shutil.which("objdump") is None:
        raise MissingExtra("objdump is not installed", remedy="Install binutils.")
    return "objdump"


def disassemble(path: Path, symbol: str) -> list[Instruction]:
    """The instructions of one function of an object, shared library or program.

    Raises:
        MissingExtra: there is no objdump. BadInput: not an object file, or it has no such function.
    """
    command = [_objdump(), "-d", "-r", "-l", "--no-show-raw-insn", "-M", "intel", f"--disassemble={symbol}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise BadInput(
            f"{path} cannot be read: {done.stderr.strip()[:200]}", remedy="Give a compiled object of x86-64."
        )
    code = parse_x86(done.stdout)
    if not code:
        known = ", ".join(functions(path)[:8]) or "none"
        raise BadInput(f"{path} has no function {symbol!r}", remedy=f"Functions there: {known}.")
    return code


def functions(path: Path) -> list[str]:
    """Names of the functions that an object defines, the largest first; empty where it cannot be read."""
    command = [_objdump(), "-t", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    found = []
    for row in done.stdout.splitlines():
        left, tab, right = row.partition("\t")
        if tab and " F " in f"{left} " and len(parts := right.split()) >= 2:
            found.append((int(parts[0], 16), parts[-1]))
    return [name for size, name in sorted(found, key=lambda f: -f[0]) if size]


def parse_x86(text: str) -> list[Instruction]:
    """Instructions of what ``objdump -d -r -l -M intel`` wrote; a call that awaits the linker names what it calls."""
    code: list[Instruction] = []
    line = 0
    for row in text.splitlines():
        if found := re.match(r"^\S.*:(\d+)(?: \(discriminator \d+\))?$", row):
            line = int(found[1])
        elif (found := re.match(r"^\s*[0-9a-f]+: R_X86_64_PL?T?\w*\s+(\S+)", row)) and code and code[-1].op == "call":
            code[-1] = code[-1]._replace(args=re.split(r"[-+]0x", found[1])[0])
        elif found := ROW.match(row):
            op, args = found[2], found[3]
            while op in PREFIXES and args:
                op, _, args = args.partition(" ")
            if op == "call" and (called := re.search(r"<([^+@>]+)", args)):
                args = called[1]
            code.append(Instruction(int(found[1], 16), op, args.strip(), line))
    return code


def loops(code: Sequence[Instruction]) -> list[list[Instruction]]:
    """The innermost natural loops, in order of address: what a jump backwards repeats, with no such loop inside."""
    follows = _follows(code)
    before: list[list[int]] = [[] for _ in code]
    for i, targets in enumerate(follows):
        for target in targets:
            before[target].append(i)
    back = [(target, i) for i, targets in enumerate(follows) for target in targets if target <= i]
    bodies = {body for target, i in back if (body := _body(before, target, i))}
    inner = [body for body in bodies if not any(other < body for other in bodies)]
    return [[code[i] for i in sorted(body)] for body in sorted(inner, key=min)]


def _follows(code: Sequence[Instruction]) -> list[list[int]]:
    """For each instruction, which may come next."""
    index = {instruction.at: i for i, instruction in enumerate(code)}
    follows: list[list[int]] = []
    for i, (_, op, args, _) in enumerate(code):
        found = re.match(r"(?:0x)?([0-9a-f]+)\b", args) if JUMP.match(op) else None
        target = index.get(int(found[1], 16)) if found else None
        runs_on = i + 1 < len(code) and op not in ("jmp", "ret")
        follows.append([i + 1] * runs_on + ([] if target is None else [target]))
    return follows


def _body(before: Sequence[Sequence[int]], head: int, tail: int) -> frozenset[int] | None:
    """The natural loop of the jump from ``tail`` to ``head``; None where it can be entered elsewhere, or is none."""
    body, open_ = {head}, [tail]
    while open_:
        i = open_.pop()
        if i in body:
            continue
        if i == 0:
            return None
        body.add(i)
        open_ += before[i]
    return frozenset(body)


def hot(code: Sequence[Instruction]) -> list[list[Instruction]]:
    """The inner loops that do the work: of loops over the same source line (a vector body, its remainder, the version
    for overlapping arrays) the one with the widest registers; without source lines, the widest of all. Loops that call
    are told apart from those that do not. A function without a loop counts as one."""
    best: dict[tuple[int, bool], list[Instruction]] = {}
    for loop in loops(code):
        lines = Counter(i.line for i in loop if ARITHMETIC.match(i.op) or "[" in i.args)
        place = lines.most_common(1)[0][0] if lines else loop[0].line, any(i.op == "call" for i in loop)
        if place not in best or _weight(loop) > _weight(best[place]):
            best[place] = loop
    return list(best.values()) or [list(code)]


def _weight(loop: Sequence[Instruction]) -> tuple[int, int]:
    packed = [i for i in loop if (m := ARITHMETIC.match(i.op)) and m[1] in ("ps", "pd")]
    moved = [i for i in loop if re.match(r"v?mov[ua]p[sd]|v?movdq[ua]|vp?gather", i.op)]
    vector_calls = sum(i.op == "call" and i.args.startswith(VECTOR_MATH) for i in loop)
    return max(width(packed or moved), 64 * bool(vector_calls)), len(packed)


def width(code: Iterable[Instruction]) -> int:
    """Bytes of the widest vector register that instructions name; 0 for none."""
    return max((WIDTH[kind] for i in code for kind, _ in VECTOR.findall(i.args)), default=0)


def x86_metrics(path: Path, symbol: str, vector_registers: int = 16) -> dict[str, float]:
    """Counts over the hot inner loops of a function: see ``count_x86``."""
    return count_x86(disassemble(path, symbol), vector_registers)


def count_x86(code: Sequence[Instruction], vector_registers: int = 16) -> dict[str, float]:
    """Metrics (numbers of instructions unless said otherwise) of the hot inner loops of a function.

    packed, scalar: floating-point arithmetic; scalar_share of both; width: bytes of the widest register in arithmetic;
    fma_wide: fused multiply-adds of 32 bytes or more; conversions between float and double; calls; spills: vectors
    stored to the stack; gathers: vectors put together from elements; chains: registers that each iteration adds to;
    branches inside a loop; address_chain: 1 where a load waits for the load of the iteration before; register_share: of
    the machine's vector registers, those named.
    """
    total: Counter[str] = Counter()
    chains, named, wide = [], 0, 0
    for loop in hot(code):
        arithmetic = [i for i in loop if ARITHMETIC.match(i.op)]
        packed = [i for i in arithmetic if i.op.endswith(("ps", "pd"))]
        total["packed"] += len(packed)
        total["scalar"] += len(arithmetic) - len(packed)
        total["fma_wide"] += sum("fm" in i.op or "fnm" in i.op for i in packed if width([i]) >= 32)
        total["integer_ops"] += sum(bool(INTEGER.match(i.op)) for i in loop)
        total["conversions"] += sum(bool(CONVERSION.match(i.op)) for i in loop)
        calls = sum(i.op == "call" and not i.args.startswith(VECTOR_MATH) for i in loop)
        total["calls"] += calls
        if not any(i.op == "call" for i in loop):  # around a call, registers are saved because of it
            total["spills"] += sum(bool(re.match(r"v?mov\w+$", i.op)) and _to_stack(i.args) for i in loop)
        total["gathers"] += sum(bool(re.match(r"v?p?gather|v?insertps|v?pinsr[dq]|v?pinsrw", i.op)) for i in loop)
        total["branches"] += sum(bool(JUMP.match(i.op)) and i.op != "jmp" for i in loop[:-1])
        if found := carried(loop):
            chains.append(found)
        named = max(named, len({number for i in loop for _, number in VECTOR.findall(i.args)}))
        wide = max(wide, width(arithmetic or [i for i in loop if INTEGER.match(i.op)]))
    fp = total["packed"] + total["scalar"]
    keys = ("packed", "scalar", "fma_wide", "integer_ops", "conversions", "calls", "spills", "gathers", "branches")
    metrics = {key: float(total[key]) for key in keys}
    metrics |= {"fp_ops": float(fp), "width": float(wide), "register_share": named / vector_registers}
    metrics["chains"] = float(min(chains, default=0))
    metrics["address_chain"] = float(any(chases(loop) for loop in hot(code)))
    if fp:
        metrics["scalar_share"] = total["scalar"] / fp
    return metrics


def carried(loop: Sequence[Instruction]) -> int:
    """Registers that floating-point arithmetic reads and writes in a loop, and nothing else writes: accumulators."""
    writes: dict[str, list[bool]] = {}
    for i in loop:
        parts = [part.strip() for part in i.args.split(",")]
        found = VECTOR.fullmatch(parts[0])
        if found is None or re.match(r"v?u?com|v?ptest", i.op):
            continue
        sums = re.match(r"v?(?:add|sub|max|min|mul)|vfn?m\w*231", i.op) and ARITHMETIC.match(i.op)
        reads = any((m := VECTOR.fullmatch(p)) and m[2] == found[2] for p in parts[1:])
        legacy = not i.op.startswith("v")  # two operands: the first is read as well
        writes.setdefault(found[2], []).append(bool(sums) and (reads or legacy or "231" in i.op))
    return sum(all(kinds) for kinds in writes.values())


GENERAL = re.compile(r"\b(?:[re]?([abcd])[xlh]|[re]?(si|di|bp|sp)l?|r(\d+)[dwb]?)\b")


def _registers(text: str) -> set[str]:
    return {next(part for part in found if part) for found in GENERAL.findall(text)}


def chases(loop: Sequence[Instruction]) -> bool:
    """Whether some load's address comes, in the end, from what it loaded itself: a walk along pointers."""
    feeds: dict[str, set[str]] = {}
    loads: list[tuple[set[str], set[str]]] = []
    for _, op, args, _ in loop:
        target, _, source = args.partition(",")
        made = _registers(target) if "[" not in target and op not in ("cmp", "test", "push") else set()
        kept = set() if op.startswith(("mov", "lea")) else made
        if "[" in source:
            loads.append((_registers(source[source.index("[") :]), made))
            read = kept
        else:
            read = _registers(source) | kept
        for register in read:
            feeds.setdefault(register, set()).update(made)
    for address, made in loads:
        reached, open_ = set(made), list(made)
        while open_:
            here = open_.pop()
            onward = feeds.get(here, set()) | {m for a, ms in loads if here in a for m in ms}
            open_ += onward - reached
            reached |= onward
        if reached & address and made:
            return True
    return False


def _to_stack(args: str) -> bool:
    target, _, source = args.partition(",")
    return bool(re.search(r"\[r[sb]p\b", target)) and bool(VECTOR.search(source))


# ---- CUDA -----------------------------------------------------------------------------------------------------------

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

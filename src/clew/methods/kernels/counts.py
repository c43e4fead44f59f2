"""Counts the instructions in the hot loops of a compiled function of x86-64, and says at which lines of the source.

The CPU backend and ``clew kernels explain`` call it. It must never estimate time. Counts are the same on every machine,
and show what utilisation figures cannot (2606.26453, the static tools).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from clew.methods.kernels import addresses
from clew.methods.kernels.disassembly import JUMP, Instruction, disassemble, loops

ARITHMETIC = re.compile(
    r"v?(?:add|sub|mul|div|sqrt|max|min|rcp\w*|rsqrt\w*|dp|hadd|fn?m(?:add|sub|addsub)\d*)(ps|pd|ss|sd)$"
)
INTEGER = re.compile(
    r"v?p(?:add|sub|mul|mull|madd|max|min|abs|sad|cmpeq|cmpgt|and|or|xor|s[lr]l|sra|avg|ternlog|rol|ror)\w*$"
)
CONVERSION = re.compile(r"v?cvt(?:ss2sd|ps2pd|sd2ss|pd2ps)")
GATHER = re.compile(r"v?p?gather|v?insertps|v?pinsr[dq]|v?pinsrw")
VECTOR = re.compile(r"\b([xyz])mm(\d+)\b")
WIDTH = {"x": 16, "y": 32, "z": 64}
COUNTED = ("packed", "scalar", "fp_ops", "fma_wide", "integer_ops", "conversions", "calls", "spills", "gathers")
STEPS = ("strided", "branches")
VECTOR_MATH = "_ZGV"  # how the vector versions of libm's functions are named
MOST_NAME = 60  # characters of a function's name


class Site(NamedTuple):
    """One place in a hot loop that a metric counts, in words."""

    metric: str
    file: str
    line: int
    what: str


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
    packed += [i for i in _packed_integers(loop) if width([i]) > 16 or _wide(loop)]
    moved = [i for i in loop if re.match(r"v?mov[ua]p[sd]|v?movdq[ua]|vp?gather", i.op)]
    vector_calls = sum(i.op == "call" and i.args.startswith(VECTOR_MATH) for i in loop)
    return max(width(packed or moved), 64 * bool(vector_calls)), len(packed)


def width(code: Iterable[Instruction]) -> int:
    """Bytes of the widest vector register that instructions name; 0 for none."""
    return max((WIDTH[kind] for i in code for kind, _ in VECTOR.findall(i.args)), default=0)


def _wide(loop: Sequence[Instruction]) -> bool:
    """Whether a loop reads or writes whole vectors; without, vector registers hold single numbers."""
    return any(re.search(r"[XYZ]MMWORD PTR", i.args) for i in loop) or any(GATHER.match(i.op) for i in loop)


def _packed_integers(loop: Sequence[Instruction]) -> list[Instruction]:
    """Integer arithmetic on vectors; what clears a register is none."""
    found = [i for i in loop if INTEGER.match(i.op)]
    return [i for i in found if len({part.strip() for part in i.args.split(",")}) > 1]


def x86_metrics(path: Path, symbol: str, vector_registers: int = 16) -> dict[str, float]:
    """Counts over the hot inner loops of a function: see ``count_x86``."""
    return count_x86(disassemble(path, symbol), vector_registers)


def count_x86(code: Sequence[Instruction], vector_registers: int = 16) -> dict[str, float]:
    """Metrics (numbers of instructions unless said otherwise) of the hot inner loops of a function.

    packed, scalar: floating-point arithmetic, or in loops without any, integer arithmetic; scalar_share of both;
    fp_ops and integer_ops: of each kind; width: bytes of the widest register in arithmetic; fma_wide: fused
    multiply-adds of 32 bytes or more; conversions between float and double; calls; spills: vectors stored to the stack;
    gathers: vectors put together from elements; strided: addresses that step over memory; chains: registers that each
    iteration adds to; branches inside a loop; address_chain: 1 where a load waits for the load of the iteration before;
    register_share: of the machine's vector registers, those named.
    """
    total: Counter[str] = Counter()
    chains, named, wide = [], 0, 0
    for loop in hot(code):
        floating = [i for i in loop if ARITHMETIC.match(i.op)]
        packed = [i for i in floating if i.op.endswith(("ps", "pd"))]
        total["fp_ops"] += len(floating)
        total["fma_wide"] += sum("fm" in i.op or "fnm" in i.op for i in packed if width([i]) >= 32)
        vectors = _packed_integers(loop)
        total["integer_ops"] += len(vectors)
        if not floating:
            packed = vectors if _wide(loop) else []
            floating = vectors + (single := list(addresses.integer(loop)))
            total["integer_ops"] += len(single)
        total["packed"] += len(packed)
        total["scalar"] += len(floating) - len(packed)
        total.update(site.metric for site in _sites(loop))
        if not any(i.op == "call" for i in loop):  # around a call, registers are saved because of it
            total["spills"] += sum(bool(re.match(r"v?mov\w+$", i.op)) and _to_stack(i.args) for i in loop)
        total["branches"] += sum(bool(JUMP.match(i.op)) and i.op != "jmp" for i in loop[:-1])
        if found := carried(loop):
            chains.append(found)
        named = max(named, len({number for i in loop for _, number in VECTOR.findall(i.args)}))
        wide = max(wide, width(packed if packed or not total["fp_ops"] else floating))
    metrics = {key: float(total[key]) for key in (*COUNTED, *STEPS)}
    metrics |= {"width": float(wide), "register_share": named / vector_registers}
    metrics["chains"] = float(min(chains, default=0))
    metrics["address_chain"] = float(total["address_chain"] > 0)
    if total["packed"] + total["scalar"]:
        metrics["scalar_share"] = total["scalar"] / (total["packed"] + total["scalar"])
    return metrics


def sites(code: Sequence[Instruction]) -> list[Site]:
    """Where the hot loops of a function do what slows them down, in order of the source, each once."""
    return sorted({site for loop in hot(code) for site in _sites(loop)}, key=lambda s: (s.file, s.line, s.what))


def _sites(loop: Sequence[Instruction]) -> Iterator[Site]:
    for i in loop:
        if i.op == "call" and not i.args.startswith(VECTOR_MATH):
            yield Site("calls", i.file, i.line, f"calls {i.args[:MOST_NAME]}")
        elif CONVERSION.match(i.op):
            double = i.op.endswith(("2sd", "2pd")) or "2pd" in i.op
            yield Site("conversions", i.file, i.line, f"converts {'float to double' if double else 'double to float'}")
        elif GATHER.match(i.op):
            yield Site("gathers", i.file, i.line, f"puts a vector together from single elements ({i.op})")
    if waits := addresses.chase(loop):
        yield Site("address_chain", waits.file, waits.line, "loads from an address that the load before it gave")
    for step in addresses.uneven(loop):
        used = (
            f"uses {step.used} of every {abs(step.by)} bytes"
            if step.by
            else "steps by a distance known only at run time"
        )
        yield Site("strided", step.at.file, step.at.line, used)


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


def _to_stack(args: str) -> bool:
    target, _, source = args.partition(",")
    return bool(re.search(r"\[r[sb]p\b", target)) and bool(VECTOR.search(source))

"""Follows the general registers through a loop of x86-64: steps along arrays, walks along pointers, integer arithmetic.

The counts of compiled code are taken with it. It must never say of a register what another path through the loop could
make untrue: where a step or a value is not certain, it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clew.methods.kernels.disassembly import Instruction

GENERAL = re.compile(r"\b(?:[re]?([abcd])[xlh]|[re]?(si|di|bp|sp)l?|r(\d+)[dwb]?)\b")
POINTER = re.compile(r"(?:(BYTE|[DQ]?WORD|[XYZ]MMWORD) PTR )(?:\w+:)?\[([^\]]+)\]")
BYTES = {"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8, "XMMWORD": 16, "YMMWORD": 32, "ZMMWORD": 64}
STACK = re.compile(r"r[sb]p(?:[+-]0x[0-9a-f]+)?$")
READS_ONLY = re.compile(r"(?:cmp|test|push|call|ret|nop|prefetch\w*|j[a-z]+)$")
INTEGER = re.compile(
    r"(?:add|sub|adc|sbb|i?mulx?|i?div|andn?|or|xor|neg|not|sh[lr][dx]?|sa[lr]x?|ro[lr]x?|popcnt|[lt]zcnt|bs[fr]|lea|inc"
    r"|dec|cmov\w+)$"
)
UNEVEN = 2  # times as far as what is used of it: a step that skips memory


class Step(NamedTuple):
    """How far an address moves in an iteration, in bytes (None: known only at run time), and the bytes used there."""

    by: int | None
    used: int
    at: Instruction


def registers(text: str) -> set[str]:
    return {next(part for part in found if part) for found in GENERAL.findall(text)}


def _written(i: Instruction) -> set[str]:
    """General registers that an instruction writes as its first operand."""
    target = i.args.partition(",")[0]
    return set() if "[" in target or READS_ONLY.match(i.op) else registers(target)


# ---- walks along pointers -------------------------------------------------------------------------------------------


def chase(loop: Sequence[Instruction]) -> Instruction | None:
    """A load whose address comes, in the end, from what it loaded itself: a walk along pointers."""
    come: dict[str, frozenset[int]] = {}  # register or variable on the stack -> the loads that its value comes from
    for iteration in range(3):  # a value that goes through two registers comes back in the third
        for number, i in enumerate(loop):
            target, _, source = i.args.partition(",")
            if READS_ONLY.match(i.op):
                continue
            read = _sources(source if i.op.startswith(("mov", "lea")) else i.args)
            value = frozenset().union(*(come.get(name, frozenset()) for name in read))
            if i.op != "lea" and (inside := POINTER.search(source)) and not STACK.match(inside[2]):
                addressed = (come.get(name, frozenset()) for name in registers(inside[2]))
                if iteration and any(number in loads for loads in addressed):
                    return i
                value |= {number}
            for name in _written(i) or (_slots(target) if "[" in target else ()):
                come[name] = value
    return None


def _slots(text: str) -> set[str]:
    return {inside for _, inside in POINTER.findall(text) if STACK.match(inside)}


def _sources(text: str) -> set[str]:
    """Registers and variables on the stack that an operand names."""
    return registers(POINTER.sub(lambda found: "" if STACK.match(found[2]) else found[0], text)) | _slots(text)


# ---- steps along arrays ---------------------------------------------------------------------------------------------


def uneven(loop: Sequence[Instruction]) -> list[Step]:
    """The addresses that move, in an iteration, at least twice as far as what is used of them."""
    moves = _moves(loop)
    seen: dict[frozenset[tuple[str, int]], list[tuple[int, int, Instruction]]] = {}
    for i in loop:
        if i.op == "lea" or (READS_ONLY.match(i.op) and i.op not in ("cmp", "test")):
            continue
        for kind, inside in POINTER.findall(i.args):
            terms, offset = _terms(inside)
            if terms is not None:
                seen.setdefault(frozenset(terms), []).append((offset, BYTES[kind], i))
    found = []
    for key, uses in seen.items():
        fixed = [(moves.get(name, 0), scale) for name, scale in key]
        if any(by == "unsure" for by, _ in fixed):
            continue
        far = sum(by * scale for by, scale in fixed if isinstance(by, int))
        by = None if any(by == "run time" for by, _ in fixed) else far
        touched = {(at + k) % abs(by) if by else at + k for at, size, _ in uses for k in range(size)}
        if by is None or (by and abs(by) >= UNEVEN * len(touched)):
            found.append(Step(by, len(touched), uses[0][2]))
    return found


def _terms(inside: str) -> tuple[list[tuple[str, int]] | None, int]:
    """Registers with their factors and the constant of an address; None where it holds another register."""
    terms, offset = [], 0
    for sign, part in re.findall(r"([+-]?)([^+-]+)", inside):
        name, _, scale = part.partition("*")
        if found := registers(name):
            terms.append((found.pop(), int(scale or 1)))
        elif re.fullmatch(r"0x[0-9a-f]+", part):
            offset += -int(part, 16) if sign == "-" else int(part, 16)
        else:
            return None, 0
    return terms, offset


def _moves(loop: Sequence[Instruction]) -> dict[str, int | str]:
    """By how much each written register moves in an iteration: a number, ``run time``, or ``unsure``."""
    written = {name for i in loop for name in _written(i)}
    moves: dict[str, int | str] = {}
    for i in loop:
        for name in _written(i):
            by, before = _move(i, name, written), moves.get(name, 0)
            if "unsure" in (by, before):
                moves[name] = "unsure"
            elif isinstance(by, int) and isinstance(before, int):
                moves[name] = by + before
            else:
                moves[name] = "run time"
    return moves


def _move(i: Instruction, name: str, written: set[str]) -> int | str:
    source = i.args.partition(",")[2].strip()
    if i.op in ("inc", "dec"):
        return 1 if i.op == "inc" else -1
    if i.op in ("add", "sub"):
        if re.fullmatch(r"0x[0-9a-f]+", source):
            by = int(source, 16)
            by -= (by >> 63) << 64  # as a signed number
            return by if i.op == "add" else -by
        if "[" not in source and registers(source) and not registers(source) & written:
            return "run time"
    if i.op == "lea" and source.startswith("["):
        terms, offset = _terms(source.strip("[]"))
        if terms == [(name, 1)]:
            return offset
    return "unsure"


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def integer(loop: Sequence[Instruction]) -> Iterator[Instruction]:
    """Arithmetic on integers that were loaded, one at a time: not the counters and addresses of the loop itself."""
    data: set[str] = set()
    for _ in loop:  # at most as often as there are registers to add
        more = {name for i in loop if _loads(i) or registers(_read(i)) & data for name in _written(i)}
        more |= {name for i in loop if i.op.startswith("set") for name in _written(i)}
        if more <= data:
            break
        data |= more
    for i in loop:
        parts = [part.strip() for part in i.args.split(",")]
        cleared = i.op in ("xor", "sub") and len(parts) == 2 and parts[0] == parts[1]
        if INTEGER.match(i.op) and not cleared and (_loads(i) or registers(_read(i)) & data):
            yield i


def _read(i: Instruction) -> str:
    """The operands that an instruction reads as values; those of an address only where it is computed with."""
    target, _, source = i.args.partition(",")
    text = source if i.op.startswith(("mov", "lea", "set")) or (not source and "[" in target) else i.args
    return text if i.op == "lea" else re.sub(r"\[[^\]]*\]", "", text)


def _loads(i: Instruction) -> bool:
    """Whether it reads memory that is no variable on the stack."""
    text = i.args.partition(",")[2] if i.op.startswith("mov") else i.args
    return i.op != "lea" and any(not STACK.match(inside) for _, inside in POINTER.findall(text))

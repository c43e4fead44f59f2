"""Reads the instructions of a compiled function of x86-64 by objdump, and finds its innermost loops.

The CPU backend and ``clew kernels explain`` call it. It must never run what it reads.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, MissingExtra

SECONDS = 60  # a disassembler gets
JUMP = re.compile(r"^j[a-z]+$")
ROW = re.compile(r"^\s*([0-9a-f]+):\s+([a-z][\w.]*)\s*(.*?)\s*(?:#.*)?$")
FORMAT = re.compile(r"file format (\S+)")
PREFIXES = ("bnd", "rep", "repz", "repnz", "lock", "data16", "cs", "notrack")


class OtherMachine(BadInput):
    """An object whose instructions are not those of x86-64."""


class Instruction(NamedTuple):
    """``line`` and ``file`` are of the source, 0 and empty where the object does not say."""

    at: int
    op: str
    args: str
    line: int = 0
    file: str = ""


def objdump() -> str:
    """The name of the program that reads objects.

    Raises:
        MissingExtra: it is not installed.
    """
    if shutil.which("objdump") is None:
        raise MissingExtra("objdump is not installed", remedy="Install binutils.")
    return "objdump"


def disassemble(path: Path, symbol: str) -> list[Instruction]:
    """The instructions of one function of an object, shared library or program.

    Raises:
        MissingExtra: there is no objdump. OtherMachine: an object of another processor. BadInput: not an object
        file, or it has no such function.
    """
    command = [objdump(), "-d", "-r", "-l", "--no-show-raw-insn", "-M", "intel", f"--disassemble={symbol}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if (kind := FORMAT.search(done.stdout)) and "x86-64" not in kind[1]:
        raise OtherMachine(f"{path} is of format {kind[1]}", remedy="Compile it for x86-64: only that is read here.")
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
    command = [objdump(), "-t", str(path)]
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
    line, file = 0, ""
    for row in text.splitlines():
        if found := re.match(r"^(\S.*):(\d+)(?: \(discriminator \d+\))?$", row):
            file, line = found[1], int(found[2])
        elif (found := re.match(r"^\s*[0-9a-f]+: R_X86_64_PL?T?\w*\s+(\S+)", row)) and code and code[-1].op == "call":
            code[-1] = code[-1]._replace(args=re.split(r"[-+]0x", found[1])[0])
        elif found := ROW.match(row):
            op, args = found[2], found[3]
            while op in PREFIXES and args:
                op, _, args = args.partition(" ")
            if op == "call" and (called := re.search(r"<([^+@>]+)", args)):
                args = called[1]
            code.append(Instruction(int(found[1], 16), op, args.strip(), line, file))
    return code


def loops(code: Sequence[Instruction]) -> list[list[Instruction]]:
    """The innermost natural loops, in order of address: what a step back to an instruction that every way there passes
    repeats, with no such loop inside. The step back may run on into a test that the loop is entered at."""
    follows = _follows(code)
    before: list[list[int]] = [[] for _ in code]
    for i, targets in enumerate(follows):
        for target in targets:
            before[target].append(i)
    over = _dominators(follows, before)
    back = [(head, i) for i, heads in enumerate(follows) for head in heads if _dominates(over, head, i)]
    bodies = {_body(before, head, i) for head, i in back}
    inner = [body for body in bodies if not any(other < body for other in bodies)]
    return [[code[i] for i in sorted(body)] for body in sorted(inner, key=min)]


def _follows(code: Sequence[Instruction]) -> list[list[int]]:
    """For each instruction, which may come next."""
    index = {instruction.at: i for i, instruction in enumerate(code)}
    follows: list[list[int]] = []
    for i, instruction in enumerate(code):
        found = re.match(r"(?:0x)?([0-9a-f]+)\b", instruction.args) if JUMP.match(instruction.op) else None
        target = index.get(int(found[1], 16)) if found else None
        runs_on = i + 1 < len(code) and instruction.op not in ("jmp", "ret")
        follows.append([i + 1] * runs_on + ([] if target is None else [target]))
    return follows


def _dominators(follows: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    """For each instruction that can be reached: the last one that every way to it passes, and its place in the order
    in which ways run through (Cooper, Harvey and Kennedy, A Simple, Fast Dominance Algorithm)."""
    if not follows:
        return {}
    order, seen, open_ = [], {0}, [(0, iter(follows[0]))]
    while open_:
        here, rest = open_[-1]
        if (onward := next((i for i in rest if i not in seen), None)) is None:
            order.append(here)
            open_.pop()
        else:
            seen.add(onward)
            open_.append((onward, iter(follows[onward])))
    order.reverse()
    place = {i: n for n, i in enumerate(order)}
    over, changed = {0: 0}, True
    while changed:
        changed = False
        for i in order[1:]:
            known = [j for j in before[i] if j in over]
            found = known[0]
            for other in known[1:]:
                while found != other:
                    if place[found] > place[other]:
                        found = over[found]
                    else:
                        other = over[other]
            if over.get(i) != found:
                over[i], changed = found, True
    return {i: (over[i], place[i]) for i in order}


def _dominates(over: Mapping[int, tuple[int, int]], head: int, i: int) -> bool:
    """Whether every way to ``i`` passes ``head``."""
    if head not in over or i not in over:
        return False
    while over[i][1] > over[head][1]:
        i = over[i][0]
    return i == head


def _body(before: Sequence[Sequence[int]], head: int, tail: int) -> frozenset[int]:
    """The natural loop of the step from ``tail`` back to ``head``."""
    body, open_ = {head}, [tail]
    while open_:
        i = open_.pop()
        if i not in body:
            body.add(i)
            open_ += before[i]
    return frozenset(body)

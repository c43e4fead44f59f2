"""What the compiler was told and what it said: the flags of an object, remarks on loops, and a source file compiled.

``clew kernels explain`` calls it. Only a file that the user names is compiled, and nothing that was compiled is run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, MissingExtra
from clew.methods.kernels.disassembly import SECONDS, Instruction, objdump
from clew.methods.kernels.runs import Direct

COMPILERS = {".c": ("gcc", "cc", "clang"), ".cpp": ("g++", "c++", "clang++"), ".cc": ("g++", "c++", "clang++")}
DEFAULT = "-O2"
COMPILE_SECONDS = 60.0
MOST_TEXT, MOST_REMARKS = 8 << 20, 8  # characters of remarks that are read, remarks that are told
PRODUCER = re.compile(r"DW_AT_producer\s*:\s*(?:\([^)]*\): ?)?(.*)")
NAME = re.compile(r"DW_AT_name\s*:\s*(?:\([^)]*\): ?)?(.*)")
GCC = re.compile(r"^(.+?):(\d+):\d+: missed: +(.*)")
CLANG = re.compile(r"^(.+?):(\d+):\d+: remark: (.*?)(?: \[-Rpass[^\]]*\])?$")
GENERAL = re.compile(r"^(?:couldn't vectorize loop|loop not vectorized|not vectorized)$")
WIDE = re.compile(r"-m(?:avx\S*|arch=(?!(?:x86-64(?:-v2)?|core2|nehalem|westmere|i\d86)$).*)$")


class Compiled(NamedTuple):
    """A compiler by name and version, and the flags it was called with: none where it does not record them (clang)."""

    compiler: str
    flags: tuple[str, ...]


class Remark(NamedTuple):
    """What the compiler says about the loop at a line of a file."""

    file: str
    line: int
    text: str


# ---- the flags ------------------------------------------------------------------------------------------------------


def told(path: Path, code: Sequence[Instruction]) -> Compiled | None:
    """How the source of ``code`` was compiled, as the object's debug information says; None where it does not."""
    command = [objdump(), "--dwarf=info", "--dwarf-depth=1", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
    units: list[tuple[str, str]] = []
    for row in done.stdout.splitlines():
        if found := PRODUCER.search(row):
            units.append((found[1].strip(), ""))
        elif units and not units[-1][1] and (found := NAME.search(row)):
            units[-1] = units[-1][0], found[1].strip()
    names = {Path(i.file).name for i in code if i.file}
    own = {producer for producer, name in units if Path(name).name in names}
    if len(own) != 1:
        return None
    words = own.pop().split()
    first = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    return Compiled(" ".join(words[:first]), tuple(words[first:]))


def short(flags: Iterable[str]) -> str:
    """The flags that decide about speed: the level, the target, and what was switched on by name."""
    flags = list(flags)
    chosen = [f for f in flags if re.match(r"-(?:O|march=|mcpu=|mprefer|f(?!opt-info|asynchronous|stack|PIC|pic))", f)]
    features = [f for f in flags if re.match(r"-m(?!no-|arch=|tune=|cpu=|prefer)", f)]
    return " ".join(sorted([*chosen, *(features if len(features) < 8 else ())], key=flags.index)) or "-O0"


def to_try(moves: Iterable[str], metrics: Mapping[str, float], flags: Sequence[str]) -> list[str]:
    """Flags that the advice comes to and that are not among ``flags``, those that were used."""
    used, moves = flags, set(moves)
    level = [f for f in used if re.fullmatch(r"-O\w*", f)][-1:]
    if metrics.get("address_chain"):
        return []  # no flag makes a chain of loads shorter
    found = []
    if moves & {"isa", "simd", "fast-math"} and level not in (["-O3"], ["-Ofast"]):
        found.append("-O3")
    if "isa" in moves and not any(WIDE.match(f) for f in used):
        found.append("-march=native")
    floating = metrics.get("fp_ops") or metrics.get("calls")
    if "fast-math" in moves and floating and "-ffast-math" not in used and level != ["-Ofast"]:
        found.append("-ffast-math")
    return found


# ---- the remarks ----------------------------------------------------------------------------------------------------


def remarks(text: str, code: Sequence[Instruction]) -> list[Remark]:
    """What gcc (-fopt-info-vec-missed) or clang (-Rpass-missed, -Rpass-analysis=loop-vectorize) said about the lines of
    ``code``, each once and the telling ones only, at most ``MOST_REMARKS``."""
    lines: dict[str, set[int]] = {}
    for i in code:
        lines.setdefault(Path(i.file).name, set()).add(i.line)
    found: dict[Remark, None] = {}
    for row in text[:MOST_TEXT].splitlines():
        seen = GCC.match(row[:1000]) or CLANG.match(row[:1000])
        name = Path(seen[1]).name if seen else ""
        if seen and lines.get(name) and min(lines[name]) <= int(seen[2]) <= max(lines[name]):
            said = re.sub(r"^(?:not vectorized|loop not vectorized): ", "", seen[3])
            found[Remark(name, int(seen[2]), said.strip())] = None
    telling = [remark for remark in found if not GENERAL.match(remark.text)]
    return (telling or list(found))[:MOST_REMARKS]


# ---- a source file --------------------------------------------------------------------------------------------------


def compile_source(path: Path, flags: str, folder: Path) -> tuple[Path, str, tuple[str, ...]]:
    """An object of the user's own source, in ``folder``, the compiler's remarks on it, and the flags as words.

    Raises:
        MissingExtra: there is no compiler. BadInput: it does not compile.
    """
    compiler = next((name for name in COMPILERS[path.suffix] if shutil.which(name)), "")
    if not compiler:
        raise MissingExtra(f"{path} is source, and there is no compiler for it", remedy="Install gcc.")
    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise BadInput(f"--flags {flags!r}: {error}", remedy="Close the quotation.") from None
    run, made, said = Direct(Path.cwd()), folder / "kernel.o", folder / "remarks.txt"
    clang = "clang" in run([compiler, "--version"], [], [], COMPILE_SECONDS).out
    ask = ["-Rpass-missed=loop-vectorize", "-Rpass-analysis=loop-vectorize"]
    ask = ask if clang else [f"-fopt-info-vec-missed={said}"]
    command = [compiler, *words, *ask, "-g", "-c", os.path.abspath(path), "-o", str(made)]
    done = run(command, [], [], COMPILE_SECONDS)
    if done.code or not made.exists():
        raise BadInput(f"{path} does not compile: {done.reason}", remedy="Mend it, or give what it needs in --flags.")
    text = done.err if clang or not said.exists() else said.read_text(errors="replace")
    return made, text, tuple(words)

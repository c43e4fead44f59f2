"""A plain C file with a driver: how builds of it are made, compared by what they print, and timed as whole programs.

The tuning world calls it where a kernel is no ``Kernel`` but C source alone. There is no reference to judge by: a build
is right if it prints what the plain build prints. Source that a model wrote must never be judged so, since it could
print the known numbers and do nothing.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from clew.core.errors import BadInput, UnknownName
from clew.methods.kernels import cpu, disassembly, wall
from clew.methods.kernels.cpu import Built, Speed
from clew.methods.kernels.kernel import Candidate, Option, Space
from clew.methods.kernels.rules import Bound
from clew.methods.kernels.runs import Direct, Done, Run

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
SAME = 1e-4  # by which a printed number may differ, as a share of it: sums in another order do
SHORTEST, LONGEST = 0.02, 5.0  # seconds of a timed program: below, starting it counts; above, a search takes hours
MOST_SOURCE, MOST_PRINTED = 1 << 20, 1 << 20  # characters


class Program(NamedTuple):
    """A C file to be tuned, as its user wrote it. It has no options but the compiler's flags."""

    name: str
    source: str
    path: Path
    options: tuple[Option, ...] = ()


def read(path: Path) -> str:
    """The text of a C file.

    Raises:
        UnknownName: no such file. BadInput: it is no text, or too long.
    """
    if not path.is_file():
        raise UnknownName(f"no file {str(path)!r}", remedy="Check the path.")
    with path.open("rb") as file:
        data = file.read(MOST_SOURCE + 1)
    if len(data) > MOST_SOURCE:
        raise BadInput(f"{path} is longer than {MOST_SOURCE >> 10} kB", remedy="Give the kernel's own file.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text in UTF-8", remedy="Give C source.") from None


def program(path: Path) -> Program:
    """The program of a C file. Raises what ``read`` raises."""
    return Program(path.name, read(path), path)


class Driven:
    """Builds and measures candidates of a ``Program``, as ``Cpu`` does of a Kernel.

    Args:
        driver: the C file that has ``main``; none where the program has it.
        flags: what the compiler needs for every build: directories, macros, libraries.
        run: how commands are run, and the folder for sources and builds.

    Raises:
        MissingExtra: there is no C compiler or no objdump.
        BadInput: it does not build, or what it prints cannot be compared, or its time not be told.
    """

    def __init__(self, kernel: Program, driver: str, flags: str, run: Run) -> None:
        self.kernel, self.folder, self._run, self.space = kernel, run.folder, run, Space(kernel)
        self.compiler = cpu.compiler()
        try:
            self._needed = shlex.split(flags)
        except ValueError as error:
            raise BadInput(f"--flags {flags!r}: {error}", remedy="Close the quotation.") from None
        if isinstance(run, Direct):  # a sandbox has none of the user's folders
            places = [kernel.path, *([Path(driver)] if driver else [])]
            self._needed = [*dict.fromkeys(f"-I{place.resolve().parent}" for place in places), *self._needed]
        self._builds: dict[str, Built] = {}
        self._objects = ["driver.o"] if driver else []
        if driver:
            (self.folder / "driver.c").write_text(read(Path(driver)), encoding="utf-8")
            self._made(["-O2", *self._needed, "-c", "driver.c"], "driver.c", "driver.o", f"{driver} does not compile")
        (self.folder / "turns.c").write_text((files("clew.methods.kernels") / "turns.c").read_text())
        self._made(["-O2", "turns.c"], "turns.c", "turns", "the timer does not build")
        self.plain = self.build(self.space.start())
        if self.plain.path is None:
            raise BadInput(f"{kernel.name} does not build: {self.plain.why}", remedy=self._remedy(bool(driver)))
        self._printed = self._measurable(self.plain.path)

    def _remedy(self, driven: bool) -> str:
        if "main" in self.plain.why and "undefined" in self.plain.why:
            return "Name a C file whose main calls it and prints the results: --driver MAIN.c."
        if "main" in self.plain.why and "multiple" in self.plain.why:
            return "It has a main of its own: leave --driver out."
        return "Mend it, or give what it needs in --flags." if not driven else "Mend it or the driver, or see --flags."

    def _measurable(self, plain: Path) -> str:
        """What the plain build prints, once it is sure that builds can be compared and timed by it."""
        name, printed = self.kernel.name, []
        for _ in range(2):
            done = self._start(plain)
            if done.code:
                raise BadInput(f"{name} fails when it runs: {done.reason}", remedy="Mend it or its driver.")
            printed.append(done.out)
        if not NUMBER.search(printed[0]) or len(printed[0]) > MOST_PRINTED:
            told = "prints no number" if len(printed[0]) <= MOST_PRINTED else "prints more than 1 MB"
            raise BadInput(f"{name} {told}, so its builds cannot be compared", remedy="Let main print the results.")
        if difference(*printed):
            told = f"{name} prints other numbers each time, so its builds cannot be compared"
            raise BadInput(told, remedy="Fix its seeds, and print no times and no addresses.")
        found = self.time(self.plain, self.plain, blocks=1)
        if isinstance(found, wall.Wrong):
            raise BadInput(f"{name} cannot be timed: {found.why}", remedy=f"Let it end within {LONGEST:g} s.")
        if not SHORTEST <= found.a <= LONGEST:
            few = found.a < SHORTEST
            told = f"{name} takes {found.a:.3g} s of CPU time, too {'little' if few else 'much'} to be compared well"
            remedy = f"Let main call the kernel {'more' if few else 'less'} often: {SHORTEST:g} to {LONGEST:g} s."
            raise BadInput(told, remedy=remedy)
        return printed[0]

    def build(self, candidate: Candidate) -> Built:
        """Compile and link; the same flags once."""
        if candidate.source:
            told = f"{self.kernel.name} has no reference that new source could be judged by"
            raise BadInput(told, remedy="Write a Python file that defines `kernel`; see docs/kernels.md.")
        flags = self.space.flags(candidate)
        name = hashlib.blake2b(repr(flags).encode(), digest_size=8).hexdigest()
        if name not in self._builds:
            text, object_, target = f"{name}.c", f"{name}.o", f"{name}.out"
            where = f'#line 1 "{self.kernel.name}"\n' if re.fullmatch(r"[\w. -]+", self.kernel.name) else ""
            (self.folder / text).write_text(where + self.kernel.source, encoding="utf-8")
            command = [self.compiler, "-g", *self._needed, *flags, "-c", text, "-o", object_]
            done = self._run(command, [text], [object_], cpu.BUILD_SECONDS)
            if not done.code:
                parts = [object_, *self._objects]
                command = [self.compiler, *parts, "-o", target, *self._needed, "-lm"]
                done = self._run(command, parts, [target], cpu.BUILD_SECONDS)
            built = done.code == 0 and (self.folder / target).exists()
            self._builds[name] = Built(candidate, self.folder / target if built else None, "" if built else _why(done))
        return self._builds[name]._replace(candidate=candidate)

    def check(self, built: Built) -> wall.Wrong | None:
        """Whether it prints what the plain build prints."""
        assert built.path is not None
        done = self._start(built.path)
        why = done.reason if done.code else difference(self._printed, done.out[: MOST_PRINTED + 1])
        return wall.Wrong(why, "what it prints") if why else None

    def time(self, a: Built, b: Built, blocks: int = cpu.BLOCKS, seed: int = 0) -> Speed | wall.Wrong:
        """Whole runs of both builds in turn, by the CPU time of each."""
        assert a.path is not None
        assert b.path is not None
        command = ["./turns", str(blocks), f"./{a.path.name}", f"./{b.path.name}"]
        done = self._run(command, ["turns", a.path.name, b.path.name], [], cpu.RUN_SECONDS)
        if done.code:
            return wall.Wrong(done.reason, "timing")
        return cpu.speed(*cpu.times(done.out), seed)

    def metrics(self, built: Built, seconds: float | None = None, profile: bool = True) -> dict[str, float]:
        """Counts of the inner loops of the largest function (of x86-64 only). What a call computes and moves is not
        known, so there are no shares of the machine's ceilings."""
        assert built.path is not None
        compiled = built.path.with_suffix(".o")
        symbol = next(iter(disassembly.functions(compiled)), "")
        return cpu.inner_loops(compiled, symbol) if symbol else {}

    def bound(self, metrics: dict[str, float]) -> tuple[Bound, bool]:
        """A chain of loads that each wait for the last is latency; else it is not known."""
        return ("latency" if metrics.get("address_chain", 0) > 0 else "mixed"), True

    def _made(self, arguments: Sequence[str], source: str, target: str, told: str) -> None:
        command = [self.compiler, *arguments, "-o", target]
        done = self._run(command, [source], [target], cpu.BUILD_SECONDS)
        if done.code or not (self.folder / target).exists():
            raise BadInput(f"{told}: {done.reason}", remedy="Mend it, or give what it needs in --flags.")

    def _start(self, path: Path) -> Done:
        return self._run([f"./{path.name}"], [path.name], [], cpu.RUN_SECONDS)


def _why(done: Done) -> str:
    """The reason; the linker's is not in its first line."""
    rows = [row for row in done.err.splitlines() if "undefined " in row or "multiple definition" in row]
    linking = rows and "error:" not in done.err.partition(rows[0])[0]
    return rows[0].rpartition("ld: ")[2][:300] if linking else done.reason


def difference(expected: str, given: str) -> str:
    """In words, where two outputs differ by more than ``SAME``; empty where they do not."""
    for number, (one, other) in enumerate(zip(expected.split(), given.split(), strict=False), 1):
        if one != other and not _close(one, other):
            return f"prints {other[:40]!r} where the plain build prints {one[:40]!r} (word {number})"
    few, many = sorted((len(expected.split()), len(given.split())))
    return "" if few == many else f"prints {len(given.split())} words, the plain build {len(expected.split())}"


def _close(one: str, other: str) -> bool:
    """Whether two words are the same but for the numbers in them, and these next to equal."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(map(float, NUMBER.findall(one)), map(float, NUMBER.findall(other)), strict=True)
    return all(math.isclose(a, b, rel_tol=SAME) for a, b in pairs)

"""A kernel to be tuned: its C source, its inputs and expected outputs, and what may be changed about it. Authors of
kernels write one, and every part of the tuner reads it. It must never run or compile anything."""

from __future__ import annotations

import itertools
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput

Arrays = dict[str, npt.NDArray[Any]]
Sizes = Mapping[str, int]
CTYPES = {"float32": "float", "float64": "double", "int8": "signed char", "uint8": "unsigned char"}
CTYPES |= {"int32": "int", "int64": "long"}


@dataclass(frozen=True, slots=True)
class Array:
    """An array argument. ``length`` gives the number of elements from the sizes, by name."""

    name: str
    length: Callable[..., int]
    dtype: str = "float32"
    role: Literal["in", "out"] = "in"


@dataclass(frozen=True, slots=True)
class Option:
    """A macro of the source with the values it may take, the first of which is where the search starts.

    ``move`` is the word by which a rule recommends changing it: interchange, tile, accumulators, literals, ...
    """

    name: str
    values: tuple[int, ...]
    move: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One C function ``void SYMBOL(arrays..., long sizes...)`` and how to judge an implementation of it.

    Args:
        source: C text; reads its options as macros.
        sizes: names of the size arguments, in order.
        shapes: at least three; the first is timed, and one must be no multiple of any tile.
        inputs: makes the input arrays from a generator and the sizes.
        reference: from the input arrays (floating-point ones as float64) and the sizes, the outputs in float64.
        flops: operations of one call, from the sizes.
        tolerance: error allowed, as a share of the largest reference value, where four times the error of the plain
            build is less.
        gemm: it is, in the main, a matrix product.
    """

    name: str
    source: str
    symbol: str
    arrays: tuple[Array, ...]
    sizes: tuple[str, ...]
    shapes: tuple[Sizes, ...]
    inputs: Callable[..., Arrays]
    reference: Callable[..., Arrays]
    flops: Callable[..., float]
    options: tuple[Option, ...] = ()
    tolerance: float = 1e-5
    gemm: bool = False

    def __post_init__(self) -> None:
        if len(self.shapes) < 3:
            raise BadInput(f"kernel {self.name} has {len(self.shapes)} shapes", remedy="Give three or more.")
        unknown = [a.dtype for a in self.arrays if a.dtype not in CTYPES]
        if unknown or not any(a.role == "out" for a in self.arrays):
            raise BadInput(
                f"kernel {self.name}: {f'dtype {unknown[0]}' if unknown else 'no output'}",
                remedy=f"Give an Array with role='out'; dtypes are {', '.join(CTYPES)}.",
            )

    def call_bytes(self, sizes: Sizes) -> int:
        """Compulsory traffic of a call: each array once."""
        return sum(a.length(**sizes) * np.dtype(a.dtype).itemsize for a in self.arrays)

    def case(self, seed: int, sizes: Sizes) -> Arrays:
        """Input arrays of a seed, as the dtypes say.

        Raises:
            BadInput: the kernel's ``inputs`` gave other names, lengths or dtypes.
        """
        made = self._called("inputs", np.random.default_rng([seed, *sizes.values()]), **sizes)
        for a in self.arrays:
            if a.role == "in":
                found = made.get(a.name)
                if found is None or found.dtype != a.dtype or found.size != a.length(**sizes):
                    told = "nothing" if found is None else f"{found.size} x {found.dtype}"
                    raise BadInput(
                        f"inputs of kernel {self.name} gave {told} for {a.name} at {dict(sizes)}",
                        remedy=f"Give {a.length(**sizes)} x {a.dtype}.",
                    )
        return made

    def expected(self, inputs: Arrays, sizes: Sizes) -> Arrays:
        """The outputs in float64 (integers stay as they are).

        Raises:
            BadInput: the kernel's ``reference`` gave other names or lengths.
        """
        exact = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in inputs.items()}
        made = self._called("reference", **exact, **sizes)
        given = {name: np.size(value) for name, value in made.items()}
        wanted = {a.name: a.length(**sizes) for a in self.arrays if a.role == "out"}
        if given != wanted:
            raise BadInput(
                f"reference of kernel {self.name} gave {given or 'nothing'} elements at {dict(sizes)}",
                remedy=f"Give {wanted}.",
            )
        return {name: np.ravel(value) for name, value in made.items()}

    def _called(self, name: str, *args: Any, **named: Any) -> Arrays:
        """What a function of the kernel's author gives; an error in it is bad input, not ours."""
        try:
            made = getattr(self, name)(*args, **named)
        except Exception as error:
            raise BadInput(
                f"{name} of kernel {self.name} raised {type(error).__name__}: {error}", remedy="Mend it."
            ) from error
        if not isinstance(made, dict):
            raise BadInput(
                f"{name} of kernel {self.name} gave a {type(made).__name__}", remedy="Give a dict of arrays."
            )
        return made


def targets(machine: str) -> tuple[str, ...]:
    """Flags that name a kind of processor, by what ``platform.machine`` says, from the oldest to the one at hand."""
    if machine in ("x86_64", "AMD64", "i686"):
        return ("-msse4.2", "-mavx2 -mfma", "-march=native")
    if machine in ("aarch64", "arm64"):
        return ("-march=armv8-a", "-mcpu=native")
    return ("", "-mcpu=native") if machine.startswith("arm") else ("",)


FLAGS: dict[str, tuple[str, ...]] = {
    "opt": ("-O2", "-O3"),
    "isa": targets(platform.machine()),
    "math": ("", "-ffast-math"),
    "simd": ("", "-fopenmp-simd -DSIMD"),
    "unroll": ("", "-funroll-loops"),
}  # what may be changed about any kernel; the first values are where the search starts
STRONG = {"opt": "-O3", "isa": FLAGS["isa"][-1], "math": "-ffast-math"}  # what a careful user would set
MOVES = {"opt": "isa", "isa": "isa", "math": "fast-math", "simd": "simd", "unroll": "unroll"}
ALSO = {"vector-libm": "fast-math", "register-block": "tile", "smaller-tile": "tile", "restrict": "simd"}


class Candidate(NamedTuple):
    """One way to build a kernel: option -> index of its value, in the order of the space; other source, if any."""

    choice: tuple[tuple[str, int], ...]
    source: str = ""

    def changed(self, option: str, value: int) -> Candidate:
        return self._replace(choice=tuple((o, value if o == option else v) for o, v in self.choice))


class Tunable(Protocol):
    """What a Space is made of: a Kernel, or a C file alone."""

    @property
    def options(self) -> tuple[Option, ...]: ...


class Space:
    """What may be changed about a kernel: compiler flags, and the macros of its source.

    ``flags`` of the kernel at hand are those of FLAGS named; all of them where None.
    """

    def __init__(self, kernel: Tunable, flags: Sequence[str] | None = None) -> None:
        names = FLAGS if flags is None else flags
        self.values: dict[str, tuple[Any, ...]] = {name: FLAGS[name] for name in names}
        self.moves = {name: MOVES[name] for name in names}
        for option in kernel.options:
            self.values[option.name], self.moves[option.name] = option.values, option.move
        self._macros = {option.name for option in kernel.options}

    @property
    def size(self) -> int:
        return math.prod(map(len, self.values.values()))

    def start(self) -> Candidate:
        return Candidate(tuple((name, 0) for name in self.values))

    def all(self) -> Iterator[Candidate]:
        names = list(self.values)
        for indices in itertools.product(*(range(len(v)) for v in self.values.values())):
            yield Candidate(tuple(zip(names, indices, strict=True)))

    def around(self, candidate: Candidate) -> list[tuple[str, Candidate]]:
        """Every candidate that differs in one option, with the option's move."""
        return [
            (self.moves[name], candidate.changed(name, i))
            for name, at in candidate.choice
            for i in range(len(self.values[name]))
            if i != at
        ]

    def flags(self, candidate: Candidate) -> list[str]:
        """The compiler's arguments."""
        found: list[str] = []
        for name, i in candidate.choice:
            value = self.values[name][i]
            found += [f"-D{name}={value}"] if name in self._macros else str(value).split()
        return found

    def told(self, candidate: Candidate) -> str:
        """In words: the flags, and a note where the source is new."""
        return " ".join(self.flags(candidate)) + (" (new source)" if candidate.source else "")

"""A transcript as a vector: hashed character and word n-grams, in numpy alone.

``clew.models.compose.router`` decides by it, and whoever fits a router measures with it. It reads no weights and keeps
no vocabulary. The same text must give the same numbers on every machine, in every process and in every later version:
a head that was fitted on them is kept in a folder. So nothing here may use Python's ``hash``, the tables of
Unicode, or sums whose order the processor chooses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.keys import encode
from clew.core.values import F32, Message

LEAST, MOST = 16, 1 << 16  # of a vector's length
RECENT = 400  # bytes at the end that have a block of their own: what has just been said decides who goes on
FACTOR = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2 to the 64
INVERSE = pow(FACTOR, -1, 1 << 64)
U64 = npt.NDArray[np.uint64]


def _table(*changes: tuple[range, int]) -> npt.NDArray[np.uint8]:
    table = np.arange(256, dtype=np.uint8)
    for codes, to in changes:
        table[list(codes)] = to
    return table


LOWER = _table(*((range(code, code + 1), code + 32) for code in range(65, 91)))
SHAPE = LOWER.copy()  # of words: a number counts by how long it is, not by which it is
SHAPE[48:58] = 48
WORDLY = np.zeros(256, dtype=bool)  # bytes of words: ASCII letters, digits, _, and whatever is not ASCII
WORDLY[[*range(48, 58), *range(65, 91), 95, *range(97, 123), *range(128, 256)]] = True


def transcript(messages: Sequence[Message]) -> str:
    """Plain ``role: content`` lines, a tool call as ``role: name arguments``: what a router reads of a request.

    The form is that of TRINITY's released router, whose decisions depend on it (spec of arXiv 2606.21228, 3.1).
    """
    lines = list[str]()
    for message in messages:
        if message.text or not message.calls:
            lines.append(f"{message.role}: {message.text}")
        lines += [f"{message.role}: {call.name} {call.arguments}" for call in message.calls]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Ngrams:
    """Text to float32 [dim], of L2 norm 1: signed hashed counts, their square roots taken, in three equal blocks.

    The blocks are characters (3 to 5 bytes of UTF-8), words (1 and 2), and both again of the last 400 bytes. The
    first number of a vector is a constant, which serves a linear head as its bias.

    Args:
        dim: length of the vector, 16 to 65,536.
        chars: bytes that are read at most; of a longer text, the first quarter of them and the last three.

    Raises:
        BadInput: a size without a meaning.
    """

    dim: int = 2048
    chars: int = 8000

    kind: ClassVar[str] = "ngrams"
    centred: ClassVar[bool] = False
    slow: ClassVar[bool] = False

    def __post_init__(self) -> None:
        sizes = (self.dim, self.chars)
        if any(isinstance(one, bool) or not isinstance(one, int) for one in sizes):
            raise BadInput(f"n-grams of sizes {sizes}", remedy="Give dim and chars as whole numbers.")
        if not LEAST <= self.dim <= MOST or not 100 <= self.chars <= 10**6:
            raise BadInput(
                f"n-grams of dim {self.dim} over {self.chars} bytes",
                remedy=f"Use a dim of {LEAST} to {MOST}, and 100 to 1,000,000 chars.",
            )

    def said(self) -> dict[str, int]:
        """What decides, as JSON."""
        return asdict(self)

    def __call__(self, text: str) -> F32:
        data = np.frombuffer(self._bounded(encode(text)), dtype=np.uint8)
        grams, words = _characters(LOWER[data]), _words(SHAPE[data], WORDLY[data])
        late = data[-RECENT:]
        blocks = (
            grams,
            words,
            (*(one[-RECENT + 2 + i :] for i, one in enumerate(grams)), *_words(SHAPE[late], WORDLY[late])),
        )
        sizes = [sum(map(len, block)) for block in blocks]
        salts = [np.uint64((tag + 1) * FACTOR % (1 << 64)) for tag in range(len(blocks))]
        hashes = _mixed(np.concatenate([one for block in blocks for one in block]) + np.repeat(salts, sizes))
        place = (hashes % np.uint64(self.dim - 1)).astype(np.int64) + 1  # 0 is the constant's
        place += np.repeat(np.arange(len(blocks)) * self.dim, sizes)
        sign = 1.0 - 2.0 * (hashes >> np.uint64(63)).astype(np.float64)
        counts = np.bincount(place, sign, len(blocks) * self.dim).reshape(-1, self.dim)
        sizes_of = np.abs(counts)  # whole numbers: their sum is exact in any order
        norms = np.sqrt(np.maximum(sizes_of.sum(1), 1.0))
        first, second, third = np.sign(counts) * np.sqrt(sizes_of) / norms[:, None]
        vector = first + second + third
        vector[0] = 1.0
        norm = math.sqrt(np.cumsum(vector * vector)[-1])  # one after another: there is only one such order
        found: F32 = (vector / norm).astype(np.float32)
        return found

    def _bounded(self, data: bytes) -> bytes:
        first = self.chars // 4
        return data if len(data) <= self.chars else data[:first] + data[len(data) - (self.chars - first) :]


def _mixed(z: U64) -> U64:
    """The splitmix64 finaliser (Steele, Lea and Flood 2014, 10.1145/2660193.2660195)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _characters(data: npt.NDArray[np.uint8]) -> tuple[U64, ...]:
    """A hash of every run of 3, of 4 and of 5 bytes: their polynomial modulo 2 to the 64."""
    values, found = data.astype(np.uint64) + np.uint64(1), list[U64]()
    rolled = values
    for n in range(2, 6):
        rolled = rolled[:-1] * np.uint64(FACTOR) + values[n - 1 :] if len(values) >= n else rolled[:0]
        if n > 2:
            found.append(_mixed(rolled + np.uint64(n)))
    return tuple(found)


def _words(data: npt.NDArray[np.uint8], wordly: npt.NDArray[np.bool_]) -> tuple[U64, U64]:
    """A hash of every word, and of every two in a row."""
    edges = np.diff(np.concatenate(([0], wordly.astype(np.int8), [0])))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    sums = np.zeros(len(data) + 1, dtype=np.uint64)
    powers, shift = _powers(max(1, len(data) - 1).bit_length())
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * powers[: len(data)], out=sums[1:])
    # a word's polynomial starts at its place in the text: divided by that power, it is the same wherever it stands
    ones = _mixed((sums[ends] - sums[starts]) * shift[starts])
    return ones, _mixed(ones[:-1] * np.uint64(FACTOR) + ones[1:])


@lru_cache(maxsize=24)
def _powers(bits: int) -> tuple[U64, U64]:
    """Two to the ``bits`` powers of FACTOR, from the first on, and of its inverse, from the zeroth on."""
    most = 1 << bits
    shift = np.ones(most + 1, dtype=np.uint64)
    np.cumprod(np.full(most, INVERSE, dtype=np.uint64), out=shift[1:])
    powers = np.ones(most, dtype=np.uint64)
    np.cumprod(np.full(most, FACTOR, dtype=np.uint64), out=powers)
    return powers, shift

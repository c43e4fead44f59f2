"""A transcript as a vector: hashed character and word n-grams, in numpy alone.

``clew.models.compose.router`` decides by it, and whoever fits a router measures with it. It reads no weights and keeps
no vocabulary. The same text must give the same numbers on every machine, in every process and in every later version:
a head that was fitted on them is kept in a folder. So nothing here may use Python's ``hash``, the tables of
Unicode, or sums whose order the processor chooses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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

    def __post_init__(self) -> None:
        sizes = (self.dim, self.chars)
        if any(isinstance(one, bool) or not isinstance(one, int) for one in sizes):
            raise BadInput(f"n-grams of sizes {sizes}", remedy="Give dim and chars as whole numbers.")
        if not LEAST <= self.dim <= MOST or not 100 <= self.chars <= 10**6:
            raise BadInput(
                f"n-grams of dim {self.dim} over {self.chars} bytes",
                remedy=f"Use a dim of {LEAST} to {MOST}, and 100 to 1,000,000 chars.",
            )

    def __call__(self, text: str) -> F32:
        data = np.frombuffer(self._bounded(encode(text)), dtype=np.uint8)
        chars, words = _characters(LOWER[data]), _words(SHAPE[data], WORDLY[data])
        recent = data[-RECENT:]
        late = [_characters(LOWER[recent]), _words(SHAPE[recent], WORDLY[recent])]
        vector = np.zeros(self.dim, dtype=np.float64)
        for tag, hashes in enumerate((chars, words, np.concatenate(late))):
            vector += self._block(hashes, tag)
        vector[0] = 1.0
        return (vector / math.sqrt(math.fsum(vector * vector))).astype(np.float32)

    def _bounded(self, data: bytes) -> bytes:
        first = self.chars // 4
        return data if len(data) <= self.chars else data[:first] + data[len(data) - (self.chars - first) :]

    def _block(self, hashes: U64, tag: int) -> npt.NDArray[np.float64]:
        """Signed roots of the counts, of norm 1 (0 where nothing was hashed): whole numbers are summed, so exactly."""
        mixed = _mixed(hashes + np.uint64((tag + 1) * FACTOR % (1 << 64)))
        place = (mixed % np.uint64(self.dim - 1)).astype(np.int64) + 1  # 0 is the constant's
        sign = 1.0 - 2.0 * (mixed >> np.uint64(63)).astype(np.float64)
        counts = np.bincount(place, weights=sign, minlength=self.dim)
        total = math.fsum(np.abs(counts))
        roots: npt.NDArray[np.float64] = np.sign(counts) * np.sqrt(np.abs(counts))
        return roots / math.sqrt(total) if total else roots


def _mixed(z: U64) -> U64:
    """The splitmix64 finaliser (Steele, Lea and Flood 2014, 10.1145/2660193.2660195)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _characters(data: npt.NDArray[np.uint8]) -> U64:
    """A hash of every run of 3, 4 and 5 bytes: their polynomial modulo 2 to the 64."""
    values, found = data.astype(np.uint64) + np.uint64(1), list[U64]()
    rolled = values
    for n in range(2, 6):
        rolled = rolled[:-1] * np.uint64(FACTOR) + values[n - 1 :] if len(values) >= n else rolled[:0]
        if n > 2:
            found.append(_mixed(rolled + np.uint64(n)))
    return np.concatenate(found)


def _words(data: npt.NDArray[np.uint8], wordly: npt.NDArray[np.bool_]) -> U64:
    """A hash of every word and of every two in a row."""
    edges = np.diff(np.concatenate(([0], wordly.astype(np.int8), [0])))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    powers = np.full(len(data), FACTOR, dtype=np.uint64)
    sums = np.zeros(len(data) + 1, dtype=np.uint64)
    np.cumsum((data.astype(np.uint64) + np.uint64(1)) * np.cumprod(powers), out=sums[1:])
    # a word's polynomial starts at its place in the text: divided by that power, it is the same wherever it stands
    shift = np.ones(len(data) + 1, dtype=np.uint64)
    np.cumprod(np.full(len(data), INVERSE, dtype=np.uint64), out=shift[1:])
    ones = _mixed((sums[ends] - sums[starts]) * shift[starts])
    return np.concatenate((ones, _mixed(ones[:-1] * np.uint64(FACTOR) + ones[1:])))

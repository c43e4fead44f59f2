"""Sets of token ids, one a sampled token, as bytes: what ``top_p``, ``top_k`` and a grammar left to draw from.

Engines write them into ``Completion.kept``, stores keep them with the Call, and the trainer scores the law over them.
They enter no key of the record. They may come from an endpoint or a file of others: reading them takes memory in
proportion to their length, and never more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput
from clew.core.values import F32, Sampling
from clew.models.shaping import shape_of

I64 = npt.NDArray[np.int64]
Span = tuple[int, int, bytes]  # first place, stop, sets as packed
LARGEST = 1 << 31  # token ids are below it
LONGEST = 5  # bytes of a number: 35 bits


@runtime_checkable
class ScoresKept(Protocol):
    """What ``Scores`` says, of the law over the tokens that truncation left: ``kept`` of each row is as in LossRow."""

    def score_kept(
        self, ids: Sequence[Sequence[int]], temperature: float, kept: Sequence[Sequence[Span]]
    ) -> list[F32]: ...


def pack(sets: Sequence[npt.NDArray[np.integer]]) -> bytes:
    """The sets as bytes, of which an id takes one or two.

    First comes how many sets there are, as uint32 in little-endian order; then how many ids each has, and of all sets
    the ids, each as the distance from the one before it in its set. These numbers are in LEB128: seven bits a byte, the
    lowest first, and the eighth bit where more follow.

    Args:
        sets: of each sampled token the ids that were left, ascending; an empty one where all tokens were.

    Raises:
        BadInput: ids that do not ascend, or are no token ids.
    """
    sizes = np.array([len(ids) for ids in sets], np.int64)
    ids = np.concatenate([np.zeros(0, np.int64), *sets]).astype(np.int64)
    steps = np.diff(ids, prepend=0)
    first = (np.cumsum(sizes) - sizes)[sizes > 0]
    steps[first] = ids[first]
    inner = np.ones(len(ids), bool)
    inner[first] = False
    if len(ids) and (ids.min() < 0 or ids.max() >= LARGEST or (steps[inner] < 1).any()):
        told = "sets of kept tokens whose ids do not ascend from 0"
        raise BadInput(told, remedy="Give each set sorted, each id once.")
    return len(sets).to_bytes(4, "little") + _leb128(np.concatenate([sizes, steps]))


def unpack(data: bytes) -> list[I64]:
    """The inverse of ``pack``: of each sampled token the ids that were left, int64, ascending.

    Raises:
        BadInput: bytes that ``pack`` cannot have written.
    """
    numbers, n = _numbers(data[4:]), int.from_bytes(data[:4], "little")
    sizes = numbers[:n]
    if len(data) < 4 or n > len(numbers) or len(numbers) - n != sizes.sum():
        raise _damaged()
    parts = np.split(numbers[n:], np.cumsum(sizes))[:-1]
    sets = [np.cumsum(part) for part in parts]
    if any(len(ids) and (ids[-1] >= LARGEST or (part[1:] < 1).any()) for ids, part in zip(sets, parts, strict=True)):
        raise _damaged()
    return sets


def places(spans: Sequence[Span], ids: Sequence[int] | npt.NDArray[np.integer]) -> Iterator[tuple[int, int, I64]]:
    """Each place of a row where truncation left some of the tokens, the token there, and the ids that were left.

    Args:
        spans: (first place, stop, packed sets) as LossRow.kept has them; ids: of the row.

    Raises:
        BadInput: there are not as many sets as places, or a token is not among those that were left for it.
    """
    for first, stop, data in spans:
        sets = unpack(data)
        if not 0 <= first <= stop <= len(ids) or len(sets) != stop - first:
            raise _damaged()
        for place, left in enumerate(sets, first):
            token = int(ids[place])
            if len(left):
                at = int(np.searchsorted(left, token))
                if at == len(left) or left[at] != token:
                    told = f"token {token} at place {place} of a row is none of the {len(left)} that truncation left"
                    raise BadInput(told, remedy="Take the record from where it was made.")
                yield place, token, left


def listed(data: bytes) -> list[list[int] | None]:
    """The sets as the wire has them (``sampling_mask``, as vLLM names it): None where all tokens were left."""
    return [ids.tolist() or None for ids in unpack(data)]


def from_lists(mask: object, tokens: Sequence[int]) -> bytes:
    """The inverse of ``listed`` for the tokens that came with it; nothing where it is no such mask of these tokens."""
    if not isinstance(mask, list) or len(mask) != len(tokens):
        return b""
    sets = []
    for left, token in zip(mask, tokens, strict=True):
        if left is not None and not (isinstance(left, list) and token in left and all(map(_is_id, left))):
            return b""
        sets.append(np.array(sorted({*(left or ())}), np.int64))
    return pack(sets)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def truncates(sampling: Sampling) -> bool:
    """Whether top-k, top-p or a shape may cut tokens off; greedy sampling leaves one, which nobody needs to be told."""
    cuts = sampling.top_p < 1 or sampling.top_k > 0 or shape_of(sampling.shape).cuts
    return sampling.temperature > 0 and cuts


def _leb128(numbers: I64) -> bytes:
    shifts = np.arange(0, 7 * LONGEST, 7)
    groups = numbers[:, None] >> shifts
    used = groups > 0
    used[:, 0] = True
    more = np.zeros_like(used)
    more[:, :-1] = used[:, 1:]
    return ((groups & 127) | (more << 7)).astype(np.uint8)[used].tobytes()


def _numbers(data: bytes) -> I64:
    raw = np.frombuffer(data, np.uint8)
    if not len(raw):
        return np.zeros(0, np.int64)
    last = np.flatnonzero(raw < 128)
    begin = np.concatenate([[0], last[:-1] + 1]).astype(np.int64)
    if not len(last) or last[-1] != len(raw) - 1 or (last - begin >= LONGEST).any():
        raise _damaged()
    place = np.arange(len(raw)) - np.repeat(begin, last - begin + 1)
    return np.add.reduceat((raw & 127).astype(np.int64) << (7 * place), begin)


def _damaged() -> BadInput:
    return BadInput(
        "the tokens kept at each place of a reply are damaged",
        remedy="Take the record from where it was made; such a reply cannot be trained on.",
    )

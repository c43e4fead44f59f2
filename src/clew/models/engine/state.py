"""A request on its way through the engine: waiting, joining, live, answered."""

from __future__ import annotations

from typing import Any, NamedTuple

from clew.core.records import Request
from clew.core.values import Completion
from clew.models.sampling import Laws


class Waiting:
    """A request in the queue, and to whom its result goes."""

    __slots__ = ("answered", "arrived", "done", "index", "request")

    def __init__(self, request: Request, index: int, done: Any, arrived: float) -> None:
        self.request, self.index, self.done, self.arrived = request, index, done, arrived
        self.answered = False


class Result(NamedTuple):
    entry: Waiting
    answer: Completion | BaseException


class Joining(NamedTuple):
    """A request with a row: ``new`` tokens follow ``start`` that are cached or copied from row ``source``."""

    entry: Waiting
    slot: int
    new: list[int]
    start: int
    source: int
    wave: int  # its prefill comes after those of earlier waves
    limit: int  # most tokens to sample: what was asked for, or what the context leaves


class Ended(NamedTuple):
    """A request of ``prompt`` tokens that asks for none: its forced tokens end it, or fill what was allowed."""

    prompt: int
    finish: str


class Live:
    """Rows that are decoded together, in arrays [n]; some may be done, or compute in vain beside the others."""

    __slots__ = ("act", "ahead", "at", "count", "last", "laws", "limit", "noise", "rows", "watched")

    rows: Any  # rows of the cache, ascending
    at: Any  # position of the next token
    last: Any  # the token sampled last, which comes there
    count: Any  # tokens sampled
    limit: Any  # most tokens to sample
    act: Any  # bool, still sampling
    noise: Any  # float64 [AHEAD, n, 1]
    ahead: int  # uniforms used of these
    laws: Laws
    watched: bool  # some row has stop strings or a deadline

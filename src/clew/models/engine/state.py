"""Records of a request inside the engine: waiting, joining, live, answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.protocols import Done
from clew.core.records import Request
from clew.core.values import F32, Completion, Ranked, Reach
from clew.models.sampling import Laws

I64 = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Waiting:
    """A request in the queue, to whom its result goes, and what beside tokens it asks for."""

    request: Request
    index: int
    done: Done | Answered
    arrived: float
    live: bool = (
        False  # somebody waits for this answer alone: it is admitted and handed back without waiting for others
    )
    answered: bool = False
    dropped: bool = False  # nobody wants the answer any more
    inbox: Inbox | None = None  # takes tokens as they come
    guide: Any = None  # the grammar of its reply, a Guide
    slot: int = -1  # its row of the cache
    sent: int = 0  # tokens given to the inbox
    plain: list[float] = field(
        default_factory=list
    )  # of the tokens sampled so far, where the request asks for ``tops``
    tops: list[Ranked] = field(default_factory=list)
    kept: list[I64] = field(default_factory=list)  # ids that truncation left at each of the tokens sampled so far
    reached: tuple[Reach, ...] = ()  # tokens that each of its writes into hidden states reached


class Fresh(NamedTuple):
    """Tokens of one request that its inbox has not seen."""

    tokens: list[int]
    logprobs: F32
    plain: list[float]
    tops: list[Ranked]


class Answered(NamedTuple):
    """Where the answer of one request goes: ``give`` is called in ``loop``."""

    loop: asyncio.AbstractEventLoop
    give: Callable[[Completion | BaseException], None]


class Inbox(NamedTuple):
    """Where the tokens of a stream go: ``put`` is called in ``loop``."""

    loop: asyncio.AbstractEventLoop
    put: Callable[[Fresh], None]


class Result(NamedTuple):
    entry: Waiting
    answer: Completion | BaseException


def answer(entry: Waiting, given: Completion | BaseException, results: list[Result]) -> None:
    entry.answered = True
    results.append(Result(entry, given))


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


@dataclass(slots=True)
class Counts:
    """What an engine has done so far."""

    prompt: int = 0  # tokens of prompts that were computed
    cached: int = 0  # tokens of prompts that were not
    sampled: int = 0
    requests: int = 0  # answered
    refused: int = 0  # because too many waited
    cut: int = 0  # dropped by whoever asked
    failed: int = 0
    proposed: list[int] = field(default_factory=list)  # tokens of drafts verified, by position
    accepted: list[int] = field(default_factory=list)


class Stats(NamedTuple):
    """What an engine does now, and what it has done so far (``counts``)."""

    running: int
    waiting: int
    rows: int  # of the cache
    held: int  # tokens that lie in the cache
    size: int  # tokens it has room for as it is
    counts: Counts


@dataclass(slots=True, init=False, eq=False)
class Live:
    """Rows that are decoded together, in arrays [n]; some may be done, or compute in vain beside the others."""

    rows: I64  # rows of the cache, ascending
    at: I64  # position of the next token
    last: I64  # the token sampled last, which comes there
    count: I64  # tokens sampled
    limit: I64  # most tokens to sample
    act: npt.NDArray[np.bool_]  # bool, still sampling
    noise: npt.NDArray[np.float64]  # float64 [AHEAD, n, 1]
    ahead: int  # uniforms used of these
    laws: Laws
    watched: bool  # some row has stop strings or a deadline
    guided: list[int]  # places of rows whose reply has a grammar
    listed: list[int]  # places of rows that ask for the likeliest tokens
    truncated: list[int]  # places of rows whose law top-k or top-p cuts
    steered: npt.NDArray[np.bool_]  # bool, writes into hidden states
    shaped: list[int]  # places of rows whose logits are changed before a token is drawn
    told: list[int]  # places of rows whose tokens go out as they come

"""Plain values that travel between agents, models, worlds and the store: frozen and without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clew.core.errors import BadInput

F32 = npt.NDArray[np.float32]


class StopReason(StrEnum):
    """Why a run ended. Every run ends with exactly one."""

    DONE = "done"  # the world reported its end
    RETURNED = "returned"  # the agent returned before the world ended
    STEP_LIMIT = "step_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    COST_LIMIT = "cost_limit"
    CONTEXT_FULL = "context_full"  # the next prompt does not fit the model
    MODEL_ERROR = "model_error"
    WORLD_ERROR = "world_error"
    AGENT_ERROR = "agent_error"  # the agent's own code raised
    PROGRAM_FAILED = "program_failed"  # a program that Clew did not write ended with another exit status than 0
    NO_WORLD = "no_world"  # a transcript was continued up to an act that nothing can perform
    CANCELLED = "cancelled"  # its parent gave it up; or an imported record that breaks off before any reply


class ToolCall(NamedTuple):
    """A model's wish to use a tool. ``arguments`` is the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


GONE = '{"redacted":true}'  # `extra` of what was redacted
REDACTED = "(redacted)"  # what a reader is shown in the place of its text


class Message(NamedTuple):
    """One message of a conversation. ``extra`` holds, as JSON text, images and wire fields that have no name here."""

    role: str  # system, user, assistant, tool
    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None  # a tool message answers the call of this id
    extra: str = ""

    @property
    def redacted(self) -> bool:
        """Whether `clew store redact` put a tombstone in its place."""
        return self.extra == GONE


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of a tool. ``schema`` is a JSON Schema of the arguments object."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}}, hash=False)


class Observation(NamedTuple):
    """What a world or a tool answers. ``reward`` is the world's claim, not the judge's verdict."""

    text: str
    reward: float | None = None
    done: bool = False
    legal: tuple[str, ...] = ()  # admissible actions, where the world lists them
    call_id: str | None = None  # set where the observation answers a tool call
    extra: str = ""  # images, as ``Message.extra`` holds them


class Sampling(NamedTuple):
    """Sampling settings. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 do not truncate.

    ``grammar``, empty for none, is what the whole reply must match: ``json`` (any JSON value), ``json:`` and a JSON
    Schema, ``regex:`` and a regular expression, or ``lark:`` and a grammar in Lark's notation. ``shape``, empty for
    none, is JSON of penalties, biases and the like; clew.models.shaping writes and reads it.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()
    grammar: str = ""
    shape: str = ""


def check_sampling(asked: Sampling) -> Sampling:
    """The settings, where they have a meaning.

    Raises:
        BadInput: temperature below 0 or not finite, top_p outside (0, 1], top_k or max_tokens below 0.
    """
    if not (
        0 <= asked.temperature < float("inf") and 0 < asked.top_p <= 1 and asked.top_k >= 0 and asked.max_tokens >= 0
    ):
        raise BadInput(
            f"cannot sample with {asked}", remedy="Use temperature >= 0, 0 < top_p <= 1, top_k >= 0, max_tokens >= 0."
        )
    return asked


class Usage(NamedTuple):
    """Tokens of one model call; ``cached`` of the prompt's were not computed again."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


class Attempt(NamedTuple):
    """One try of a remote call. ``seconds`` since the call began at its end; ``error`` empty if it answered."""

    seconds: float
    status: int = 0
    error: str = ""


Ranked = tuple[tuple[int, float], ...]  # the likeliest tokens of one place, likeliest first: id, logprob in nats


class Inner(NamedTuple):
    """What one model answered while another made its own answer of it: a router asks, or an ensemble."""

    model: str  # ref of the model that was asked
    served_by: str = ""  # the name its server answered with
    version: int = 0  # of its weights
    usage: Usage = Usage()
    cost: float = 0.0  # US dollars, part of the whole answer's cost
    seconds: float = 0.0
    text: str = ""
    tokens: tuple[int, ...] | None = None
    weights: str = ""  # content name of the model's local weights, as Setup has it


class Reach(NamedTuple):
    """How many tokens of a request a write into hidden states reached (``clew.models.taps.Tap``): of the prompt, of the
    reply, and of those that an earlier request with the same writes left in the cache."""

    prompt: int = 0
    reply: int = 0
    cached: int = 0


class Completion(NamedTuple):
    """A model's answer.

    ``tokens`` are the sampled ids (head and forced ids excluded); ``logprobs`` and ``entropies`` are float32
    arrays of the same length in nats, of the distribution in force. All three are None where the model gives none.

    ``tops``, where ``Request.tops`` asked for them, are the likeliest tokens at each of these places, and ``plain``
    the logprobs (nats, float32) of the sampled ones, both of the model's own law: temperature 1, before top-k, top-p
    and grammar, which is what OpenAI's API and vLLM report. At temperature 1 without the others it is the law in force.

    ``inner`` says what a model over models asked of each of them; ``usage`` and ``cost`` include theirs. ``reached``
    has one entry for each of ``Request.taps``. ``kept``: the ids that top-k, top-p and grammar
    left at each of ``tokens`` (clew.models.kept); empty where the sampling does not truncate or nobody noted them.
    """

    message: Message
    tokens: tuple[int, ...] | None = None
    logprobs: F32 | None = None
    entropies: F32 | None = None
    finish: str = "stop"  # stop, length, tool_calls, cut, filter
    in_force: Sampling | None = None  # None: as asked
    version: int = 0
    model: str = ""  # the name the server answered with
    usage: Usage = Usage()
    cost: float = 0.0  # US dollars
    seconds: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    prompt: tuple[int, ...] | None = None  # ids the server says it received, where it renders the messages itself
    plain: F32 | None = None
    tops: tuple[Ranked, ...] | None = None
    inner: tuple[Inner, ...] = ()
    reached: tuple[Reach, ...] = ()
    kept: bytes = b""


class Piece(str):
    """A part of a streamed reply: text that is settled, and the tokens sampled since the piece before.

    Joined, the texts of a stream's pieces are its message's text, and ``tokens`` its Completion's. A piece may have
    tokens and no text (part of a character, or of what may become a stop string or a tool call), and text of tokens
    that came before it. ``reasoning`` is what it adds to the message's reasoning. ``logprobs``, ``plain`` and
    ``tops`` are of its tokens, as in Completion; None where the model gives none. ``before`` comes with the first text
    of an endpoint's reply: the message so far, which holds what stands before that text. A reply may hold several
    texts, and ``part`` is the number of the one this piece belongs to.
    """

    tokens: tuple[int, ...]
    logprobs: F32 | None
    plain: F32 | None
    tops: tuple[Ranked, ...] | None
    reasoning: str
    before: Message | None
    part: int

    def __new__(
        cls,
        text: str = "",
        tokens: tuple[int, ...] = (),
        logprobs: F32 | None = None,
        plain: F32 | None = None,
        tops: tuple[Ranked, ...] | None = None,
        reasoning: str = "",
        before: Message | None = None,
        part: int = 0,
    ) -> Piece:
        piece = super().__new__(cls, text)
        piece.tokens, piece.logprobs, piece.plain = tokens, logprobs, plain
        piece.tops, piece.reasoning, piece.before, piece.part = tops, reasoning, before, part
        return piece


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run; None is no bound. Checked between effects."""

    steps: int | None = None
    tokens: int | None = None  # prompt tokens computed plus tokens sampled
    seconds: float | None = None
    cost: float | None = None  # US dollars


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done. ``secret`` reaches ``Taskset.judge`` only: no world, agent, record or repr sees it."""

    id: str
    prompt: str
    data: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = Limits()
    secret: object = field(default=None, repr=False, compare=False)


class Scored(float):
    """A number of a verdict together with what it rests on: ``data``, JSON that is kept in its annotation."""

    data: str

    def __new__(cls, value: float, data: str = "") -> Scored:
        made = super().__new__(cls, value)
        made.data = data
        return made


class Unset:
    """Absent, where None is a value."""


UNSET = Unset()

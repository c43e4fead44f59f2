"""The records: nodes, Calls, runs, interventions, annotations, reports, and the rows that a trainer reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from clew.core.errors import BadInput
from clew.core.values import F32, GONE, REDACTED, Attempt, Inner, Message, Sampling, ToolCall, ToolSpec, Usage

CallKind = Literal["open", "ask", "act", "spawn", "note", "draw", "now", "end", "recall"]
GroupKind = Literal["iid", "tree", "matched"]
ValuedKind = Literal["call", "tokens", "node", "run", "group"]  # what an annotation values


class Cursor(NamedTuple):
    """A place in a run: before Call ``seq``, or inside its reply after ``token`` tokens (characters without ids).

    Written ``run@seq`` or ``run@seq+token``.
    """

    run: str
    seq: int
    token: int = 0

    def __str__(self) -> str:
        return f"{self.run}@{self.seq}" + (f"+{self.token}" if self.token else "")

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read ``run@seq+token``.

        Raises:
            BadInput: the text is not of that form.
        """
        match = re.fullmatch(r"([\w.-]+)@(\d+)(?:\+(\d+))?", text.strip())
        if not match:
            raise BadInput(f"{text!r} is not a cursor", remedy="Write run@call or run@call+token, as in 4fzk2w@12+3.")
        return cls(match[1], int(match[2]), int(match[3] or 0))


class Node(NamedTuple):
    """One message of a conversation: immutable, content-addressed, chained to its parent (``b""`` at the root).

    ``ids`` are only the tokens this message adds; concatenated along a path they are what the model received.
    """

    key: bytes
    parent: bytes
    message: Message
    ids: tuple[int, ...] | None
    tokenizer: str
    text_key: bytes


class Setup(NamedTuple):
    """What is equal over many Calls, kept once: who answered and how it was asked."""

    model: str = ""  # ref, by which the model is loaded again
    version: int = 0  # of the weights
    asked: Sampling | None = None
    in_force: Sampling | None = None
    tools: tuple[ToolSpec, ...] = ()
    served_by: str = ""  # the model name the server answered with
    weights: str = ""  # content name of local weights: keys have it in place of ``model``, which is where they lay


class Sample(NamedTuple):
    """One of several packed samples of a Call (DESIGN.md rule 10)."""

    seed: int
    message: Message
    ids: tuple[int, ...] | None  # head and sampled ids
    logprobs: F32 | None
    finish: str
    kept: bytes = b""  # as in Call


class Call(NamedTuple):
    """One effect of one run and all that says how it came about.

    ``done`` is -1 while the Call is an intent: begun, result not known. ``after`` is the number of the run's clock
    when the Call was issued, ``done`` the tick of the clock at which its result was handed over: a Call was issued
    in knowledge of exactly the results with ``done < after``.
    """

    run: str  # the run that issued it; forks share it by reference
    seq: int  # order of issue
    kind: CallKind
    request: bytes  # digest of what was asked
    after: int
    done: int = -1
    key: bytes = b""  # chained to the Call before it
    conversation: int = -1  # ask: which of the run's conversations
    node_in: bytes = b""  # ask: tip the model was asked at
    node_out: bytes = b""  # ask: the reply; its ids are head + forced + sampled
    action: str = ""  # act: see `action_of`; note, draw: name; recall: query; spawn: JSON of agent, task; end: reason
    text: str = ""  # open, act: observation; note: JSON data; draw, now: the value; recall: JSON of the items
    reward: float | None = None  # the world's claim
    terminal: bool = False  # the world reported its end
    legal: tuple[str, ...] = ()
    state: bytes = b""  # open, act: state key of the world afterwards
    snapshot: bytes = b""  # open, act: blob key, kept every k acts
    child: str = ""  # spawn: run id of the child
    head: int = 0  # ask: generation-prompt tokens at the start of the reply
    forced: int = 0  # ask: tokens given, not sampled (characters without ids)
    logprobs: F32 | None = None  # ask: of the sampled tokens, nats, in force
    entropies: F32 | None = None
    seed: int = 0
    setup: Setup | None = None  # ask
    packed: tuple[Sample, ...] = ()  # ask: further samples of the same request
    finish: str = ""  # ask: stop, length, tool_calls, cut, filter, forced; act: "tool" where the action is a tool call
    usage: Usage = Usage()
    cost: float = 0.0
    started: float = 0.0  # seconds since the epoch
    seconds: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    error: str = ""
    inner: tuple[Inner, ...] = ()  # ask: what a model over models asked of each; act: what the world asked
    extra: str = ""  # open, act: images of the observation
    kept: bytes = b""  # ask: ids that top_p and top_k left at each sampled token (clew.models.kept); in no key

    @property
    def said(self) -> tuple[str, ...]:
        """Texts that the Call itself holds; those of its messages are in its nodes."""
        samples = (sample.message.text for sample in self.packed)
        return (self.action, self.text, self.error, *samples, *(one.text for one in self.inner))

    @property
    def redacted(self) -> bool:
        """Whether `clew store redact` put a tombstone in its place."""
        return self.extra == GONE or (self.finish == "tool" and not self.action)  # older tombstones have no mark


_PLACE = {name: place for place, name in enumerate(Call._fields)}


def changed(call: Call, **fields: Any) -> Call:
    """``call._replace(**fields)``, faster: every effect does it."""
    values = list(call)
    for name, value in fields.items():
        values[_PLACE[name]] = value
    return Call._make(values)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # made once: one an act


NO_TOOL = ToolCall("", REDACTED, "{}")  # what a redacted tool call reads as


def action_text(action: str | ToolCall) -> str:
    """How an action is recorded: text as it is, a tool call as a JSON list of id, name, arguments."""
    return _encode(action) if isinstance(action, ToolCall) else action


def action_of(call: Call) -> str | ToolCall:
    """What an act Call did: the text of the action, or the tool call (``finish`` is "tool"), redacted or not."""
    if call.finish == "tool" and not call.action:
        return NO_TOOL
    return ToolCall(*json.loads(call.action)) if call.finish == "tool" else call.action


def action_id(call: Call) -> str | None:
    """The id of the tool call that an act performed; None where it performed none, empty where it was redacted."""
    action = action_of(call)
    return action.id if isinstance(action, ToolCall) else None


class Wire(NamedTuple):
    """A request as a program that Clew did not write sent it: its dialect, its body, and the headers and the query
    that belong to it. An endpoint of the same dialect is sent it as it came; every other model reads the Request."""

    dialect: str
    body: Mapping[str, object]
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}


class Tapped(Protocol):
    """A ``clew.models.taps.Tap``: what is written into the output of a block of the model."""

    @property
    def layer(self) -> int: ...


class Request(NamedTuple):
    """What a Model is asked. ``path`` runs from the root to the tip; its ids concatenate to the prompt."""

    path: tuple[Node, ...]
    sampling: Sampling = Sampling()
    seed: int = 0
    tools: tuple[ToolSpec, ...] = ()
    head: tuple[int, ...] = ()  # generation prompt: first tokens of the reply's node
    forced: tuple[int, ...] = ()  # reply tokens given; sampling starts after them
    forced_text: str = ""  # the same for models without token ids
    taps: tuple[Tapped, ...] = ()
    deadline: float | None = None  # seconds from now
    order: tuple[int, ...] = ()  # steady mode: rows of a batch are sorted by it, never by arrival
    run: str = ""  # id of the run that asks; with the next two, who reuses the cache row next
    conversation: int = -1  # of the run
    sample: int = -1  # of the conversation's samples that are asked for together
    idempotency: str = ""  # the same text for a request that is sent again
    tops: int | None = None  # likeliest tokens wanted with each sampled one; 0: the sampled one's own chance alone
    wire: Wire | None = None  # how the request came, where a program sent it through the gateway
    policy: Mapping[str, object] | None = None  # who may answer: read by a router, whose own policy it narrows

    @property
    def holder(self) -> tuple[str, int, int]:
        """Who reuses the cache row next; nobody where the request belongs to no run."""
        return self.run, self.conversation, self.sample


class Edit(NamedTuple):
    """One change of an Intervention.

    kind, with where it acts and what ``value`` holds:
      ``reply``     ask Call ``seq``: the whole reply, text or token ids
      ``prefix``    ask Call ``seq``: its first tokens (ids) or characters (text); the rest is sampled
      ``result``    act Call ``seq``: the observation, as text or fields of Observation
      ``say``       message ``index`` of conversation ``conversation``: new text; ``insert`` adds one before it,
                    ``delete`` drops it
      ``model``, ``sampling``, ``seed``, ``tap``: from Call ``seq`` on
      ``memory``    from Call ``seq`` on recalls give ``{"without": [item ids]}`` or ``{"without": "all"}`` no more
      ``world``     before Call ``seq``: actions to perform, or a snapshot to restore
    """

    kind: str
    seq: int = 0
    value: Any = None
    conversation: int = 0
    index: int = -1  # type: ignore[assignment]  # the word for it; tuple.index is not missed


class Intervention(NamedTuple):
    """An ordered list of edits; with ``keep`` the later replies are appended as forced Calls where they still fit."""

    edits: tuple[Edit, ...] = ()
    keep: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"edits": [e._asdict() for e in self.edits], "keep": self.keep}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Intervention:
        if not data:
            return cls()
        return cls(tuple(Edit(**e) for e in data["edits"]), bool(data["keep"]))


class Segment(NamedTuple):
    """Calls ``start`` up to but excluding ``stop`` of another run, shared by reference."""

    run: str
    start: int
    stop: int


class RunRow(NamedTuple):
    """How a run is started again, and where it comes from. Its end is its last Call, not a field."""

    id: str
    agent: str  # "module_or_file:qualname"
    taskset: str = ""  # ref, enough to rebuild it in another process
    model: str = ""  # ref
    task_id: str = ""
    task: str = ""  # JSON of id, prompt, data, limits; never the secret
    agent_digest: str = ""  # of its source
    config: str = "{}"  # JSON keyword arguments of the agent
    seed: int = 0
    group: str = ""
    order: tuple[int, ...] = ()  # (iteration, task, member)
    parent: str = ""  # cursor it was forked at
    changes: str = ""  # JSON of its Intervention
    lineage: tuple[Segment, ...] = ()  # flat: whose Calls come before its own
    spawned_by: str = ""  # cursor of the spawn Call of a child run
    origin: str = "collect"  # collect, fork, spawn, import
    created: float = 0.0  # seconds since the epoch
    meta: str = "{}"  # JSON; what an importer knew and Clew has no name for
    settings: str = "{}"  # JSON; sampling, limits, snapshot_every, name of its collection, fork_limits


class GroupRow(NamedTuple):
    """Runs of one task that are compared with each other; members in order."""

    id: str
    kind: GroupKind
    task_id: str
    runs: tuple[str, ...]
    name: str = ""


class Annotation(NamedTuple):
    """A method's value on something recorded. Sparse: absent is not zero.

    target: ``call`` (run, seq), ``tokens`` (run, seq; ``values`` has one number per token of the reply's node, NaN
    where absent), ``node`` (node), ``run`` (run), ``group`` (run holds the group id).
    """

    target: ValuedKind
    method: str
    value: float | None = None
    run: str = ""
    seq: int = -1
    node: bytes = b""
    version: str = "1"
    params: str = ""  # hex digest of the parameters
    scope: str = ""  # run or group it was computed in
    values: F32 | None = None
    data: str = ""  # JSON


class Fault(NamedTuple):
    """One thing ``verify`` found wrong."""

    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A claim with its evidence. Without n and an interval it cannot be built.

    ``low`` and ``high`` bound ``estimate`` at ``level``; ``design`` says how the comparison was made.
    """

    claim: str
    estimate: float
    low: float
    high: float
    n: int
    design: str
    level: float = 0.95
    runs: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.n < 1 or not all(map(math.isfinite, (self.estimate, self.low, self.high))):
            raise BadInput(
                f"report {self.claim!r} needs n >= 1 and a finite interval, has n={self.n} [{self.low}, {self.high}]",
                remedy="Collect at least one run, or report that there is nothing to estimate.",
            )
        if not self.low <= self.estimate <= self.high:
            raise BadInput(f"report {self.claim!r}: {self.estimate} lies outside [{self.low}, {self.high}]")

    def __str__(self) -> str:
        return f"{self.estimate:.2f} [{self.low:.2f}, {self.high:.2f}] n={self.n}"


@dataclass(slots=True)
class LossRow:
    """What a trainer sees: one leaf path.

    ids: int32 [T]. sampled: bool [T], tokens the policy chose. weights: component name -> float32 [T], zero where the
    component does not apply. old: float32 [T], sampler logprobs in nats, NaN where not sampled. ref: the same of a
    reference policy. targets: name -> float32 [T]. source: (first index, cursor of the Call) per sampled span.
    temperature: of the sampling in force. run: its id, for losses that weigh by run; empty: it has no other row. held:
    (first index, stop, grammar) of each reply held to a grammar, forced tokens included. kept: (first index, stop, ids
    left at each token, see clew.models.kept) of other spans. version: the oldest; versions: int32 [T], if several.
    """

    ids: np.ndarray
    sampled: np.ndarray
    weights: dict[str, F32]
    old: F32
    ref: F32 | None = None
    targets: dict[str, F32] = field(default_factory=dict)
    source: list[tuple[int, Cursor]] = field(default_factory=list)
    version: int = 0
    set: str = ""
    role: str = ""
    temperature: float = 1.0
    run: str = ""
    held: list[tuple[int, int, str]] = field(default_factory=list)
    kept: list[tuple[int, int, bytes]] = field(default_factory=list)
    versions: np.ndarray | None = None

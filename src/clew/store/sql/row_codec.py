"""Records to table rows and back: per-token values as little-endian blobs, repeated values by digest.

``Codec`` gets from its store the numbers of strings (``number``, ``name``) and the blobs (``keep``, ``load``).
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from clew.core.errors import BadInput, StoreBroken
from clew.core.keys import encode, pack_ids
from clew.core.records import Call, GroupRow, Node, Report, RunRow, Sample, Segment, Setup
from clew.core.values import F32, Attempt, Inner, Message, Sampling, ToolCall, ToolSpec, Usage
from clew.store.sql import attachments

T = TypeVar("T")
KINDS = ("open", "ask", "act", "spawn", "note", "draw", "now", "end", "recall")
TARGETS = ("call", "tokens", "node", "run", "group")
_KIND = {kind: no for no, kind in enumerate(KINDS)}
_PLAIN = Message("", "")[2:]
_NO_USAGE = Usage()
BITS = 24  # of a Call's place that hold its seq
NODE_COLUMNS = "key, parent, role, text, more, ids, tokenizer, text_key"
EXTRA, PARTS = '{"extra":', '"]]'  # how `packed` begins where it holds images, and how `more` ends where it does
CALL_COLUMNS = (
    "at, kind, request, after, done, key, conversation, node_in, node_out, action, text, reward, terminal, legal, "
    "state, snapshot, child, head, forced, logprobs, entropies, seed, setup, packed, finish, prompt, completion, "
    "cached, cost, started, seconds, attempts, error, kept"
)
RUN_COLUMNS = (
    "no, agent, taskset, model, task_id, task, agent_digest, config, seed, grp, ord, parent, changes, lineage, "
    "spawned_by, origin, created, meta, settings"
)


def check_call(run: str, call: Call) -> None:
    """What no store can hold.

    Raises:
        BadInput: a NaN reward, or a seq or seed beyond what is stored (24 and 64 bits).
    """
    if call.reward is not None and call.reward != call.reward:
        raise BadInput("a reward is NaN", remedy="A world that has no reward says None.", at=f"{run}@{call.seq}")
    if not (0 <= call.seq < 1 << BITS and -1 << 63 <= call.seed < 1 << 63):
        raise BadInput(f"seq {call.seq} or seed {call.seed} is too large to be kept", at=f"{run}@{call.seq}")


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode  # made once: one a node
_decode = json.JSONDecoder().decode


def dump(value: object) -> str:
    """JSON text of a value, compact and with sorted keys.

    Raises:
        BadInput: NaN or infinity, or a type that JSON does not know.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError) as error:
        raise BadInput(f"cannot be kept as JSON: {error}", remedy="Use JSON values, and null for NaN.") from error


def storable(text: str) -> str | bytes:
    """The text as SQLite takes it: lone surrogates, which are no UTF-8, go in as bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return encode(text)
    return text


def readable(value: str | bytes) -> str:
    """The inverse of ``storable``."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


P = ParamSpec("P")
_NOT_OURS = (ValueError, TypeError, IndexError, KeyError, AttributeError, RecursionError, struct.error)


def ours(table: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """For functions that read a row: one that Clew cannot have written is a broken store."""

    def reading(read: Callable[P, T]) -> Callable[P, T]:
        @wraps(read)
        def call(*args: P.args, **named: P.kwargs) -> T:
            try:
                return read(*args, **named)
            except _NOT_OURS as error:
                raise StoreBroken(
                    f"a row of the table {table!r} is none that Clew wrote ({type(error).__name__})",
                    remedy="The file was altered or is damaged: restore a copy of it.",
                ) from error

        return call

    return reading


def unpack_ids(data: bytes | None) -> tuple[int, ...] | None:
    """Token ids from little-endian int32."""
    return None if data is None else struct.unpack(f"<{len(data) // 4}i", data)


def pack_floats(values: F32 | None) -> bytes | None:
    """Little-endian float32."""
    return None if values is None else np.asarray(values, "<f4").tobytes()


def unpack_floats(data: bytes | None) -> F32 | None:
    return None if data is None else np.frombuffer(data, "<f4")


class Codec:
    """Rows of one store."""

    def __init__(
        self,
        number: Callable[[str], int],
        name: Callable[[int], str],
        keep: Callable[[bytes], bytes],
        load: Callable[[bytes], bytes],
    ) -> None:
        self._number, self._name, self._keep, self._load = number, name, keep, load
        self._setups: dict[int, tuple[Setup, bytes]] = {}  # by id, which stays taken while the setup is held here
        self._lists: dict[tuple[str, ...], bytes] = {}
        self._read: dict[bytes, Any] = {}

    def forget(self) -> None:
        """Drop what it remembers of blobs, because some were removed."""
        self._setups, self._lists, self._read = {}, {}, {}

    # nodes

    def node(self, node: Node) -> tuple[Any, ...]:
        key, parent, message, ids, tokenizer, text_key = node
        more = None if message[2:] == _PLAIN else self._more(message)
        packed = None if ids is None else pack_ids(ids)
        return key, parent, self._number(message.role), message.text, more, packed, self._number(tokenizer), text_key

    def _more(self, message: Message) -> str:
        """The column ``more``: what a message says beside its role and text. Images lie in blobs, if there are any."""
        parts = attachments.apart(message.extra, self._keep)
        return dump([*message[2:5], "", parts] if parts else message[2:])

    @ours("node")
    def read_node(self, row: tuple[Any, ...]) -> Node:
        key, parent, role, text, more, ids, tokenizer, text_key = row
        if more is None:
            message = Message(self._name(role), readable(text))
        else:
            reasoning, calls, call_id, extra, *parts = _decode(more)
            extra = attachments.joined(parts[0], self._load) if parts else extra
            tools = tuple(ToolCall(*call) for call in calls)
            message = Message(self._name(role), readable(text), reasoning, tools, call_id, extra)
        return Node(key, parent, message, unpack_ids(ids), self._name(tokenizer), text_key)

    # calls

    def call(self, place: int, call: Call) -> tuple[Any, ...]:
        (_, _, kind, request, after, done, key, conversation, node_in, node_out, action, text, reward, terminal, legal,
         state, snapshot, child, head, forced, logprobs, entropies, seed, setup, packed, finish, usage, cost, started,
         seconds, attempts, error, inner, extra, kept) = call  # fmt: skip
        return (
            place, _KIND[kind], request, after, done, key, conversation, node_in, node_out, action, text, reward,
            terminal, self._legal(legal) if legal else None, state, snapshot, self._number(child) if child else 0,
            head, forced,
            pack_floats(logprobs), pack_floats(entropies),
            seed, None if setup is None else self._setup(setup), self._pack(call) if packed or inner or extra else None,
            self._number(finish) if finish else 0, *usage, cost, started, seconds,
            dump(attempts) if attempts else None, error, kept or None,
        )  # fmt: skip

    @ours("call")
    def read_call(self, run: str, row: tuple[Any, ...]) -> Call:
        (place, kind, request, after, done, key, conversation, node_in, node_out, action, text, reward, terminal, legal,
         state, snapshot, child, head, forced, logprobs, entropies, seed, setup, packed, finish, prompt, completion,
         cached, cost, started, seconds, attempts, error, kept) = row  # fmt: skip
        samples, inner, extra = self._unpack(json.loads(packed)) if packed else ((), (), "")
        return Call(
            run, place & ((1 << BITS) - 1), cast(Any, KINDS[kind]), request, after, done, key, conversation, node_in,
            node_out, readable(action), readable(text), reward, bool(terminal),
            () if legal is None else self._recall(legal, _read_list), state, snapshot,
            self._name(child) if child else "", head, forced, unpack_floats(logprobs), unpack_floats(entropies), seed,
            None if setup is None else self._recall(setup, self._read_setup),
            samples, self._name(finish) if finish else "",
            Usage(prompt, completion, cached) if prompt or completion or cached else _NO_USAGE, cost, started, seconds,
            tuple(Attempt(*one) for one in json.loads(attempts)) if attempts else (), readable(error), inner, extra,
            kept or b"",
        )  # fmt: skip

    def _pack(self, call: Call) -> str:
        """The column ``packed``: a list of samples, as it was before there were inner answers, or an object of these,
        inner answers, and images."""
        listed, asked = [*map(_sample, call.packed)], [*map(_inner, call.inner)]
        if not call.extra:
            return dump({"samples": listed, "inner": asked} if asked else listed)
        parts = attachments.apart(call.extra, self._keep) or [call.extra]
        return dump({"samples": listed, "inner": asked, "extra": parts})

    def _unpack(self, packed: dict[str, Any] | list[Any]) -> tuple[tuple[Sample, ...], tuple[Inner, ...], str]:
        held = packed if isinstance(packed, dict) else {"samples": packed, "inner": ()}
        extra = attachments.joined(held.get("extra", ()), self._load)
        return tuple(map(_read_sample, held["samples"])), tuple(map(_read_inner, held["inner"])), extra

    def _legal(self, legal: tuple[str, ...]) -> bytes:
        key = self._lists.get(legal)
        if key is None:
            if len(self._lists) > 20_000:
                self._lists.clear()
            key = self._lists[legal] = self._keep(dump(legal).encode())
        return key

    def _setup(self, setup: Setup) -> bytes:
        known = self._setups.get(id(setup))
        if known is None:
            if len(self._setups) > 1_000:
                self._setups.clear()
            tools = [self._keep(dump([t.name, t.description, t.schema]).encode()).hex() for t in setup.tools]
            asked, in_force = _sampling(setup.asked), _sampling(setup.in_force)
            body = [setup.model, setup.version, asked, in_force, tools, setup.served_by]
            body += [setup.weights] if setup.weights else []  # a setup without is written as before there were any
            known = self._setups[id(setup)] = (setup, self._keep(dump(body).encode()))
        return known[1]

    @ours("node")
    def image_keys(self, more: str | None) -> set[bytes]:
        """Blobs that the column ``more`` of a node refers to."""
        return attachments.keys(_decode(more)[4]) if more and _decode(more)[4:] else set()

    @ours("call")
    def shown_keys(self, packed: str | None) -> set[bytes]:
        """Blobs that the column ``packed`` of a Call refers to."""
        held = json.loads(packed) if packed else None
        return attachments.keys(held.get("extra", ())) if isinstance(held, dict) else set()

    def tool_keys(self, setup: bytes) -> set[bytes]:
        """Blobs that the blob of a setup refers to."""
        return {bytes.fromhex(key) for key in json.loads(self._load(setup))[4]}

    def _read_setup(self, body: bytes) -> Setup:
        model, version, asked, in_force, tools, served_by, *weights = json.loads(body)
        specs = tuple(ToolSpec(*json.loads(self._load(bytes.fromhex(key)))) for key in tools)
        return Setup(model, version, _read_sampling(asked), _read_sampling(in_force), specs, served_by, *weights)

    def _recall(self, key: bytes, read: Callable[[bytes], T]) -> T:
        """A repeated value by digest; equal values come back as one object."""
        value: T | None = self._read.get(key)
        if value is None:
            if len(self._read) > 20_000:
                self._read.clear()
            value = self._read[key] = read(self._load(key))
        return value

    # runs and groups

    def run(self, no: int, row: RunRow) -> tuple[Any, ...]:
        """The columns of a run, in the order of RunRow's fields; its id is a number, its task a blob."""
        task = self._keep(encode(row.task)) if row.task else None
        fixed = {"id": no, "task": task, "order": dump(row.order), "lineage": dump(row.lineage)}
        values = (fixed.get(name, value) for name, value in zip(RunRow._fields, row, strict=True))
        return tuple(storable(value) if isinstance(value, str) else value for value in values)

    @ours("run")
    def read_run(self, row: tuple[Any, ...]) -> RunRow:
        """The inverse of ``run``; a task that was not read stays empty."""
        no, task, order, lineage = row[0], row[5], row[10], row[13]
        read = RunRow._make(readable(v) if isinstance(v, bytes) and v is not task else v for v in row)
        return read._replace(
            id=self._name(no),
            task="" if task is None else readable(self._load(task)),
            order=tuple(json.loads(order)),
            lineage=tuple(Segment(*segment) for segment in json.loads(lineage)),
        )


def group_row(no: int, row: GroupRow) -> tuple[Any, ...]:
    return no, row.kind, storable(row.task_id), dump(row.runs), storable(row.name)


@ours("blob")
def read_blob(body: bytes) -> bytes:
    return memoryview(body).tobytes()


@ours("grp")
def read_group(id: str, row: tuple[Any, ...]) -> GroupRow:
    _, kind, task_id, runs, name = row
    return GroupRow(id, kind, readable(task_id), tuple(json.loads(runs)), readable(name))


def report_json(report: Report) -> str:
    return dump({name: getattr(report, name) for name in Report.__dataclass_fields__})


@ours("report")
def read_report(body: str) -> Report:
    fields = json.loads(body)
    return Report(**fields | {name: tuple(fields[name]) for name in ("runs", "caveats")})


def _read_list(body: bytes) -> tuple[str, ...]:
    return tuple(json.loads(body))


def _sampling(sampling: Sampling | None) -> list[Any] | None:
    """Grammar and shape are written only where there are: records without are as they were before there were any."""
    return None if sampling is None else list(sampling[: 7 if sampling.shape else 6 if sampling.grammar else 5])


def _read_sampling(fields: list[Any] | None) -> Sampling | None:
    return None if fields is None else Sampling._make([*fields[:4], tuple(fields[4]), *fields[5:], *("", "")][:7])


def _inner(one: Inner) -> list[Any]:
    *known, tokens, weights = one
    return [*known, _text_of_ids(tokens), *([weights] if weights else [])]


def _read_inner(fields: list[Any]) -> Inner:
    model, served_by, version, usage, cost, seconds, text, tokens, *weights = fields
    return Inner(model, served_by, version, Usage(*usage), cost, seconds, text, _ids_of_text(tokens), *weights)


def _text_of_ids(ids: tuple[int, ...] | None) -> str | None:
    return None if ids is None else b64encode(pack_ids(ids)).decode()


def _ids_of_text(text: str | None) -> tuple[int, ...] | None:
    return unpack_ids(None if text is None else b64decode(text))


def _sample(sample: Sample) -> list[Any]:
    logprobs = pack_floats(sample.logprobs)
    ids = _text_of_ids(sample.ids)
    chances = None if logprobs is None else b64encode(logprobs).decode()
    kept = [b64encode(sample.kept).decode()] if sample.kept else []  # samples without are written as before
    return [sample.seed, sample.message, ids, chances, sample.finish, *kept]


def _read_sample(fields: list[Any]) -> Sample:
    seed, (role, text, reasoning, calls, call_id, extra), ids, logprobs, finish, *kept = fields
    message = Message(role, text, reasoning, tuple(ToolCall(*call) for call in calls), call_id, extra)
    values = unpack_floats(None if logprobs is None else b64decode(logprobs))
    return Sample(seed, message, _ids_of_text(ids), values, finish, *map(b64decode, kept))

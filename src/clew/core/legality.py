"""What makes a record legal: the keys that chain its Calls, and one predicate per rule.

Two digests chain a run. The *issue digest* of a Call covers what was asked and the issue digest of the Call before
it in order of issue; it is known the moment the Call is issued. The *key* puts the Call's result on top of its own
issue digest. So a key is final as soon as its Call completes, whatever is still open before it, and an altered field
of Call k is found at k: an altered question breaks the chain from k on, an altered result breaks key k alone.
Neither covers run id, times, cost, usage (those of inner answers too), attempts, snapshot or the sets of tokens that
truncation left: a fork shares its parent's chain, and a record of the same effects made on a slower day has the same
keys.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b

from clew.core.errors import BadInput
from clew.core.keys import CALL, SIZE, encode, node_key, pack_ids, text_key
from clew.core.records import Call, Node, RunRow, Sample, Setup
from clew.core.values import Inner, Sampling, StopReason, ToolSpec

ISSUE = b"clew.issue.1"
_asked = struct.Struct("<qqq").pack  # seq, after, conversation
_result = struct.Struct("<q?d?qqq").pack  # done, has reward, reward, terminal, head, forced, seed
_sampling = struct.Struct("<qddq").pack
_lengths: Callable[..., bytes] = struct.Struct("<15i").pack
_length: Callable[..., bytes] = struct.Struct("<i").pack
_issue_lengths: Callable[..., bytes] = struct.Struct("<5i").pack
_NO_LEGAL = (b"", b"")


def issue_key(prev: bytes, call: Call) -> bytes:
    """Digest of what a Call asked, chained to ``prev``, the issue digest of the Call before it (``b""`` for Call 0)."""
    _, seq, kind, request, after, _, _, conversation, node_in, _, action = call[:11]
    pieces = (prev, kind.encode(), request, node_in, encode(action))
    return blake2b(
        b"".join((_issue_lengths(*map(len, pieces)), _asked(seq, after, conversation), *pieces)),
        digest_size=SIZE,
        person=ISSUE,
    ).digest()


def call_key(issue: bytes, call: Call) -> bytes:
    """The key of a completed Call: its result on top of its issue digest."""
    (_, _, _, _, _, done, _, _, _, node_out, _, text, reward, terminal, legal, state, _, child, head, forced, logprobs,
     entropies, seed, setup, packed, finish, _, _, _, _, _, error, inner, extra, _) = call  # fmt: skip
    chances = b"" if logprobs is None else logprobs.astype("<f4", copy=False).tobytes()
    spreads = b"" if entropies is None else entropies.astype("<f4", copy=False).tobytes()
    said, why = encode(text), encode(error)
    pieces = (issue, node_out, said, state, child.encode(), chances, spreads, finish.encode(), why)
    more = [b"" if setup is None else setup_bytes(setup)]
    for sample in packed:
        more += _sample_pieces(sample)
    more += map(_inner_bytes, inner)  # a record without inner answers keeps its key, and one without images
    more += (b"", encode(extra)) if extra else ()  # no inner answer is empty
    legal_lengths, legal_bytes = _legal_bytes(legal) if legal else _NO_LEGAL
    shape = (*map(len, pieces), logprobs is None, entropies is None, setup is None)
    head_bytes = (
        _lengths(*shape, len(legal), len(packed), len(legal) + len(more)),
        legal_lengths,
        _length(len(more[0])) if len(more) == 1 else struct.pack(f"<{len(more)}i", *map(len, more)),
        _result(done, reward is not None, reward or 0.0, terminal, head, forced, seed),
    )
    return blake2b(b"".join((*head_bytes, *pieces, legal_bytes, *more)), digest_size=SIZE, person=CALL).digest()


@lru_cache(maxsize=8192)
def _legal_bytes(legal: tuple[str, ...]) -> tuple[bytes, bytes]:
    pieces = [*map(encode, legal)]
    return struct.pack(f"<{len(pieces)}i", *map(len, pieces)), b"".join(pieces)


def setup_bytes(setup: Setup) -> bytes:
    """Canonical bytes of a Setup: equal for equal setups, whatever objects hold them.

    Raises:
        BadInput: a tool's schema is no JSON.
    """
    fixed = _fixed_bytes(setup.model, setup.served_by, setup.weights, setup.version, setup.asked, setup.in_force)
    return fixed + b"".join([_tool_bytes(_One(tool)) for tool in setup.tools]) if setup.tools else fixed


class _One:
    """A key of a cache that tells objects apart by identity: equal schemas may differ, as 1 and 1.0 do."""

    __slots__ = ("thing",)

    def __init__(self, thing: ToolSpec) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _One) and other.thing is self.thing


@lru_cache(maxsize=1024)
def _tool_bytes(one: _One) -> bytes:
    tool = one.thing
    try:
        schema = json.dumps(tool.schema, sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BadInput(f"the schema of tool {tool.name!r}: {error}", remedy="Use JSON values.") from error
    return _prefixed([encode(tool.name), encode(tool.description), schema])


def _model_pieces(model: str, served_by: str, weights: str) -> tuple[bytes, ...]:
    """The names that a key covers: of a model, and of what its server called it.

    Weights that have a content name go by it and not by the folder they lay in, so that they give the same keys
    elsewhere. The third piece, which a record without such a name does not have, says that the first is one.
    """
    if not weights:
        return encode(model), encode(served_by)
    return encode(weights), b"" if served_by == model else encode(served_by), b"weights"


@lru_cache(maxsize=4096)
def _fixed_bytes(
    model: str, served_by: str, weights: str, version: int, asked: Sampling | None, in_force: Sampling | None
) -> bytes:
    pieces = [*_model_pieces(model, served_by, weights)]
    for sampling in (asked, in_force):
        if sampling is not None:
            pieces += _sampling_pieces(sampling)
    return struct.pack("<q??", version, asked is None, in_force is None) + _prefixed(pieces)


def _prefixed(pieces: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(pieces) + 1}i", len(pieces), *map(len, pieces)) + b"".join(pieces)


def _sampling_pieces(sampling: Sampling) -> list[bytes]:
    tokens, temperature, top_p, top_k, stop, *more = sampling
    count = len(stop) | sum(1 << 31 - i for i, text in enumerate(more) if text)  # a record without keeps its digest
    pieces = [_sampling(tokens, temperature, top_p, top_k), count.to_bytes(4, "little"), *map(encode, stop)]
    return [*pieces, *(encode(text) for text in more if text)]


def _sample_pieces(sample: Sample) -> list[bytes]:
    return [
        sample.seed.to_bytes(8, "little", signed=True),
        text_key(b"", sample.message),
        b"" if sample.ids is None else b"+" + pack_ids(sample.ids),
        b"" if sample.logprobs is None else b"+" + sample.logprobs.astype("<f4", copy=False).tobytes(),
        encode(sample.finish),
    ]


def _inner_bytes(one: Inner) -> bytes:
    tokens = b"" if one.tokens is None else b"+" + pack_ids(one.tokens)
    names = _model_pieces(one.model, one.served_by, one.weights)
    return struct.pack("<q", one.version) + _prefixed([*names, encode(one.text), tokens])


Found = Iterator[tuple[int, str]]  # seq and what is wrong there


def contiguous(path: Sequence[Call]) -> Found:
    """Calls are numbered 0, 1, 2, ... along the path, shared ones included."""
    for at, call in enumerate(path):
        if call.seq != at:
            yield call.seq, f"stands at place {at} of its run"
            return


def opens_once(path: Sequence[Call]) -> Found:
    """Call 0 is the open, and the only one."""
    for at, call in enumerate(path):
        if (call.kind == "open") != (at == 0):
            yield call.seq, "an open after the start" if at else f"a run that starts with {call.kind}, not open"


def ends_once(path: Sequence[Call]) -> Found:
    """At most one end, as the last Call, with a known stop reason."""
    for at, call in enumerate(path):
        if call.kind == "end":
            if at != len(path) - 1:
                yield call.seq, "an end before the last Call"
            if call.action not in set(StopReason):
                yield call.seq, f"an end for no known reason ({call.action!r})"


def clocked(path: Sequence[Call]) -> Found:
    """``after`` never falls and never exceeds the clock; ``done`` ranks are unique and not below their ``after``."""
    clock, latest, ranks = 0, 0, set[int]()
    for call in path:
        if call.after < latest:
            yield call.seq, f"issued at {call.after}, before the Call before it ({latest})"
        if call.after > clock:
            yield call.seq, f"issued at {call.after}, when the clock stood at {clock}"
        if call.done >= 0:
            if call.done < call.after:
                yield call.seq, f"handed over at {call.done}, before it was issued at {call.after}"
            if call.done in ranks:
                yield call.seq, f"handed over at {call.done}, as another Call was"
            ranks.add(call.done)
            clock = max(clock, call.done + 1)
        latest = max(latest, call.after)


def complete(path: Sequence[Call]) -> Found:
    """Each kind has what it cannot do without: an ask its node in and setup, a spawn its child, a result its key."""
    for call in path:
        if call.kind == "ask" and (not call.node_in or call.conversation < 0 or call.setup is None):
            yield call.seq, "an ask without node in, conversation or setup"
        if call.done >= 0 and call.kind == "spawn" and not call.child and not call.error:
            yield call.seq, "a spawn without a child"
        if call.done >= 0 and not call.key:
            yield call.seq, "a result without a key"


def numbered(path: Sequence[Call]) -> Found:
    """Logprobs, entropies and the sets of tokens that were left are of the same tokens."""
    for call in path:
        if call.logprobs is not None and call.entropies is not None and len(call.logprobs) != len(call.entropies):
            yield call.seq, f"{len(call.logprobs)} logprobs and {len(call.entropies)} entropies"
        for said, sets in ((call.logprobs, call.kept), *((one.logprobs, one.kept) for one in call.packed)):
            if sets and (said is None or len(said) != int.from_bytes(sets[:4], "little")):  # see clew.models.kept
                yield call.seq, "logprobs and sets of kept tokens that are not of as many tokens"


RULES: tuple[Callable[[Sequence[Call]], Found], ...] = (contiguous, opens_once, ends_once, clocked, complete, numbered)


def reply_faults(call: Call, parent: bytes, tokens: int | None) -> Iterator[str]:
    """What is wrong between an ask and its reply's node, given that node's parent and its number of token ids."""
    if parent != call.node_in:
        yield "its reply hangs on another node than it was asked at"
    if tokens is not None and call.logprobs is not None:
        parts = (call.head, call.forced, len(call.logprobs))  # head + forced + sampled
        if sum(parts) != tokens:
            yield f"its reply has {tokens} tokens, not {' + '.join(map(str, parts))}"


def node_faults(node: Node, parent_text_key: bytes) -> Iterator[str]:
    """Whether a node's two keys are those of its content."""
    if node_key(node.parent, node.message, node.ids, node.tokenizer) != node.key:
        yield "is not what its key says"
    if text_key(parent_text_key, node.message) != node.text_key:
        yield "is not what its text key says"


def lineage_faults(row: RunRow) -> Iterator[str]:
    """A lineage is flat: segments follow each other from Call 0 and none is of the run itself."""
    at = 0
    for segment in row.lineage:
        if segment.start != at or segment.stop <= segment.start or segment.run == row.id:
            yield f"its lineage breaks at Call {at} ({segment.run} {segment.start} to {segment.stop})"
        at = segment.stop

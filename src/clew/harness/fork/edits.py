"""From what a user wants changed to an Intervention, the Call it acts at, and the row of a fork."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.records import Call, Cursor, Edit, Intervention, Node, RunRow, Segment
from clew.core.values import Message, Sampling
from clew.harness.memory.recalled import first_recall
from clew.harness.run.nodes import Said, as_message, message_json
from clew.harness.run.tape import unanswered
from clew.models.shaping import sampling_with
from clew.models.taps.forms import form_of, taps_of
from clew.models.taps.tap import Tap
from clew.store.names import new_id
from clew.store.run import Run

Given = Said | Sequence[int]
"""A reply or a result that stands in place of one: a text, a message or its fields, or token ids."""


def plan(
    run: Run,
    at: Cursor | int | None,
    *,
    reply: Given | None = None,
    prefix: str | Sequence[int] | None = None,
    result: str | Mapping[str, Any] | None = None,
    rewrite: Mapping[Any, Any] | None = None,
    world: Sequence[str] | bytes | None = None,
    model: str | None = None,
    sampling: Mapping[str, Any] | None = None,
    tap: Tap | Sequence[Tap] | None = None,
    memory: Mapping[str, Any] | None = None,
    edits: Sequence[Edit] = (),
    keep: bool = False,
) -> tuple[int, Intervention]:
    """Where a fork goes live and what is changed there; arguments as in ``Runner.fork``.

    Raises:
        BadInput: the place and the change do not fit each other.
    """
    made: list[Edit] = [*edits, *(rewritten(run, rewrite) if rewrite else ())]
    if memory is not None:
        taken, first = without_items(run, memory)
        at = first if at is None and not made else at
    seq, token = place(run, at, made)
    call = next(iter(run.store.calls(run.id, seq, seq + 1)), None)
    if call is None and seq != len(run.calls):
        raise BadInput(
            f"run {run.id} has no Call {seq} to fork at",
            remedy=f"Give at=run.at(...); it has Calls 0 to {len(run.calls) - 1}.",
        )
    if token:
        made.append(Edit("prefix", seq, cut(run, call, token)))
    for name, value, wanted in (("reply", reply, "ask"), ("prefix", prefix, "ask"), ("result", result, "act")):
        if value is None:
            continue
        kind = call.kind if call is not None else "not there"
        if kind != wanted:
            raise BadInput(f"Call {seq} of run {run.id} is {kind}; {name} changes an {wanted}", at=f"{run.id}@{seq}")
        if name == "prefix" and token:
            raise BadInput(
                "a fork inside a reply already forces its first tokens",
                remedy="Give a token offset or prefix=, not both.",
            )
        made.append(Edit(name, seq, plain(value)))
    made = [_stored(run, edit) if edit.kind == "tap" else edit for edit in made]
    taps = None if tap is None else _stored(run, Edit("tap", seq, tap)).value
    for name, later in (("model", model), ("sampling", dict(sampling) if sampling else None), ("tap", taps)):
        if later is not None:
            made.append(Edit(name, seq, later))
    if memory is not None:
        made.append(Edit("memory", seq, {"without": taken}))
    if world is not None:
        made.append(Edit("world", seq, base64.b85encode(world).decode() if isinstance(world, bytes) else list(world)))
    sampling_with(Sampling(), sampling or {})
    return seq, Intervention((*(e for e in run.changes.edits if inherits(e, seq)), *made), keep)


def without_items(run: Run, memory: Mapping[str, Any]) -> tuple[str | list[str], int]:
    """The items that a fork's recalls do without (ids, or ``all``), and the first Call that saw one of them.

    Raises:
        BadInput: it names none, or the run saw none of them.
    """
    wanted: Any = memory.get("without")
    names = () if wanted == "all" else tuple(wanted) if isinstance(wanted, (list, tuple)) else ("",)
    if set(memory) != {"without"} or (not names and wanted != "all") or not all(map(_is_name, names)):
        raise BadInput("memory= names no items", remedy='Give {"without": [ids]} or {"without": "all"}.')
    first, ids = first_recall(run.calls, names)
    if first < 0:
        which = ", ".join(names)[:200] or "any item"
        raise BadInput(f"run {run.id} recalled nothing of {which}", remedy="`clew show` tells what it recalled.")
    return ids if names else "all", first


def _is_name(one: object) -> bool:
    return isinstance(one, str) and bool(one)


def _stored(run: Run, edit: Edit) -> Edit:
    """An edit of kind ``tap`` as it is recorded: its vectors are blobs of the store, which it names."""
    taps = taps_of(edit.value, run.store.blob)
    for vector in {vector for tap in taps for vector in tap.vectors}:
        run.store.put_blob(vector.data)
    return edit._replace(value=[form_of(tap) for tap in taps])


def place(run: Run, at: Cursor | int | None, edits: Sequence[Edit]) -> tuple[int, int]:
    """Call and token to fork at: as given, but no later than the first ask that an edited message reaches."""
    seq, token = (at.seq, at.token) if isinstance(at, Cursor) else (-1 if at is None else int(at), 0)
    said_edits = [e for e in edits if e.kind in ("say", "insert", "delete")]
    if said_edits:
        first = first_ask_with(run, said_edits)
        return (first, 0) if seq < 0 or first < seq else (seq, token)
    if seq < 0 and edits:
        seq = min(e.seq for e in edits)
    if seq < 0:
        raise BadInput(f"no place to fork run {run.id} at", remedy="Give at=run.at(...), or rewrite=.")
    return seq, token


def inherits(edit: Edit, seq: int) -> bool:
    """Whether a parent's edit still holds in a fork at ``seq``: those of one Call only where that Call is shared."""
    return (
        edit.kind in ("say", "insert", "delete")
        or edit.seq < seq
        or (edit.kind in ("model", "sampling", "tap", "memory") and edit.seq <= seq)
    )


def plain(value: Given) -> str | dict[str, Any] | list[int]:
    """An edit's value as JSON."""
    if isinstance(value, Message):
        return message_json(value)
    if isinstance(value, Mapping):
        return dict(value)
    return value if isinstance(value, str) else [int(v) for v in value]


def cut(run: Run, call: Call | None, token: int) -> str | list[int]:
    """The first ``token`` tokens of a recorded reply, or characters where it has no ids."""
    if call is None or call.kind != "ask" or not call.node_out:
        raise BadInput(
            f"{run.id}@{call.seq if call else '?'} is no reply to cut",
            remedy="Fork inside an ask Call that was answered.",
        )
    node = run.store.node(call.node_out)
    length = len(node.ids) - call.head if node.ids is not None else len(node.message.text)
    if token > length:
        raise BadInput(f"the reply at {run.id}@{call.seq} has {length} tokens, not {token}")
    return list(node.ids[call.head : call.head + token]) if node.ids is not None else node.message.text[:token]


def rewritten(run: Run, rewrite: Mapping[Any, Any]) -> list[Edit]:
    """Edits of what the agent said, from {place: new text, Message or None to drop it}.

    A place is a Node or its key, an index into conversation 0, or (conversation, index).
    """
    out = []
    for place, value in rewrite.items():
        if isinstance(place, (Node, bytes)):
            conversation, index = said_at(run, place.key if isinstance(place, Node) else place)
        else:
            conversation, index = place if isinstance(place, tuple) else (0, place)
        kind = "delete" if value is None else "say"
        out.append(Edit(kind, 0, None if value is None else plain_message(value), int(conversation), int(index)))
    return out


def plain_message(value: Said) -> str | dict[str, Any]:
    return value if isinstance(value, str) else message_json(as_message(value))


def said(run: Run, conversation: int) -> list[tuple[int, Node]]:
    """What the agent said in a conversation: (ask that first held it, node), replies left out."""
    asks = [c for c in run.calls if c.kind == "ask" and c.conversation == conversation]
    replies = {c.node_out for c in asks}
    out: list[tuple[int, Node]] = []
    seen: set[bytes] = set()
    for ask in asks:
        for node in run.store.thread(ask.node_in):
            if node.key not in seen and node.key not in replies:
                seen.add(node.key)
                out.append((ask.seq, node))
    return out


def said_at(run: Run, key: bytes) -> tuple[int, int]:
    for conversation in sorted({c.conversation for c in run.calls if c.kind == "ask"}):
        for index, (_, node) in enumerate(said(run, conversation)):
            if node.key == key:
                return conversation, index
    raise BadInput(
        f"no message {key.hex()} was said in run {run.id}",
        remedy="Replies are changed with reply= or prefix= at their Call.",
    )


def first_ask_with(run: Run, edits: Sequence[Edit]) -> int:
    """The first ask whose context holds one of the edited messages."""
    firsts = []
    for edit in edits:
        messages = said(run, edit.conversation)
        if not 0 <= edit.index < len(messages):
            raise BadInput(
                f"conversation {edit.conversation} of run {run.id} has no message {edit.index}",
                remedy=f"The agent said {len(messages)} messages there (replies are not counted).",
            )
        firsts.append(messages[edit.index][0])
    return min(firsts)


def told(run: Run, sentence: str) -> tuple[Edit, ...]:
    """Edits by which the first conversation's system message says a sentence besides; one is put in where none is."""
    first = said(run, 0)[0][1].message
    if first.role == "system":
        return (Edit("say", 0, f"{first.text}\n\n{sentence}", 0, 0),)
    return (Edit("insert", 0, plain_message(Message("system", sentence)), 0, 0),)


def kept_replies(run: Run, seq: int) -> dict[tuple[int, int], Node]:
    """Replies at or after ``seq`` by (conversation, ordinal of the ask), to be forced again after an edit."""
    out, counts = {}, dict[int, int]()
    for call in run.calls:
        if call.kind == "ask":
            ordinal = counts[call.conversation] = counts.get(call.conversation, -1) + 1
            if call.seq >= seq and call.node_out:
                out[call.conversation, ordinal] = run.store.node(call.node_out)
    return out


def fork_row(view: Run, seq: int, changes: Intervention, mode: str | int, member: int, **fields: Any) -> RunRow:
    """The row of a fork: flat lineage, seed by mode, everything else as its parent.

    It shares the Calls before the place, up to the first that never answered or was given up after the Call there had
    been issued: what became of that one may hang on what the fork changes, so the fork makes it anew.
    """
    row, calls = view.row, view.calls
    place = calls[seq] if seq < len(calls) else None
    common = min((c.seq for c in unanswered(calls[:seq], place)), default=seq)
    lineage = tuple(s._replace(stop=min(s.stop, common)) for s in row.lineage if s.start < common)
    shared = row.lineage[-1].stop if row.lineage else 0
    if common > shared:
        lineage += (Segment(row.id, shared, common),)
    identity = new_id()
    if isinstance(mode, int):
        seed = mode if member == 0 else derive(mode, "sibling", member)
    elif mode == "same":
        seed = row.seed if member == 0 else derive(row.seed, "sibling", member)
    elif mode == "fresh":
        seed = derive(row.seed, "fork", identity)
    else:
        raise BadInput(f"seed {mode!r} is not a number", remedy='Give a number, "same" or "fresh".')
    token = next((len(e.value) for e in changes.edits if (e.kind, e.seq) == ("prefix", seq)), 0)
    fork = row._replace(
        id=identity,
        seed=seed,
        parent=str(Cursor(row.id, seq, token)),
        changes=json.dumps(changes.to_json(), ensure_ascii=False) if changes.edits or changes.keep else "",
        lineage=lineage,
        origin="fork",
        order=(*row.order, member),
        created=time.time(),
    )
    return fork._replace(**fields)

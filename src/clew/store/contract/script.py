# ruff: noqa: PT017  (checks are plain functions, not tests)
"""``Script`` writes legal runs, ``tamper`` breaks them: the records of the contract and of other layers' tests."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import numpy as np

from clew.core.errors import ClewError
from clew.core.keys import digest, encode, node_key, state_key, text_key
from clew.core.legality import call_key, issue_key
from clew.core.records import Annotation, Call, Node, RunRow, Segment, Setup
from clew.core.values import Message, Sampling, ToolSpec, Usage
from clew.store.base import Keeper
from clew.store.memory import MemoryStore
from clew.store.names import new_id
from clew.store.run import Run

Factory = Callable[[], Keeper]
LOOK = ToolSpec("look", "Look round.", {"type": "object", "properties": {"at": {"type": "string"}}})
SETUP = Setup("tiny", 3, Sampling(16, 0.7, stop=("\n",)), Sampling(16), (LOOK,), "tiny-1")
PICTURE = json.dumps({"media": [{"type": "image", "data": b64encode(bytes(range(256)) * 8).decode()}]})


def make_node(parent: Node | None, role: str, text: str, ids: tuple[int, ...] | None = None, **more: Any) -> Node:
    """A node with its keys."""
    message = Message(role, text, **more)
    up, up_text = (parent.key, parent.text_key) if parent else (b"", b"")
    tokenizer = "" if ids is None else "words"
    return Node(node_key(up, message, ids, tokenizer), up, message, ids, tokenizer, text_key(up_text, message))


class Script:
    """Writes a legal run: one conversation over a text world, Call by Call."""

    def __init__(
        self, store: Keeper, run: str | None = None, *, task: str = "task-1", prompt: str = "", **row: Any
    ) -> None:
        self.store, self.run, self.seq, self.prev = store, run or new_id(), 0, b""
        self.tip: Node | None = None
        lineage: tuple[Segment, ...] = row.get("lineage", ())
        for segment in lineage:
            for call in store.calls(segment.run, segment.start, segment.stop):
                self.prev, self.seq = issue_key(self.prev, call), call.seq + 1
                self.tip = store.node(call.node_out) if call.node_out else self.tip
        fields = {"agent": "agents.py:play", "taskset": "toy(rooms=3)", "model": "tiny", "task_id": task}
        told = json.dumps({"id": task, "prompt": prompt or f"solve {task}", "data": {}, "limits": {}})
        store.put_run(RunRow(self.run, **{**fields, "task": told, "created": 1e9, **row}))

    def put(self, kind: str, **fields: Any) -> Call:
        """File the next Call with its keys."""
        rank = {"after": self.seq, "done": self.seq, **fields}
        request = digest(b"clew.req.1", kind.encode(), encode(str(fields.get("action", ""))))
        call = Call(self.run, self.seq, kind, request, **rank)  # type: ignore[arg-type]
        self.prev = issue_key(self.prev, call)
        if call.done >= 0:
            call = call._replace(key=call_key(self.prev, call))
        self.store.put_call(self.run, call)
        self.seq += 1
        return call

    def open(self, text: str = "You see a door.", **fields: Any) -> Call:
        return self.put("open", text=text, state=state_key(text), legal=("open door", "wait"), **fields)

    def ask(self, said: str, reply: str, sampled: int = 2, **fields: Any) -> Call:
        head, forced = 1, int(fields.get("forced", 0))
        user = make_node(self.tip, "user", said, (1, 2))
        answer = make_node(user, "assistant", reply, tuple(range(3, 3 + head + forced + sampled)))
        self.store.put_nodes([user, answer])
        self.tip = answer
        noise = np.linspace(-1, -0.1, sampled, dtype=np.float32)
        place = {"conversation": 0, "node_in": user.key, "node_out": answer.key, "seed": 2**62 + self.seq}
        said_so = {"head": head, "logprobs": noise, "entropies": -noise, "setup": SETUP, "finish": "stop"}
        took = {"usage": Usage(2, sampled), "cost": 0.001, "started": 100.0 + self.seq, "seconds": 0.5}
        return self.put("ask", **place, **said_so, **took, **fields)

    def act(self, action: str, text: str, **fields: Any) -> Call:
        return self.put("act", action=action, text=text, state=state_key(text), legal=("wait",), **fields)

    def end(self, reason: str = "done") -> Call:
        return self.put("end", action=reason)

    def play(self, steps: int = 3, reward: float | None = None, end: bool = True) -> Run:
        """Open, some steps, end, the judge's reward; returns the run."""
        self.open()
        for step in range(steps):
            self.ask(f"view {step}", f"> act {step}")
            self.act(f"> act {step}", f"result {step}", reward=0.0, terminal=step == steps - 1)
        if end:
            self.end()
        if reward is not None:
            self.store.annotate([Annotation("run", "reward", reward, self.run)])
        self.store.commit()
        return Run(self.store, self.run)


def fork_at(store: Keeper, source: Run, seq: int, **row: Any) -> Script:
    """A script that goes on from Call ``seq`` of a run, sharing what lies before."""
    lineage = [s._replace(stop=min(s.stop, seq)) for s in source.row.lineage if s.start < seq]
    if seq > source.shared:
        lineage.append(Segment(source.id, source.shared, seq))
    fields = {"parent": f"{source.id}@{seq}", "origin": "fork", "task": source.task_id, "lineage": tuple(lineage)}
    return Script(store, **{**fields, **row})


def tamper(store: Keeper, run: str, seq: int, **fields: Any) -> None:
    """Alter a recorded Call in place, without its keys, as no store lets anyone do."""
    store.commit()
    call = store.calls(run, seq, seq + 1)[0]._replace(**fields)
    if isinstance(store, MemoryStore):
        store._calls[call.run][seq] = call
        return
    from clew.store.sql.row_codec import BITS, CALL_COLUMNS
    from clew.store.sql.run_tables import KNOWN, Records

    assert isinstance(store, Records), "tamper knows the bundled stores only"
    with store._write() as db:
        row = store._codec.call((store._number(call.run) << BITS) + seq, call)
        store._file(db, "blob", "key, body", list(store._blobs.items()), KNOWN)
        db.execute("DELETE FROM call WHERE at = ?", row[:1])
        store._file(db, "call", CALL_COLUMNS, [row], KNOWN)


def expect(error: type[ClewError], action: Callable[[], Any]) -> ClewError:
    """The error an action must raise, which names the input."""
    try:
        action()
    except error as raised:
        assert raised.message, f"{error.__name__} says nothing"
        return raised
    raise AssertionError(f"no {error.__name__} was raised")


def same(a: object, b: object) -> bool:
    """Equality of records that hold arrays, exact in every bit."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype and bool((a == b).all())
    if isinstance(a, tuple) and isinstance(b, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)

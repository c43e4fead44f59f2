"""Proof of a store: every key is derived anew, and every rule of a legal record (core/legality.py) is checked.

``clew store verify`` prints the faults. Redacted content is passed over: its key stays, with nothing left to derive it
from.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

from clew.core.comparisons import Comparisons
from clew.core.errors import ClewError
from clew.core.keys import blob_key
from clew.core.legality import RULES, call_key, issue_key, lineage_faults, node_faults, reply_faults
from clew.core.printable import short
from clew.core.records import Annotation, Call, Fault, Node, RunRow
from clew.core.values import REDACTED
from clew.store.entries import altered
from clew.store.protocol import Tables
from clew.store.redaction import leftovers

T = TypeVar("T")
_DAMAGE = (ClewError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, struct.error)


def guarded(where: str, work: Callable[[], Iterable[Fault]]) -> Iterator[Fault]:
    """The faults that a check finds, and what stopped it if something did: it must hide no fault of another."""
    try:
        yield from work()
    except _DAMAGE as error:
        told = error.message if isinstance(error, ClewError) else type(error).__name__
        yield Fault(where, f"cannot be checked to the end: {told}")


class Seen(NamedTuple):
    """What later checks need of a node; ``tokens`` is None where it has no ids."""

    parent: bytes
    text_key: bytes
    tokens: int | None


class Proof:
    """One pass over a store. ``issues``: the issue digest of each Call, by the run that issued it and seq."""

    def __init__(self, store: Tables) -> None:
        self.store = store
        self.tombs: dict[str, bytes] = {}
        self.rows: dict[str, RunRow] = {}
        self.nodes: dict[bytes, Seen] = {}
        self.blobs: set[bytes] = set()
        self.issues: dict[tuple[str, int], bytes] = {}

    def faults(self) -> Iterator[Fault]:
        """Everything wrong: where (``run@seq``, or a node or blob by hex key), and a sentence."""
        yield from guarded("tombstones", self._tombstones)
        yield from guarded("blobs", self._content)
        yield from guarded("messages", self._messages)
        for run in guarded_list(self.store.run_ids):
            yield from guarded(run, partial(self._row, run))
        rows = self.rows
        ages = {run: row.created if isinstance(row.created, float) else 0.0 for run, row in rows.items()}
        for run in sorted(rows, key=lambda run: (len(rows[run].lineage), ages[run])):  # parents before forks
            yield from guarded(run, partial(self._run, rows[run]))
        yield from guarded("groups", self._groups)
        yield from guarded("annotations", self._annotations)
        yield from guarded("tags, reports and tables", self._small)
        yield from guarded("memories", lambda: (Fault(*found) for found in altered(self.store)))

    def _tombstones(self) -> Iterator[Fault]:
        self.tombs = self.store.tombstones()
        return iter(())

    def _row(self, run: str) -> Iterator[Fault]:
        self.rows[run] = row = self.store.row(run)
        told = json.loads(row.task) if row.task else {}
        if not isinstance(told, dict):
            yield Fault(run, "its task is not a JSON object")
        elif isinstance(told.get("id"), str) and told["id"] != row.task_id:
            yield Fault(run, f"its task is that of {short(told['id'], 40)!r}, not of {short(row.task_id, 40)!r}")

    def _groups(self) -> Iterator[Fault]:
        for group in self.store.groups():
            yield from guarded(group, partial(self._group, group))

    def _group(self, group: str) -> Iterator[Fault]:
        for run in self.store.group(group).runs:
            if run not in self.rows:
                yield Fault(group, f"a group whose run {run} is missing")

    def _annotations(self) -> Iterator[Fault]:
        for annotation in self.store.annotations():
            where = f"{annotation.run}@{annotation.seq}"
            yield from guarded(where, partial(self._annotation, annotation))

    def _small(self) -> Iterator[Fault]:
        """Each is read once: what cannot be read is a fault."""
        self.store.tags()
        for method, cursor in self.store.outcome_places():
            seeds, outcomes, costs = self.store.outcomes(method, cursor)
            if not len(seeds) == len(outcomes) == len(costs):
                yield Fault(f"{method} {cursor}", "seeds, outcomes and costs that are not of as many samples")
        for training in self.store.trainings():
            self.store.metrics(training)
        for id, report in self.store.reports().items():
            if not report.low <= report.estimate <= report.high:
                yield Fault(f"report {id}", "its estimate is not within its interval")

    def _content(self) -> Iterator[Fault]:
        self.blobs = set(self.store.blob_keys())
        for key in self.blobs:
            yield from guarded(key.hex(), partial(self._blob, key))

    def _blob(self, key: bytes) -> Iterator[Fault]:
        if blob_key(self.store.blob(key)) != key:
            yield Fault(key.hex(), "a blob that is not what its key says")

    def _messages(self) -> Iterator[Fault]:
        try:
            for node in self.store.each_node():
                self._see(node)
            for node in self.store.each_node():
                yield from guarded(node.key.hex(), partial(self._node, node))
            return
        except _DAMAGE:  # a row that cannot be read: the others are read one by one
            keys = self.store.node_keys()
        for key in keys:
            yield from guarded(_hex(key), partial(self._see_one, key))
        for key in [*self.nodes]:
            yield from guarded(key.hex(), partial(self._node_of, key))

    def _see(self, node: Node) -> None:
        self.nodes[node.key] = Seen(node.parent, node.text_key, None if node.ids is None else len(node.ids))

    def _see_one(self, key: bytes) -> Iterator[Fault]:
        self._see(self.store.node(key))
        return iter(())

    def _node_of(self, key: bytes) -> Iterator[Fault]:
        yield from self._node(self.store.node(key))

    def _node(self, node: Node) -> Iterator[Fault]:
        key, above = node.key, self.nodes.get(node.parent)
        if node.parent and above is None:
            yield Fault(key.hex(), f"a node whose parent {node.parent.hex()} is missing")
        elif key.hex() in self.tombs:
            if node.message.text not in ("", REDACTED) or node.ids is not None:
                yield Fault(key.hex(), "a message that was redacted and holds content")
        else:
            for what in node_faults(node, above.text_key if above else b""):
                yield Fault(key.hex(), f"a node that {what}")

    def _run(self, row: RunRow) -> Iterator[Fault]:
        yield from (Fault(row.id, what) for what in lineage_faults(row))
        for segment in row.lineage:
            if segment.run not in self.rows:
                yield Fault(row.id, f"shares Calls of run {segment.run}, which is missing")
                return
        shared = row.lineage[-1].stop if row.lineage else 0
        path = self.store.calls(row.id)
        if shared > len(path):
            yield Fault(row.id, f"shares {shared} Calls, of which {len(path)} are there")
        for rule in RULES:
            yield from (Fault(f"{row.id}@{seq}", what) for seq, what in rule(path) if seq >= shared)
        last = path[:shared][-1:]
        prev = self.issues.get((last[0].run, last[0].seq), b"") if last else b""
        for call in path[shared:]:
            here = f"{row.id}@{call.seq}"
            buried = self.tombs.get(here)
            prev = self.issues[row.id, call.seq] = issue_key(prev, call) if buried is None else buried
            if buried is not None and leftovers(call):
                yield Fault(here, "a Call that was redacted and holds content")
            if buried is None and call.done >= 0 and call.key and call.key != call_key(prev, call):
                yield Fault(here, "its key is not that of its content and of what came before it")
            yield from (Fault(here, what) for what in self._references(call))

    def _references(self, call: Call) -> Iterator[str]:
        """What a Call names must be there, and its reply must fit it."""
        if call.child and call.child not in self.rows:
            yield f"its child run {call.child} is missing"
        if call.snapshot and call.snapshot not in self.blobs:
            yield f"its snapshot {call.snapshot.hex()} is missing"
        if call.node_in and call.node_in not in self.nodes:
            yield f"the node it was asked at, {call.node_in.hex()}, is missing"
        if call.node_out:
            reply = self.nodes.get(call.node_out)
            if reply is None:
                yield f"its reply {call.node_out.hex()} is missing"
            else:
                yield from reply_faults(call, reply.parent, reply.tokens)

    def _annotation(self, a: Annotation) -> Iterator[Fault]:
        if a.target in ("call", "tokens", "run") and a.run not in self.rows:
            yield Fault(a.run, f"{a.method} annotates a run that is missing")
        elif a.target in ("call", "tokens"):
            if not any((run, a.seq) in self.issues for run in (a.run, *(s.run for s in self.rows[a.run].lineage))):
                yield Fault(f"{a.run}@{a.seq}", f"{a.method} annotates a Call that is missing")
            elif a.target == "tokens" and a.values is not None:
                reply = self.nodes.get(self.store.calls(a.run, a.seq, a.seq + 1)[0].node_out)
                if reply is not None and reply.tokens not in (None, len(a.values)):
                    yield Fault(f"{a.run}@{a.seq}", f"{a.method} has {len(a.values)} values for {reply.tokens} tokens")


def keys_checked(store: Tables) -> Comparisons:
    """How many keys of Calls and messages there are, and how many of them can be derived: not those of tombstones."""
    runs = {*guarded_list(store.run_ids)}
    calls = sum(len(guarded_list(partial(_own, store, run))) for run in runs)
    made = len(guarded_list(store.node_keys)) + calls
    tombs = guarded_list(lambda: [*store.tombstones()])
    gone = [where for where in tombs if "@" in where and where.partition("@")[0] in runs]
    keys = [bytes.fromhex(where) for where in tombs if re.fullmatch("[0-9a-f]{32}", where)]
    whole = made - len(gone) - len(store.node_keys(keys))
    why = "the store holds no recorded calls" if not made else "all that it recorded is redacted"
    return Comparisons("keys of calls and messages with those of their content", made, max(whole, 0), why_not=why)


def _own(store: Tables, run: str) -> list[bytes]:
    """Keys of the Calls that a run issued itself."""
    lineage = store.row(run).lineage
    return store.keys(run)[lineage[-1].stop if lineage else 0 :]


def guarded_list(read: Callable[[], list[T]]) -> list[T]:
    """What is read, nothing where it cannot be: what is wrong with the rows is told elsewhere."""
    try:
        return read()
    except _DAMAGE:
        return []


def _hex(key: object) -> str:
    return key.hex() if isinstance(key, bytes) else short(str(key), 40)


def faults(store: Tables) -> Iterator[Fault]:
    """Everything wrong with a store; nothing for a sound one."""
    yield from Proof(store).faults()

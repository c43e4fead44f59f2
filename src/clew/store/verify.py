"""Proof of a store: every key is derived anew, and every rule of a legal record (core/legality.py) is checked.

``clew verify`` prints the faults. Redacted content is passed over: its key stays, with nothing left to derive it from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from clew.core.comparisons import Comparisons
from clew.core.keys import blob_key
from clew.core.legality import RULES, call_key, issue_key, lineage_faults, node_faults, reply_faults
from clew.core.records import Annotation, Call, Fault, RunRow
from clew.store.items.fold import altered
from clew.store.protocol import Tables
from clew.store.redaction import own_calls


class Seen(NamedTuple):
    """What later checks need of a node; ``tokens`` is None where it has no ids."""

    parent: bytes
    text_key: bytes
    tokens: int | None


class Proof:
    """One pass over a store. ``issues``: the issue digest of each Call, by the run that issued it and seq."""

    def __init__(self, store: Tables) -> None:
        self.store = store
        self.tombs = store.tombstones()
        self.rows: dict[str, RunRow] = {run: store.row(run) for run in store.run_ids()}
        self.nodes: dict[bytes, Seen] = {}
        self.blobs = set(store.blob_keys())
        self.issues: dict[tuple[str, int], bytes] = {}

    def faults(self) -> Iterator[Fault]:
        """Everything wrong: where (``run@seq``, or a node or blob by hex key), and a sentence."""
        yield from self._content()
        rows = self.rows
        for run in sorted(rows, key=lambda run: (len(rows[run].lineage), rows[run].created)):  # parents before forks
            yield from self._run(rows[run])
        for group in self.store.groups():
            for run in self.store.group(group).runs:
                if run not in rows:
                    yield Fault(group, f"a group whose run {run} is missing")
        for annotation in self.store.annotations():
            yield from self._annotation(annotation)
        yield from (Fault(*found) for found in altered(self.store))

    def _content(self) -> Iterator[Fault]:
        for key in self.blobs:
            if blob_key(self.store.blob(key)) != key:
                yield Fault(key.hex(), "a blob that is not what its key says")
        for node in self.store.each_node():
            self.nodes[node.key] = Seen(node.parent, node.text_key, None if node.ids is None else len(node.ids))
        for node in self.store.each_node():
            above = self.nodes.get(node.parent)
            if node.parent and above is None:
                yield Fault(node.key.hex(), f"a node whose parent {node.parent.hex()} is missing")
            elif node.key.hex() not in self.tombs:
                for what in node_faults(node, above.text_key if above else b""):
                    yield Fault(node.key.hex(), f"a node that {what}")

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
    made = len(store.node_keys()) + sum(len(own_calls(store, store.row(run))) for run in store.run_ids())
    tombs, runs = store.tombstones(), {*store.run_ids()}
    gone = [where for where in tombs if "@" in where and where.partition("@")[0] in runs]
    whole = made - len(gone) - len(store.node_keys([bytes.fromhex(where) for where in tombs if "@" not in where]))
    why = "the store holds no recorded calls" if not made else "all that it recorded is redacted"
    return Comparisons("keys of calls and messages with those of their content", made, max(whole, 0), why_not=why)


def faults(store: Tables) -> Iterator[Fault]:
    """Everything wrong with a store; nothing for a sound one."""
    yield from Proof(store).faults()

"""``MemoryStore``: a store of plain dictionaries, the reference for every other store.

Tests and suites of planted cases run on it. Nothing is written to disk.
"""

from __future__ import annotations

import math
import pickle
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from clew.core.errors import StoreError, UnknownName
from clew.core.keys import blob_key
from clew.core.records import Annotation, Call, Fault, GroupRow, Node, Report, RunRow
from clew.store.base import Keeper
from clew.store.entry_list import EntryList
from clew.store.names import check_name, new_id
from clew.store.owners import held
from clew.store.protocol import (
    Burial,
    Folds,
    Outcomes,
    Page,
    Place,
    Range,
    Summary,
    Tables,
    check_annotation,
    pack_outcomes,
    place,
    ranges,
    rewards,
)
from clew.store.query import choose, parse, reaches, value_list
from clew.store.run import mean
from clew.store.sql.row_codec import check_call
from clew.store.summary import document, fold, says, summarise


class MemoryStore(EntryList, Keeper):
    """A store that lives as long as the object. Writes are visible at once; ``commit`` has nothing left to do."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ":memory:"
        self.commits = 0
        self._lock = threading.RLock()
        self._nodes: dict[bytes, Node] = {}
        self._blobs: dict[bytes, bytes] = {}
        self._rows: dict[str, RunRow] = {}
        self._calls: dict[str, dict[int, Call]] = {}
        self._groups: dict[str, GroupRow] = {}
        self._annotations: dict[str, dict[Place, Annotation]] = {}  # by run
        self._leases: dict[str, tuple[str, float]] = {}
        self._tags: dict[str, list[str]] = {}
        self._reports: dict[str, Report] = {}
        self._outcomes: dict[tuple[str, str], Outcomes] = {}
        self._tombstones: dict[str, bytes] = {}
        self._metrics: dict[str, dict[int, dict[str, float]]] = {}
        self._tick = 0
        self._touched: dict[str, int] = {}  # runs that changed, by the tick of their last change, latest last

    # content

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        with self._lock:
            for node in nodes:
                self._nodes.setdefault(node.key, node)

    def node(self, key: bytes) -> Node:
        try:
            return self._nodes[key]
        except KeyError:
            raise UnknownName(f"no node {key.hex() or '(empty key)'} in {self.path}") from None

    def thread(self, tip: bytes, stop: bytes = b"", limit: int | None = None) -> list[Node]:
        path: list[Node] = []
        while tip not in (b"", stop) and (limit is None or len(path) < limit):
            path.append(self.node(tip))
            tip = path[-1].parent
        return path[::-1]

    def nodes(self, keys: Iterable[bytes]) -> dict[bytes, Node]:
        return {key: self._nodes[key] for key in dict.fromkeys(keys) if key in self._nodes}

    def put_blob(self, data: bytes) -> bytes:
        key = blob_key(data)
        self._blobs[key] = bytes(data)
        return key

    def blob(self, key: bytes) -> bytes:
        try:
            return self._blobs[key]
        except KeyError:
            raise UnknownName(f"no blob {key.hex()} in {self.path}") from None

    # runs

    def put_run(self, row: RunRow) -> None:
        with self._lock:
            self._rows.setdefault(row.id, row)
            self._calls.setdefault(row.id, {})
            self._touch(row.id)

    def row(self, run: str) -> RunRow:
        try:
            return self._rows[run]
        except KeyError:
            raise UnknownName(f"no run {run!r} in {self.path}") from None

    def run_ids(self) -> list[str]:
        with self._lock:
            return list(self._rows)

    def put_call(self, run: str, call: Call, *, owner: str = "") -> None:
        check_call(run, call)
        with self._lock:
            if owner:
                self._check_lease(run, owner)
            own = self._calls.get(run)
            if own is None:
                raise UnknownName(f"no run {run!r} in {self.path}", remedy="put_run comes before put_call.")
            old = own.get(call.seq)
            if old is not None and old.done >= 0 and old.key != call.key:
                raise StoreError(
                    "a completed Call is never rewritten", remedy="Fork the run to change it.", at=f"{run}@{call.seq}"
                )
            own[call.seq] = call
            self._touch(run)

    def calls(self, run: str, start: int = 0, stop: int | None = None) -> list[Call]:
        with self._lock:
            row = self.row(run)
            shared = row.lineage[-1].stop if row.lineage else 0
            found: list[Call] = []
            for segment in row.lineage:
                low, high = max(start, segment.start), segment.stop if stop is None else min(stop, segment.stop)
                own = self._calls.get(segment.run, {})
                found += [own[seq] for seq in range(low, high) if seq in own]
            own = self._calls[run]
            found += [own[seq] for seq in sorted(own) if seq >= max(start, shared) and (stop is None or seq < stop)]
            return found

    def conversations(self, run: str) -> list[int]:
        return sorted({call.conversation for call in self.calls(run) if call.kind == "ask"})

    def keys(self, run: str) -> list[bytes]:
        return [call.key for call in self.calls(run)]

    def numbers(self, run: str, name: str) -> dict[int, float]:
        column = {"logprob": "logprobs", "entropy": "entropies", "reward": "reward"}[name]
        held_ = ((call.seq, getattr(call, column)) for call in self.calls(run))
        found = {seq: value if name == "reward" else mean(value) for seq, value in held_}
        return {seq: value for seq, value in found.items() if value is not None}

    def put_group(self, row: GroupRow) -> None:
        self._groups[row.id] = row

    def group(self, group: str) -> GroupRow:
        try:
            return self._groups[group]
        except KeyError:
            raise UnknownName(f"no group {group!r} in {self.path}") from None

    def groups(self) -> list[str]:
        return list(self._groups)

    def group_names(self) -> dict[str, str]:
        return {id: row.name for id, row in self._groups.items()}

    def forks(self) -> dict[str, str]:
        with self._lock:
            return {id: row.parent for id, row in self._rows.items() if row.parent}

    # annotations and claims

    def annotate(self, rows: Iterable[Annotation]) -> None:
        with self._lock:
            for row in rows:
                check_annotation(row)
                self._annotations.setdefault(row.run, {})[place(row)] = row

    def annotations(
        self,
        runs: Sequence[str] | None = None,
        method: str | None = None,
        target: str | None = None,
        scope: str | None = None,
        seqs: tuple[int, int] | None = None,
    ) -> list[Annotation]:
        with self._lock:
            return [
                a
                for run in (self._annotations if runs is None else dict.fromkeys(runs))
                for a in self._annotations.get(run, {}).values()
                if (method is None or a.method == method)
                and (target is None or a.target == target)
                and (scope is None or a.scope == scope)
                and (seqs is None or seqs[0] <= a.seq < seqs[1])
            ]

    def ranges(self, run: str) -> list[Range]:
        return ranges(self.annotations([run]))

    def annotated(self, method: str) -> set[str]:
        return {a.run for a in self.annotations(method=method)}

    def valued(self, method: str, op: str, bound: float) -> set[str]:
        """Runs (and groups) of which a method has a value that compares so with a number, on a token or a Call too."""
        given = ((a.run, value_list(a)) for a in self.annotations(method=method))
        return {run for run, values in given if reaches(values, op, bound)}

    def put_report(self, report: Report, id: str = "") -> str:
        name = id or new_id()
        self._reports.setdefault(name, report)
        return name

    def reports(self) -> dict[str, Report]:
        return dict(self._reports)

    def put_outcomes(
        self, method: str, cursor: str, seeds: Sequence[int], outcomes: Sequence[float], costs: Sequence[float]
    ) -> None:
        self._outcomes[method, cursor] = pack_outcomes(seeds, outcomes, costs)

    def outcomes(self, method: str, cursor: str) -> Outcomes:
        try:
            return self._outcomes[method, cursor]
        except KeyError:
            raise UnknownName(f"no outcomes of {method!r} at {cursor}") from None

    def outcome_places(self) -> list[tuple[str, str]]:
        return list(self._outcomes)

    def put_metrics(self, training: str, step: int, values: Mapping[str, float]) -> None:
        with self._lock:
            kept = {name: float(value) for name, value in values.items() if math.isfinite(value)}
            self._metrics.setdefault(check_name(training), {}).setdefault(step, {}).update(kept)

    def metrics(self, training: str) -> dict[int, dict[str, float]]:
        with self._lock:
            return {step: dict(values) for step, values in sorted(self._metrics.get(training, {}).items())}

    def trainings(self) -> list[str]:
        return sorted(self._metrics)

    def progress(self) -> dict[str, tuple[int, int]]:
        with self._lock:
            return {name: (max(m, default=-1), sum(map(len, m.values()))) for name, m in sorted(self._metrics.items())}

    # names and leases

    def tag(self, run: str, name: str) -> None:
        self.row(run)
        with self._lock:
            runs = self._tags.setdefault(check_name(name), [])
            if run not in runs:
                runs.append(run)

    def untag(self, run: str, name: str) -> None:
        with self._lock:
            if run not in self._tags.get(name, ()):
                raise UnknownName(f"run {run} has no tag {name!r}")
            self._tags[name].remove(run)
            if not self._tags[name]:
                del self._tags[name]

    def tags(self, run: str | None = None) -> dict[str, list[str]]:
        with self._lock:
            return {name: list(runs) for name, runs in sorted(self._tags.items()) if run is None or run in runs}

    def lease(self, run: str, owner: str, seconds: float) -> None:
        self.row(run)
        with self._lock:
            holder, until = self._leases.get(run, (owner, 0.0))
            if holder != owner and until > time.time():
                raise held(run, holder, until)
            self._leases[run] = (owner, time.time() + seconds)

    def release(self, run: str, owner: str) -> None:
        with self._lock:
            if self._leases.get(run, ("", 0.0))[0] == owner:
                del self._leases[run]

    def _check_lease(self, run: str, owner: str) -> None:
        holder, until = self._leases.get(run, (owner, 0.0))
        if holder != owner:
            raise held(run, holder, until)

    def commit(self) -> None:
        """Count it: every write was visible when it was made."""
        self.commits += 1

    # upkeep and search

    def summaries(self) -> list[Summary]:
        return [self.summary(run) for run in self.run_ids()]

    def summary(self, run: str) -> Summary:
        return summarise(self.row(run), self.calls(run))._replace(reward=rewards(self, [run]).get(run))

    def page(self, query: str = "", limit: int | None = None, start: int = 0) -> Page:
        found = choose(self, parse(query), self.summaries())
        return Page(found[start : None if limit is None else start + limit], len(found))

    def folds(self, query: str = "", limit: int | None = None, start: int = 0) -> Folds:
        rows = self.summaries()
        return fold(rows, choose(self, parse(query), rows), limit, start)

    def changed(self, since: int | None = None) -> tuple[int, list[str]]:
        with self._lock:
            found = [] if since is None else [run for run, tick in self._touched.items() if tick > since]
            return self._tick, found

    def _touch(self, run: str) -> None:
        """Note that a run changed, as the latest of all."""
        self._tick += 1
        self._touched.pop(run, None)
        self._touched[run] = self._tick

    def search(self, phrase: Sequence[str]) -> set[str]:
        return {run for run in self._rows if says(document(self, run), phrase)}

    def each_node(self, but: Tables | None = None) -> Iterator[Node]:
        held = set(but.node_keys(list(self._nodes))) if but is not None else set()
        return iter([node for node in list(self._nodes.values()) if node.key not in held])

    def node_keys(self, among: Sequence[bytes] | None = None) -> list[bytes]:
        return list(self._nodes) if among is None else [key for key in among if key in self._nodes]

    def blob_keys(self, among: Sequence[bytes] | None = None) -> list[bytes]:
        return list(self._blobs) if among is None else [key for key in among if key in self._blobs]

    def leased(self) -> list[str]:
        return [run for run, (_, until) in self._leases.items() if until > time.time()]

    def holding(self, words: Sequence[bytes]) -> dict[str, int]:
        """How many rows of each table hold one of some byte strings."""
        tables: dict[str, Mapping[Any, Any]] = {
            "node": self._nodes,
            "blob": self._blobs,
            "run": self._rows,
            "call": self._calls,
        }
        tables |= {"grp": self._groups, "annotation": self._annotations, "report": self._reports}
        tables |= {"entry": self._entries, "tag": self._tags, "outcome": self._outcomes, "metric": self._metrics}
        packed = {name: [pickle.dumps(pair) for pair in rows.items()] for name, rows in tables.items()}
        found = {name: sum(any(word in row for word in words) for row in rows) for name, rows in packed.items()}
        return {name: count for name, count in found.items() if count}

    def tombstones(self) -> dict[str, bytes]:
        return dict(self._tombstones)

    def used_blobs(self, runs: set[str], nodes: Container[bytes] | None = None) -> set[bytes]:
        return {call.snapshot for run in runs for call in self._calls[run].values()} - {b""}

    def bury(self, burial: Burial) -> None:
        with self._lock:
            for node in burial.nodes:
                self._nodes[node.key] = node
                self._tombstones[node.key.hex()] = b""
            loose = {self._calls[run][call.seq].snapshot for run, call, _ in burial.calls}
            for run, call, issue in burial.calls:
                self._calls[run][call.seq] = call
                self._tombstones[f"{run}@{call.seq}"] = issue
            self._rows.update((row.id, row) for row in burial.rows)
            self._reports |= burial.reports
            self.replace_entries(burial.entries)
            loose |= {*burial.blobs}
            for key in loose - self.used_blobs(set(self._rows)):
                self._blobs.pop(key, None)

    def remove(self, runs: Iterable[str], nodes: Iterable[bytes], blobs: Iterable[bytes]) -> None:
        gone, lost = set(runs), set(nodes)
        with self._lock:
            for run in gone:
                self._rows.pop(run, None)
                self._touched.pop(run, None)
                self._calls.pop(run, None)
                self._leases.pop(run, None)
            for name, runs_ in self.tags().items():
                for run in gone.intersection(runs_):
                    self.untag(run, name)
            self._annotations = {
                run: {at: a for at, a in rows.items() if a.node not in lost}
                for run, rows in self._annotations.items()
                if run not in gone
            }
            self._nodes = {key: node for key, node in self._nodes.items() if key not in lost}
            for key in blobs:
                self._blobs.pop(key, None)

    def check(self) -> list[Fault]:
        return []

    def rebuild(self) -> None:
        """Make every summary once, as each read does: nothing derived is kept."""
        self.summaries()

    def close(self) -> None:
        """Give every lease up; the content lives as long as the object."""
        self._leases.clear()

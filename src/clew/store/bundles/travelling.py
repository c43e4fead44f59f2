"""Records on their way from a worker to the one process that writes the store.

A worker keeps what its runs record in an ``Outbox``. The executor takes a ``Bundle`` from it, carries it to the writer
and files it there with ``file_bundle``. A bundle may be filed twice: records are known by their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.core.errors import StoreError
from clew.core.records import Annotation, Call, GroupRow, Node, RunRow
from clew.core.values import Message, Usage
from clew.store.memory import MemoryStore
from clew.store.protocol import Tables

_ARRAYS = tuple(Call._fields.index(name) for name in ("logprobs", "entropies"))
_USAGE = Call._fields.index("usage")


class Bundle(NamedTuple):
    """What runs recorded since the bundle before: rows of child runs, Calls, nodes, snapshots, annotations."""

    rows: Sequence[RunRow] = ()
    calls: Sequence[tuple[str, Call]] = ()  # with the run that each was put for
    nodes: Sequence[Node] = ()
    blobs: Sequence[bytes] = ()
    annotations: Sequence[Annotation] = ()
    groups: Sequence[GroupRow] = ()

    def __reduce__(self) -> tuple[Callable[..., Bundle], tuple[object, ...]]:
        """As plain tuples and bytes: pickling named tuples and small arrays one by one takes four times as long."""
        calls = [(run, *_plain(call)) for run, call in self.calls]
        nodes = [(*node[:2], tuple(node.message), *node[3:]) for node in self.nodes]
        return _again, (self.rows, calls, nodes, self.blobs, self.annotations, self.groups)


def _plain(call: Call) -> tuple[object, ...]:
    return tuple(
        value.tobytes() if type(value) is np.ndarray else tuple(value) if type(value) is Usage else value
        for value in call
    )


def _again(
    rows: Sequence[RunRow],
    calls: Sequence[tuple[Any, ...]],
    nodes: Sequence[tuple[Any, ...]],
    blobs: Sequence[bytes],
    annotations: Sequence[Annotation],
    groups: Sequence[GroupRow],
) -> Bundle:
    made_calls = [(run, _call(fields)) for run, *fields in calls]
    made_nodes = [Node(key, parent, Message._make(message), *rest) for key, parent, message, *rest in nodes]
    return Bundle(rows, made_calls, made_nodes, blobs, annotations, groups)


def _call(fields: list[Any]) -> Call:
    for at in _ARRAYS:
        if fields[at] is not None:
            fields[at] = np.frombuffer(fields[at], np.float32)
    fields[_USAGE] = Usage._make(fields[_USAGE])
    return Call._make(fields)


def file_bundle(store: Tables, bundle: Bundle) -> None:
    """Put all of a bundle into a store; the caller commits.

    Raises:
        StoreError: a completed Call of the store would be rewritten.
    """
    for row in bundle.rows:
        store.put_run(row)
    for group in bundle.groups:
        store.put_group(group)
    store.put_nodes(bundle.nodes)
    for blob in bundle.blobs:
        store.put_blob(blob)
    for run, call in bundle.calls:
        store.put_call(run, call)
    store.annotate(bundle.annotations)


class Outbox(MemoryStore):
    """A store in memory that keeps a journal of what is written to it, for another store to be told.

    Args:
        through: gets the bundle at each ``commit`` that follows the intent of an effect, and returns when the other
            store has committed it: what must be known to have begun is known there before it begins.
    """

    def __init__(self, through: Callable[[Bundle], None]) -> None:
        super().__init__()
        self.through = through
        self._loading = False
        self._forget()

    def _forget(self) -> None:
        self._new_rows: list[RunRow] = []
        self._new_calls: dict[tuple[str, int], Call] = {}
        self._new_nodes: list[Node] = []
        self._new_blobs: list[bytes] = []
        self._new_annotations: list[Annotation] = []
        self._begun = False  # whether an intent is among the new Calls that no result has followed

    def load(self, bundle: Bundle) -> None:
        """Put what the other store holds already."""
        self._loading = True
        try:
            file_bundle(self, bundle)
        finally:
            self._loading = False

    def take(self) -> Bundle:
        """What was written since it was taken last."""
        calls = [(run, call) for (run, _), call in self._new_calls.items()]
        found = Bundle(self._new_rows, calls, self._new_nodes, self._new_blobs, self._new_annotations)
        self._forget()
        return found

    def commit(self) -> None:
        """As ``MemoryStore.commit``; an effect that is about to begin is told first."""
        super().commit()
        if self._begun and any(call.done < 0 for call in self._new_calls.values()):
            self.through(self.take())

    def put_run(self, row: RunRow) -> None:
        if not self._loading and row.id not in self._rows:
            self._new_rows.append(row)
        super().put_run(row)

    def put_call(self, run: str, call: Call, *, owner: str = "") -> None:
        if call.kind == "recall" and not self._loading:
            raise StoreError(
                f"run {run} recalls, and a worker cannot reach the memories of the store",
                remedy="Leave out --workers (executor=) for agents that remember.",
                at=f"{run}@{call.seq}",
            )
        super().put_call(run, call, owner=owner)
        if not self._loading:
            self._new_calls[run, call.seq] = call
            self._begun = self._begun or call.done < 0

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        nodes = list(nodes)
        if not self._loading:
            self._new_nodes += [node for node in nodes if node.key not in self._nodes]
        super().put_nodes(nodes)

    def put_blob(self, data: bytes) -> bytes:
        known = len(self._blobs)
        key = super().put_blob(data)
        if not self._loading and len(self._blobs) > known:
            self._new_blobs.append(bytes(data))
        return key

    def annotate(self, rows: Iterable[Annotation]) -> None:
        rows = list(rows)
        super().annotate(rows)
        if not self._loading:
            self._new_annotations += rows


def whole(store: Tables, copied: Tables, runs: Iterable[str]) -> Bundle:
    """Everything that ``copied``, a store of chosen runs, holds, with what ``store`` says of ``runs`` as wholes."""
    ids = copied.run_ids()
    calls = [(run, call) for run in ids for call in copied.calls(run) if call.run == run]
    blobs = [copied.blob(key) for key in copied.blob_keys()]
    said = store.annotations(list(runs), target="run")
    return Bundle([copied.row(run) for run in ids], calls, list(copied.each_node()), blobs, said)

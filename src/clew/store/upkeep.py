"""Upkeep of a store: merging in another store, garbage collection.

``Keeper.merge`` and ``gc`` call this. Keys never change, so that forks and chains still verify.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from clew.core.errors import LeaseHeld, StoreError, UnknownName
from clew.core.records import Annotation, Cursor, RunRow
from clew.store import labels
from clew.store.entries import sources, take_entries
from clew.store.names import some
from clew.store.protocol import Burial, Tables, place
from clew.store.redaction import Withheld, own_calls, tree_of, withheld

T = TypeVar("T")


class Garbage(NamedTuple):
    """What nothing reaches: run ids, how many Calls they hold, and keys of nodes and blobs."""

    runs: list[str]
    calls: int
    nodes: list[bytes]
    blobs: list[bytes]

    def __str__(self) -> str:
        return f"{len(self.runs)} runs with {self.calls} Calls, {len(self.nodes)} nodes, {len(self.blobs)} blobs"


# union


def merge(store: Tables, other: Tables, *, erase: bool = True) -> dict[str, int]:
    """Take in everything ``other`` holds, by global id. Running it twice changes nothing; tombstones win.

    What ``store`` holds besides is not read: a small store is merged into a large one in the time of the small. An
    older copy does not bring back what was redacted in ``store``.

    Args:
        erase: whether what was redacted there is redacted here too, where ``store`` still holds its content.

    Raises:
        StoreError: both hold a Call under one id with different content. Nothing was taken.
    """
    other.commit()
    spared = set() if erase else {where for where in other.tombstones() if _whole(store, where)}
    theirs = other.run_ids()
    mine = {run for run in theirs if _holds(store.row, run)}
    done, left = {run for run in mine if store.keys(run) == other.keys(run)}, withheld(store, other)
    _agree(store, other, mine - done)
    new = dict.fromkeys(("runs", "calls", "nodes", "blobs", "groups", "annotations", "tags", "reports"), 0)
    for keys in _lots(other.blob_keys()):
        held = set(store.blob_keys(keys))
        for key in keys:
            if key not in held and key not in left.blobs:
                store.put_blob(other.blob(key))
                new["blobs"] += 1
    for fresh in _lots(other.each_node(store)):
        store.put_nodes(left.nodes.get(node.key, node) for node in fresh)
        new["nodes"] += len(fresh)
    for run in theirs:
        if run in done:
            continue
        row = other.row(run)
        if run not in mine:
            store.put_run(left.rows.get(run, row))
            new["runs"] += 1
        have = {c.seq: c for c in own_calls(store, row)} if run in mine else {}
        for call in own_calls(other, row):
            if call.seq not in have or (have[call.seq].done < 0 <= call.done):
                store.put_call(run, left.calls.get((run, call.seq), call))
                new["calls"] += 1
    for group in map(other.group, other.groups()):
        known = store.group(group.id).runs if _holds(store.group, group.id) else None
        if known is None or not set(group.runs) <= set(known):  # a portable run holds a group's members in part
            store.put_group(group._replace(runs=tuple(dict.fromkeys([*(known or ()), *group.runs]))))
            new["groups"] += known is None
    values: dict[str, list[Annotation]] = {}  # by the run or group they are filed under
    for value in other.annotations():
        values.setdefault(value.run, []).append(value)
    for owners in _lots(values):
        present = {place(value) for value in store.annotations(owners)}
        absent = [value for owner in owners for value in values[owner] if place(value) not in present]
        store.annotate(left.annotations.get(place(value), value) for value in absent)
        new["annotations"] += len(absent)
    store.commit()
    _keep_out(store, left)
    _merge_names(store, other, new)
    _merge_tombstones(store, other, spared)
    kept_out = len(left.nodes) + len(left.calls)
    said = {"messages and calls that stay redacted": kept_out} if kept_out else {}
    return new | {"entries": take_entries(store, other)} | said


def _keep_out(store: Tables, left: Withheld) -> None:
    """Put tombstones on what came in without content."""
    tombs = store.tombstones()
    nodes = [node for key, node in left.nodes.items() if key.hex() not in tombs and store.node_keys([key])]
    calls = [
        (run, call, left.issues[run, seq]) for (run, seq), call in left.calls.items() if f"{run}@{seq}" not in tombs
    ]
    if nodes or calls:
        store.bury(Burial(nodes, calls, []))


def _whole(store: Tables, where: str) -> bool:
    """Whether a store has what a tombstone of another stands on."""
    if "@" not in where:
        return bool(store.node_keys([bytes.fromhex(where)]))
    place = Cursor.parse(where)
    if not _holds(store.row, place.run):
        return False
    return any(call.run == place.run and call.done >= 0 for call in store.calls(place.run, place.seq, place.seq + 1))


def _holds(read: Callable[[str], object], name: str) -> bool:
    """Whether a store has what is read by that name."""
    try:
        read(name)
    except UnknownName:
        return False
    return True


def _lots(items: Iterable[T], size: int = 500) -> Iterator[list[T]]:
    left = iter(items)
    while lot := list(islice(left, size)):
        yield lot


def _agree(store: Tables, other: Tables, runs: set[str]) -> None:
    for run in sorted(runs):
        have = {c.seq: c.key for c in own_calls(store, store.row(run)) if c.done >= 0}
        for call in own_calls(other, other.row(run)):
            if call.done >= 0 and have.get(call.seq, call.key) != call.key:
                raise StoreError(
                    f"{store.path} and {other.path} differ",
                    remedy="One of them was altered; run `clew store verify` on both.",
                    at=f"{run}@{call.seq}",
                )


def _merge_names(store: Tables, other: Tables, new: dict[str, int]) -> None:
    tags = store.tags()
    for name, runs in other.tags().items():
        for run in runs:
            if run not in tags.get(name, ()):
                store.tag(run, name)
                new["tags"] += 1
    reports = store.reports()
    for id, report in other.reports().items():
        if id not in reports:
            store.put_report(report, id)
            new["reports"] += 1
    places = set(store.outcome_places())
    for where in other.outcome_places():
        if where not in places:
            seeds, outcomes, costs = other.outcomes(*where)
            store.put_outcomes(*where, seeds.tolist(), outcomes.tolist(), costs.tolist())
    for training in other.trainings():
        known = store.metrics(training)
        for step, values in other.metrics(training).items():
            store.put_metrics(training, step, values | known.get(step, {}))


def _merge_tombstones(store: Tables, other: Tables, spared: set[str]) -> None:
    mine, nodes, calls = store.tombstones().keys() | spared, [], []
    for where, issue in other.tombstones().items():
        if where in mine:
            continue
        if "@" in where:
            cursor = Cursor.parse(where)
            calls.append((cursor.run, other.calls(cursor.run, cursor.seq, cursor.seq + 1)[0], issue))
        else:
            nodes.append(other.node(bytes.fromhex(where)))
    runs = {run for run, _, _ in calls}
    if nodes or calls:
        store.bury(Burial(nodes, calls, [other.row(run) for run in runs]))


# removal


def collect(store: Tables, dry_run: bool = True) -> Garbage:
    """What no tag, label, group, report, memory or live lease reaches, with the nodes and blobs that only it used.

    A run is also reached if a run that is kept shares its Calls, was forked from it, spawned it or was spawned by it.

    Raises:
        LeaseHeld: runs are being written and it is not a dry run.
    """
    store.commit()
    leased = store.leased()
    if leased and not dry_run:
        raise LeaseHeld(f"runs are being written: {some(leased)}", remedy="Stop those processes first.")
    rows = {run: store.row(run) for run in store.run_ids()}
    edge = [run for runs in store.tags().values() for run in runs] + sorted(store.annotated(labels.METHOD))
    edge += [run for group in store.groups() for run in store.group(group).runs]
    edge += [run for report in store.reports().values() for run in report.runs] + leased + sorted(sources(store))
    kept: set[str] = set()
    while edge:
        run = edge.pop()
        if run in rows and run not in kept:
            kept.add(run)
            edge += _reaches(store, rows[run])
    lost = [run for run in rows if run not in kept]
    keys = set[bytes]()
    for run in kept:
        keys |= tree_of(store, rows[run])
    cited = named(*(text for run in kept for text in (rows[run].changes, rows[run].config, rows[run].meta)))
    used = store.used_blobs(kept, keys) | cited
    garbage = Garbage(
        lost,
        sum(len(store.keys(run)) - (rows[run].lineage[-1].stop if rows[run].lineage else 0) for run in lost),
        [key for key in store.node_keys() if key not in keys],
        [key for key in store.blob_keys() if key not in used],
    )
    if not dry_run and (garbage.runs or garbage.nodes or garbage.blobs):
        store.remove(garbage.runs, garbage.nodes, garbage.blobs)
    return garbage


def named(*texts: str) -> set[bytes]:
    """Keys that texts name in hex; an edit names the vectors of its taps so."""
    return {bytes.fromhex(key) for text in texts for key in re.findall(r"\b[0-9a-f]{32}\b", text)}


def _reaches(store: Tables, row: RunRow) -> Iterator[str]:
    yield from (segment.run for segment in row.lineage)
    for cursor in filter(None, (row.parent, row.spawned_by)):
        yield cursor.partition("@")[0]
    yield from (call.child for call in store.calls(row.id) if call.child)

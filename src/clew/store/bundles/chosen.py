"""Copies of chosen runs: with all that a fork of them reads, or with all that a store knows of them.

Forks and audits work in a store aside (``copy_run``); a portable run is made from a ``bundle``. The store that is
copied from must never be written to.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from clew.core.records import Cursor
from clew.store.protocol import Burial, Tables
from clew.store.upkeep import named


def copy_run(into: Tables, store: Tables, run: str) -> None:
    """What a fork of a run reads: rows and Calls of its lineage, the nodes and snapshots they name, its children."""
    members = [run]
    for member in members:  # grows while it is read: a file of others may say that a run is its own child
        members += [child for child in dict.fromkeys(_copied(into, store, member)) if child not in members]


def _copied(into: Tables, store: Tables, run: str) -> Iterator[str]:
    """Copy one run; give its children."""
    row, calls = store.row(run), store.calls(run)
    for owner in (row, *(store.row(s.run) for s in row.lineage)):
        into.put_run(owner)
        for key in store.blob_keys(list(named(owner.changes))):
            into.put_blob(store.blob(key))
    tips: dict[bytes, None] = {}
    for call in calls:
        tips |= dict.fromkeys(key for key in (call.node_in, call.node_out) if key)
        if call.snapshot:
            into.put_blob(store.blob(call.snapshot))
        if call.child:
            yield call.child
    seen: set[bytes] = set()
    for tip in reversed(tips):
        if tip not in seen:
            path = store.thread(tip)
            seen.update(node.key for node in path)
            into.put_nodes(path)
    for call in calls:
        into.put_call(call.run, call)


def bundle(into: Tables, store: Tables, runs: Iterable[str], leave: Container[str] = ()) -> list[str]:
    """Copy runs with their annotations, tags, groups, reports and tombstones; gives the ids of all that were copied.

    With a run go those that it shares Calls with, its children, and the run that spawned it: a fork needs them. They go
    whole, since a part of a run is one that was interrupted, and would be resumed. A group keeps the members that were
    copied; what was annotated on it goes along if those are all. Memories and the figures of trainings stay behind.

    Args:
        leave: methods whose annotations stay behind too.
    """
    whole = list(dict.fromkeys(runs))
    for run in whole:  # grows while it is read
        row = store.row(run)
        near = [segment.run for segment in row.lineage]
        near += [Cursor.parse(row.spawned_by).run] if row.spawned_by else []
        near += [call.child for call in store.calls(run) if call.child]
        whole += [other for other in dict.fromkeys(near) if other not in whole]
    for run in whole:
        copy_run(into, store, run)
    into.commit()
    _values(into, store, whole, leave)
    _names(into, store, set(whole))
    _tombs(into, store)
    into.commit()
    return whole


def _values(into: Tables, store: Tables, whole: list[str], leave: Container[str]) -> None:
    """Annotations of what was copied, and the groups."""
    into.annotate(value for value in store.annotations(whole) if value.method not in leave)
    nodes = set(into.node_keys())
    into.annotate(value for value in store.annotations([""], target="node") if value.node in nodes)
    for group in map(store.group, store.groups()):
        members = tuple(run for run in group.runs if run in whole)
        if members:
            into.put_group(group._replace(runs=members))
            if members == group.runs:
                into.annotate(store.annotations([group.id], target="group"))


def _names(into: Tables, store: Tables, whole: set[str]) -> None:
    for name, runs in store.tags().items():
        for run in runs:
            if run in whole:
                into.tag(run, name)
    for id, report in store.reports().items():
        if report.runs and whole.issuperset(report.runs):
            into.put_report(report, id)
    for method, cursor in store.outcome_places():
        if cursor.partition("@")[0] in whole:
            seeds, outcomes, costs = store.outcomes(method, cursor)
            into.put_outcomes(method, cursor, seeds.tolist(), outcomes.tolist(), costs.tolist())


def _tombs(into: Tables, store: Tables) -> None:
    """What is redacted in the store has no content to copy; the copy says so too."""
    nodes, calls, runs = [], [], set(into.run_ids())
    for where, issue in store.tombstones().items():
        if "@" not in where:
            nodes += [into.node(key) for key in into.node_keys([bytes.fromhex(where)])]
        elif (place := Cursor.parse(where)).run in runs:
            found = into.calls(place.run, place.seq, place.seq + 1)
            calls += [(place.run, call, issue) for call in found if call.run == place.run]
    if nodes or calls:
        into.bury(Burial(nodes, calls, []))

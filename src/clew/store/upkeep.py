"""Upkeep of a store: merging in another store, redaction, garbage collection.

``Keeper.merge``, ``redact`` and ``gc`` call this. Keys never change, so that forks and chains still verify.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from clew.core.errors import BadInput, LeaseHeld, StoreError, UnknownName
from clew.core.legality import issue_key
from clew.core.records import Annotation, Call, Cursor, Node, RunRow
from clew.core.values import Message
from clew.store import labels
from clew.store.groups import family_of
from clew.store.items.fold import sources
from clew.store.items.union import take_entries
from clew.store.names import resolve, some
from clew.store.protocol import PACKED, Burial, Tables, place

T = TypeVar("T")
LONG = 32  # characters; a text this long is redacted wherever another contains it, a shorter one where it stands alone
GONE = '{"redacted":true}'  # `extra` of a redacted node's message


class Garbage(NamedTuple):
    """What nothing reaches: run ids, how many Calls they hold, and keys of nodes and blobs."""

    runs: list[str]
    calls: int
    nodes: list[bytes]
    blobs: list[bytes]

    def __str__(self) -> str:
        return f"{len(self.runs)} runs with {self.calls} Calls, {len(self.nodes)} nodes, {len(self.blobs)} blobs"


def own_calls(store: Tables, row: RunRow) -> list[Call]:
    """The Calls a run issued itself."""
    return store.calls(row.id, row.lineage[-1].stop if row.lineage else 0)


# union


def merge(store: Tables, other: Tables, *, erase: bool = True) -> dict[str, int]:
    """Take in everything ``other`` holds, by global id. Running it twice changes nothing; tombstones win.

    What ``store`` holds besides is not read: a small store is merged into a large one in the time of the small.

    Args:
        erase: whether what was redacted there is redacted here too, where ``store`` still holds its content.

    Raises:
        StoreError: both hold a Call under one id with different content. Nothing was taken.
    """
    other.commit()
    spared = set() if erase else {where for where in other.tombstones() if _whole(store, where)}
    theirs = other.run_ids()
    mine = {run for run in theirs if _holds(store.row, run)}
    done = {run for run in mine if store.keys(run) == other.keys(run)}  # the same Calls, of which none need be read
    _agree(store, other, mine - done)
    new = dict.fromkeys(("runs", "calls", "nodes", "blobs", "groups", "annotations", "tags", "reports"), 0)
    for keys in _lots(other.blob_keys()):
        held = set(store.blob_keys(keys))
        for key in keys:
            if key not in held:
                store.put_blob(other.blob(key))
                new["blobs"] += 1
    for fresh in _lots(other.each_node(store)):
        store.put_nodes(fresh)
        new["nodes"] += len(fresh)
    for run in theirs:
        if run in done:
            continue
        row = other.row(run)
        if run not in mine:
            store.put_run(row)
            new["runs"] += 1
        have = {c.seq: c for c in own_calls(store, row)} if run in mine else {}
        for call in own_calls(other, row):
            if call.seq not in have or (have[call.seq].done < 0 <= call.done):
                store.put_call(run, call)
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
        store.annotate(absent)
        new["annotations"] += len(absent)
    store.commit()
    _merge_names(store, other, new)
    _merge_tombstones(store, other, spared)
    return new | {"entries": take_entries(store, other)}


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


# tombstones


def redact(store: Tables, target: str, only: Collection[str] | None = None) -> list[str]:
    """Drop the content of a Call (``run@seq``; with it its reply) or of a node (hex key), and its repetitions.

    Repetitions are the same text in runs that share Calls with it or were spawned by them, as a message, an action,
    an observation, the task's prompt or what an edit gives; a text of 32 characters or more counts wherever another
    text contains it, the task's data and the agent's arguments too. Keys
    stay, so forks and chains still verify; annotations are not searched. ``only``: the texts whose repetitions count,
    where those are not all that the place says. Returns the places that got a tombstone.

    Raises:
        UnknownName, BadInput: no such Call or node, or one without content.
    """
    store.commit()
    rows = {run: store.row(run) for run in store.run_ids()}
    if re.fullmatch(r"[0-9a-f]{32}", target):
        node = store.node(bytes.fromhex(target))
        texts, family = _texts(node), {run for run in rows if node.key in _tree(store, rows[run])}
        calls, keys = set[tuple[str, int]](), {node.key}
    else:
        cursor = Cursor.parse(target)
        run = resolve(store, cursor.run)
        found = store.calls(run, cursor.seq, cursor.seq + 1)
        if not found or found[0].kind == "end":
            raise BadInput(f"{target} holds nothing to redact", remedy="Name an open, ask, act or note, as run@call.")
        call = found[0]
        texts = {*call.said, *PACKED.findall(call.extra)}
        keys = {call.node_out} - {b""}
        for key in keys:
            texts |= _texts(store.node(key))
        calls, family = {(call.run, call.seq)}, family_of(rows, call.run)
    texts = (texts if only is None else {*only}) - {""}
    burial = _burial(store, [rows[run] for run in rows if run in family], texts, keys, calls)
    store.bury(burial)
    gone = calls | {(run, call.seq) for run, call, _ in burial.calls}
    store.annotate(labels.unsaid(store, sorted(family), gone, lambda note: _says(note, texts)))
    store.commit()
    return sorted([*(f"{run}@{call.seq}" for run, call, _ in burial.calls), *(node.key.hex() for node in burial.nodes)])


def erase(store: Tables, nodes: set[bytes], calls: set[tuple[str, int]]) -> list[str]:
    """Put a tombstone on these nodes and Calls and on Calls whose reply is one of the nodes; gives their places."""
    burial = _burial(store, [store.row(run) for run in store.run_ids()], set(), nodes, calls)
    store.bury(burial)
    return sorted([*(f"{run}@{call.seq}" for run, call, _ in burial.calls), *(node.key.hex() for node in burial.nodes)])


def _burial(
    store: Tables, rows: list[RunRow], texts: set[str], keys: set[bytes], targets: set[tuple[str, int]]
) -> Burial:
    tombs = store.tombstones()
    nodes: dict[bytes, Node] = {key: _empty(store.node(key)) for key in keys}
    calls, places = [], dict[str, list[tuple[str, int]]]()  # of each run, where all its Calls stand
    for row in rows:
        for key in _tree(store, row) - nodes.keys():
            node = store.node(key)
            if any(_says(text, texts) for text in _texts(node)):
                nodes[key] = _empty(node)
        prev = b""
        places[row.id] = []
        for call in store.calls(row.id):
            places[row.id].append((call.run, call.seq))
            here = f"{call.run}@{call.seq}"
            prev = tombs.get(here) or issue_key(prev, call)
            said = (*call.said, *call.legal, *PACKED.findall(call.extra))
            hit = (call.run, call.seq) in targets or call.node_out in nodes or any(_says(s, texts) for s in said)
            if call.run == row.id and call.kind != "end" and here not in tombs and hit:
                calls.append((row.id, _erase(call), prev))
    gone = {(run, call.seq) for run, call, _ in calls}
    clean = [_unsaid(row, texts, {seq for run, seq in places[row.id] if (run, seq) in gone}) for row in rows]
    changed = [now for now, row in zip(clean, rows, strict=True) if now != row]
    return Burial([n for key, n in nodes.items() if key.hex() not in tombs], calls, changed)


_BLANK = Call("", 0, "note", b"", 0)
CONTENT = ["action", "text", "legal", "snapshot", "packed", "logprobs", "entropies", "error", "inner", "extra"]
CONTENT.append("kept")


def _says(text: str, texts: set[str]) -> bool:
    return text in texts or any(len(t) >= LONG and t in text for t in texts)


def _unsaid(row: RunRow, texts: set[str], gone: set[int]) -> RunRow:
    """A run's row without the texts: in the task's prompt, in edits (those of Calls ``gone`` lose their value); where
    they are long, so that no setting is hit, also in the task's data, the agent's arguments, what an importer knew."""
    told, changes = (json.loads(text) if text else None for text in (row.task, row.changes))
    long = {text for text in texts if len(text) >= LONG}
    if told is not None:
        told |= {"prompt": _without(told.get("prompt", ""), texts), "data": _without(told.get("data"), long)}
    for edit in changes["edits"] if changes else ():
        own = edit["seq"] in gone and edit["kind"] in ("reply", "prefix", "result")
        edit["value"] = "" if own else _without(edit["value"], texts)
    return row._replace(
        task=_kept(row.task, told),
        changes=_kept(row.changes, changes),
        config=_kept(row.config, _without(json.loads(row.config), long)),
        meta=_kept(row.meta, _without(json.loads(row.meta), long)),
    )


def _kept(was: str, now: object) -> str:
    return was if not was or json.loads(was) == now else json.dumps(now)


def _without(value: object, texts: set[str]) -> object:
    """JSON whose strings that say one of the texts are empty."""
    if isinstance(value, str):
        return "" if _says(value, texts) else value
    if isinstance(value, list):
        return [_without(one, texts) for one in value]
    return {name: _without(one, texts) for name, one in value.items()} if isinstance(value, dict) else value


def _texts(node: Node) -> set[str]:
    message = node.message
    said = (message.text, message.reasoning, *(call.arguments for call in message.calls))
    return {*said, *PACKED.findall(message.extra)} - {""}


def _empty(node: Node) -> Node:
    return node._replace(message=Message(node.message.role, "", extra=GONE), ids=None)


def _erase(call: Call) -> Call:
    return call._replace(**{name: getattr(_BLANK, name) for name in CONTENT})


def _tree(store: Tables, row: RunRow) -> set[bytes]:
    """Every node on a path of a run."""
    keys: set[bytes] = set()
    for call in store.calls(row.id):
        for key in (call.node_in, call.node_out):
            while key and key not in keys:
                keys.add(key)
                key = store.node(key).parent
    return keys


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
        keys |= _tree(store, rows[run])
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

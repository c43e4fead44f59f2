"""The files of a recorded run: which snapshot of its folder stood at which request.

The gateway notes a snapshot as an annotation of the run, by the number of the request that it was taken at; ``clew
checkout`` reads it back. What is noted is a key on a shelf of trees, never a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.core.keys import VALUE, digest, encode
from clew.core.records import Annotation, Call, Cursor
from clew.serve.history import Arrival
from clew.store import Run

METHOD, END, LEFT_OUT = "files", "end", "left-out-"


class Files(NamedTuple):
    """A snapshot of a run's folder. seq: the call from which on it stood, -1 for the end. told: what was noted."""

    seq: int
    tree: str
    state: str
    left: int


def noted(run: str, number: int | str, told: Mapping[str, Any]) -> Annotation:
    """A snapshot at a request of a run, or at its ``END``.

    Args:
        told: ``tree``, ``state`` and ``left``, how many paths it could not hold.
    """
    params = number if isinstance(number, str) else f"{number:08x}"
    return Annotation("run", METHOD, run=run, params=params, data=json.dumps(dict(told), sort_keys=True))


def trees_of(rows: Iterable[Annotation]) -> list[str]:
    """The keys of the snapshots that annotations note.

    Raises:
        BadRecord: one notes no key.
    """
    found = dict[str, None]()
    for row in rows:
        if row.method == METHOD and not row.params.startswith(LEFT_OUT):
            tree = _object(row.data).get("tree")
            if not isinstance(tree, str):
                raise BadRecord(f"the files of {row.run} are noted without a key", remedy="The record is damaged.")
            found[tree] = None
    return list(found)


def left_out(rows: Iterable[Annotation]) -> dict[str, str]:
    """Keys of contents that were left out of snapshots when their run was exported, with a path that each had."""
    found = dict[str, str]()
    for row in rows:
        if row.method == METHOD and row.params.startswith(LEFT_OUT):
            found |= {str(key): str(path) for key, path in _object(row.data).items()}
    return found


def without(run: str, paths: Mapping[str, str]) -> Annotation:
    """That these contents were left out of the snapshots of a run, by key."""
    text = json.dumps(dict(paths), sort_keys=True)
    return Annotation("run", METHOD, run=run, params=LEFT_OUT + digest(VALUE, encode(text)).hex(), data=text)


def _object(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadRecord("the files of a run are noted as no object", remedy="The record is damaged.")
    return found


def files_of(run: Run) -> list[Files]:
    """The snapshots of a run, and of those that it goes on from, in the order of its calls; the end's last."""
    known: dict[tuple[str, str], Mapping[str, Any]] = {}
    for name in dict.fromkeys([*(call.run for call in run.calls), run.id]):
        for row in run.store.annotations([name], METHOD):
            known[row.run, row.params] = _object(row.data)
    found = list[Files]()
    for call in run.calls:
        number = _received(call)
        if number is not None and (told := known.get((call.run, f"{number:08x}"))) is not None:
            found.append(Files(call.seq, told["tree"], told["state"], int(told["left"])))
    if (told := known.get((run.id, END))) is not None:
        found.append(Files(-1, told["tree"], told["state"], int(told["left"])))
    return found


def files_at(run: Run, cursor: Cursor | None) -> Files:
    """The files as they stood at a call of a run: those of the last request at or before it; without one, at the end.

    Raises:
        UnknownName: the run was recorded without its files. BadInput: no request came before the call.
    """
    known = files_of(run)
    if not known:
        remedy = "Record with `clew gateway --workspace FOLDER -- PROGRAM`."
        raise UnknownName(f"run {run.id} was recorded without its files", remedy=remedy)
    if cursor is None:
        return known[-1]
    before = [one for one in known if 0 <= one.seq <= cursor.seq]
    if not before:
        first = min(one.seq for one in known if one.seq >= 0)
        raise BadInput(f"no files are known before call {first} of {run.id}", remedy=f"Name {run.id}@{first} or later.")
    return before[-1]


def _received(call: Call) -> int | None:
    """The number of the request that a call took in; None where it took in none."""
    if call.kind != "act" or call.finish != "tool" or call.done < 0 or not call.action:  # redacted: it says no number
        return None
    if json.loads(call.action)[1] != "receive":
        return None
    arrival = Arrival.read(call.text)
    return None if arrival is None else arrival.number

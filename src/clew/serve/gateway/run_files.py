"""The files of a recorded run: which snapshot of its folder stood at which of its calls.

The gateway notes a snapshot as an annotation of the run, by the number of the request that it was taken at; a run in a
workspace has one with each act. ``clew checkout`` reads both back. What is noted is a key on a shelf of trees, never a
file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.core.records import Annotation, Call, Cursor
from clew.core.registry import parse_ref
from clew.serve.history import Arrival
from clew.store import Run
from clew.store.protocol import Tables
from clew.worlds.workspace import tree_of

METHOD, END = "files", "end"


class Files(NamedTuple):
    """A snapshot of a run's folder. seq: the call from which on it stood, -1 for the end. tree, state: its keys.

    left: how many paths it could not hold. root: permission bits and time of the folder, where they were noted.
    """

    seq: int
    tree: str
    state: str
    left: int
    root: tuple[int, int] | None = None

    @classmethod
    def read(cls, seq: int, data: str) -> Files:
        """What an annotation says.

        Raises:
            BadRecord: it is none of a snapshot.
        """
        try:
            told = json.loads(data)
            root = (int(told["mode"]), int(told["mtime"])) if "mode" in told else None
            found = cls(seq, str(told["tree"]), str(told["state"]), int(told["left"]), root)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise BadRecord("an annotation of files that is damaged", remedy="Run `clew store verify`.") from None
        if not re.fullmatch("[0-9a-f]{32}", found.tree) or (root and not -(1 << 62) < root[1] < 1 << 62):
            raise BadRecord("an annotation of files that names no snapshot", remedy="Run `clew store verify`.")
        return found


def noted(run: str, number: int | str, told: Mapping[str, Any]) -> Annotation:
    """A snapshot at a request of a run, or at its ``END``.

    Args:
        told: ``tree``, ``state``, ``left``, how many paths it could not hold, and the folder's ``mode`` and ``mtime``.
    """
    params = number if isinstance(number, str) else f"{number:08x}"
    return Annotation("run", METHOD, run=run, params=params, data=json.dumps(dict(told), sort_keys=True))


def files_of(run: Run) -> list[Files]:
    """The snapshots of a run, and of those that it goes on from, in the order of its calls; the end's last."""
    known: dict[tuple[str, str], str] = {}
    for name in dict.fromkeys([*(call.run for call in run.calls), run.id]):
        for row in run.store.annotations([name], METHOD):
            known[row.run, row.params] = row.data
    if not known:
        return _of_world(run)
    found = list[Files]()
    for call in run.calls:
        number = _received(call)
        if number is not None and (told := known.get((call.run, f"{number:08x}"))) is not None:
            found.append(Files.read(call.seq, told))
    if (told := known.get((run.id, END))) is not None:
        found.append(Files.read(-1, told))
    return found


def trees(store: Tables, runs: Sequence[str] | None = None) -> dict[str, str]:
    """Every snapshot that runs of a store name, those of all runs without ``runs``: its key, and the first run.

    Raises:
        BadRecord: an annotation is damaged.
    """
    found: dict[str, str] = {}
    for row in store.annotations(runs, METHOD):
        found.setdefault(Files.read(0, row.data).tree, row.run)
    for name in store.run_ids() if runs is None else runs:
        if (taskset := store.row(name).taskset).startswith("workspace("):
            begun = parse_ref(taskset)[1].get("tree", "")
            for tree in (begun, *(one.tree for one in _of_world(Run(store, name)))):
                found.setdefault(str(tree), name)
    found.pop("", None)
    return found


def _of_world(run: Run) -> list[Files]:
    """The snapshots that a workspace left with its acts: each stands from the next call on; the end's last."""
    trees = [(c.seq, c.state.hex(), tree_of(run.store.blob(c.snapshot))) for c in run.calls if c.snapshot]
    found = [Files(seq + 1, tree, state, 0) for seq, state, tree in trees if tree]
    return [*found, found[-1]._replace(seq=-1)] if found and run.stop is not None else found


def files_at(run: Run, cursor: Cursor | None) -> Files:
    """The files as they stood at a call of a run: those of the last request at or before it; without one, at the end.

    Raises:
        UnknownName: the run was recorded without its files. BadInput: no request came before the call.
    """
    known = files_of(run)
    if not known:
        remedy = "Record with `clew gateway --workspace FOLDER -- PROGRAM`, or run in a workspace: --world workspace."
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
    if call.kind != "act" or call.finish != "tool" or call.done < 0 or json.loads(call.action)[1] != "receive":
        return None
    arrival = Arrival.read(call.text)
    return None if arrival is None else arrival.number

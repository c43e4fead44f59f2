"""What a run notes of its files, as annotations or with the acts of a workspace: keys of snapshots, read with bounds.

``run_files`` writes and orders them, ``clew store`` asks which of them a store needs; this must work without a server's
packages, as that does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.errors import BadRecord
from clew.core.keys import VALUE, digest, encode
from clew.core.records import Annotation, Call
from clew.core.registry import parse_ref
from clew.store import Run
from clew.store.protocol import Tables
from clew.worlds.workspace import tree_of

METHOD, LEFT_OUT = "files", "left-out-"
WORLDS = ("workspace(", "repairs(", "program(")  # references of the worlds that keep snapshots with their acts


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


def trees(store: Tables, runs: Sequence[str] | None = None) -> dict[str, str]:
    """Every snapshot that runs of a store name, those of all runs without ``runs``: its key, and the first run.

    Raises:
        BadRecord: an annotation is damaged.
    """
    found: dict[str, str] = {}
    for row in store.annotations(runs, METHOD):
        if row.params.startswith(LEFT_OUT):
            continue
        found.setdefault(Files.read(0, row.data).tree, row.run)
    for name in naming(store) if runs is None else runs:
        if (taskset := store.row(name).taskset).startswith(WORLDS):
            for tree in (_begun(taskset), *(one.tree for one in of_world(Run(store, name)))):
                found.setdefault(tree, name)
    found.pop("", None)
    return found


def naming(store: Tables) -> list[str]:
    """The runs of a store that name snapshots."""
    worked = (name for name in store.run_ids() if store.row(name).taskset.startswith(WORLDS))
    return sorted({*store.annotated(METHOD), *worked})


def _begun(taskset: str) -> str:
    """The snapshot that runs of a workspace begin with, as its reference says, that of a program's among them."""
    given = parse_ref(taskset)[1]
    return _begun(str(given["world"])) if "world" in given else str(given.get("tree", ""))


def of_world(run: Run) -> list[Files]:
    """The snapshots that a workspace left with its acts, or a program with its requests: each stands from the next call
    on; the end's last."""
    kept = tree_of_program if run.taskset.startswith("program(") else lambda call: _tree_of_act(run, call)
    trees = [(call.seq, call.state.hex(), kept(call)) for call in run.calls if call.kind in ("open", "act")]
    found = [Files(seq + 1, tree, state, 0) for seq, state, tree in trees if tree]
    return [*found, found[-1]._replace(seq=-1)] if found and run.stop is not None else found


def _tree_of_act(run: Run, call: Call) -> str:
    return tree_of(run.store.blob(call.snapshot)) if call.snapshot else ""


def tree_of_program(call: Call) -> str:
    """The snapshot that an act of a program's world names; empty where it names none."""
    if call.finish != "tool" or call.done < 0 or call.error:
        return ""
    try:
        tree = json.loads(call.text)["tree"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return tree if isinstance(tree, str) and re.fullmatch("[0-9a-f]{32}", tree) else ""


def left_out(rows: Iterable[Annotation]) -> dict[str, str]:
    """Keys of contents that were left out of snapshots when their run was exported, with a path that each had.

    Raises:
        BadRecord: an annotation is damaged.
    """
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

"""What a run notes of its files, as annotations or with the acts of a workspace: keys of snapshots, read with bounds.

``run_files`` writes and orders them, ``clew store`` asks which of them a store needs; this must work without a server's
packages, as that does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from clew.core.errors import BadRecord
from clew.core.registry import parse_ref
from clew.store import Run
from clew.store.protocol import Tables
from clew.worlds.workspace import tree_of

METHOD = "files"


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
        found.setdefault(Files.read(0, row.data).tree, row.run)
    for name in store.run_ids() if runs is None else runs:
        if (taskset := store.row(name).taskset).startswith("workspace("):
            begun = parse_ref(taskset)[1].get("tree", "")
            for tree in (begun, *(one.tree for one in of_world(Run(store, name)))):
                found.setdefault(str(tree), name)
    found.pop("", None)
    return found


def of_world(run: Run) -> list[Files]:
    """The snapshots that a workspace left with its acts: each stands from the next call on; the end's last."""
    trees = [(c.seq, c.state.hex(), tree_of(run.store.blob(c.snapshot))) for c in run.calls if c.snapshot]
    found = [Files(seq + 1, tree, state, 0) for seq, state, tree in trees if tree]
    return [*found, found[-1]._replace(seq=-1)] if found and run.stop is not None else found

"""What each step of a run changed in its files, in a line: how many files, and how many lines came and went.

The transcript shows it beside the Call after which the files stood so. It comes in pieces, since a run may have many
steps, and none is read twice.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput, BadRecord, UnknownName
from clew.store import Keeper
from clew.store.slices import Slice
from clew.view.files.changed_files import OWN, Counter, differing
from clew.view.files.run_snapshots import Known, Shown, Snapshots, absent
from clew.worlds.workspace.tree_shelf import FOLDER

PLACES = 5_000  # snapshots of a run that a page lists
NAMED = 4  # changed files that a line names


class StepChanges:
    """What the steps of runs changed.

    Args:
        snapshots: of the store that the runs are in.
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._summary = lru_cache(4096)(_summed)  # of steps: what they changed stays as it is

    def places(self, store: Keeper, run: str) -> dict[str, Any]:
        """The snapshots of a run, of equal ones the first, and the first and the last.

        Each has ``place``, as ``clew checkout`` takes it; ``seq``, the Call from which on it stood (None: the end);
        ``changed``, whether it differs from the one before; ``at``, the Call beside which that is shown. ``error`` says
        why files cannot be shown, and is empty else; ``more`` is true where the list ends at its bound.

        Raises:
            UnknownName: no such run. BadRecord: what it notes of its files is damaged.
        """
        known = self._snapshots.of(store, run)
        try:
            gone = {"error": "", "remedy": ""}
            if known.files and not any(known.files[at].tree in self._snapshots.shelf() for at in (0, -1)):
                raise absent()
        except UnknownName as error:
            gone = {"error": error.message, "remedy": error.remedy}
        last = len(known.files) - 1
        kept = [index for index in range(last + 1) if index in (0, last) or _differs(known, index)]
        rows = [
            {
                "place": known.place(index),
                "seq": None if known.files[index].seq < 0 else known.files[index].seq,
                "at": _beside(known, index),
                "changed": _differs(known, index),
            }
            for index in kept[:PLACES]
        ]
        return {"places": rows, "more": len(kept) > PLACES, **gone}

    def steps(self, store: Keeper, run: str, start: int, stop: int) -> dict[str, Any]:
        """What changed beside Calls from ``start`` up to but excluding ``stop``; ``next``: where to ask on, if not all.

        Each has ``at``, the Call; ``a`` and ``b``, the snapshots before and after; how many ``files`` and ``folders``
        changed, of which some by ``names``; ``own``, folders of programs' own; ``plus`` and ``minus``, lines that came
        and went (None: they were not counted); ``more``, whether that is not all; ``note``, why nothing is told.

        Raises:
            UnknownName: no such run, or there is no shelf. BadRecord: what it notes of its files is damaged.
        """
        known, time, found = self._snapshots.of(store, run), Slice(), list[dict[str, Any]]()
        shelf = self._snapshots.shelf()
        for index in range(1, len(known.files)):
            at = _beside(known, index)
            if not start <= at < stop or not _differs(known, index):
                continue
            one, other = known.files[index - 1].tree, known.files[index].tree
            try:
                summary = self._summary(shelf.folder, one, other, known.lacking)
            except (BadInput, BadRecord) as error:
                summary = {"note": error.message}
            found.append({"at": at, "a": known.place(index - 1), "b": known.place(index), **summary})
            if time.over:
                return {"steps": found, "next": at + 1}
        return {"steps": found, "next": None}


def _summed(folder: Path, before: str, after: str, lacking: frozenset[str]) -> dict[str, Any]:
    """What differs between two snapshots in a few figures, as ``StepChanges.steps`` tells it."""
    shelf = Shown(folder)
    changes = differing(shelf, before, after)
    count, lines = Counter(shelf, lacking), list[tuple[int, int]]()
    files = [change for change in changes.listed if change.kind not in (OWN, FOLDER)]
    for change in files:
        if (counted := count.of(change)) is None:
            break
        lines.append(counted)
    whole = len(lines) == len(files) and not changes.more
    found: dict[str, Any] = {"files": len(files), "names": [change.path for change in files[:NAMED]]}
    found |= {"folders": sum(change.kind == FOLDER for change in changes.listed), "more": changes.more}
    found["own"] = [change.path for change in changes.listed if change.kind == OWN][:NAMED]
    return found | {name: sum(line[i] for line in lines) if whole else None for i, name in enumerate(("plus", "minus"))}


def _differs(known: Known, index: int) -> bool:
    return index > 0 and known.files[index].state != known.files[index - 1].state


def _beside(known: Known, index: int) -> int:
    """The Call after which a snapshot stood: the one before it, or the run's last."""
    seq = known.files[index].seq
    return (known.calls if seq < 0 else seq) - 1

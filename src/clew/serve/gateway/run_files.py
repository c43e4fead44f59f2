"""The files of a recorded run: which snapshot of its folder stood at which of its calls.

The gateway notes a snapshot as an annotation of the run, by the number of the request that it was taken at; a run in a
workspace has one with each act. ``clew checkout`` reads both back. What is noted is a key on a shelf of trees, never a
file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from clew.core.errors import BadInput, UnknownName
from clew.core.records import Annotation, Call, Cursor
from clew.serve.history import Arrival
from clew.serve.noted_files import LEFT_OUT, METHOD, Files, of_world
from clew.serve.published.published_agents import exit_code
from clew.store import Run

__all__ = ["END", "METHOD", "Files", "exits_of", "files_at", "files_of", "noted", "standing"]

END = "end"


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
            if not row.params.startswith(LEFT_OUT):
                known[row.run, row.params] = row.data
    if not known:
        return of_world(run)
    found = list[Files]()
    for call in run.calls:
        number = _received(call)
        if number is not None and (told := known.get((call.run, f"{number:08x}"))) is not None:
            found.append(Files.read(call.seq, told))
    if (told := known.get((run.id, END))) is not None:
        found.append(Files.read(-1, told))
    return found


def files_at(run: Run, cursor: Cursor | None) -> Files:
    """The files as they stood at a call of a run: those of the last request at or before it; without one, at the end.

    Raises:
        UnknownName: the run was recorded without its files. BadInput: no request came before the call.
    """
    known = files_of(run)
    return known[standing(known, run.id, None if cursor is None else cursor.seq)]


def standing(known: Sequence[Files], run: str, seq: int | None) -> int:
    """Which of a run's snapshots, in the order of ``files_of``, stood at a call; without one that of the end.

    Raises:
        UnknownName: there is none. BadInput: the first is of a later call.
    """
    if not known:
        remedy = "Record with `clew gateway --workspace FOLDER -- PROGRAM`, or run in a workspace: --world workspace."
        raise UnknownName(f"run {run} was recorded without its files", remedy=remedy)
    if seq is None:
        return len(known) - 1
    before = [at for at, one in enumerate(known) if 0 <= one.seq <= seq]
    if not before:
        first = min((one.seq for one in known if one.seq >= 0), default=-1)
        remedy = f"Name {run}@{first} or later." if first >= 0 else f"Name {run}: they are known at its end."
        raise BadInput(f"no files are known at call {seq} of {run}", remedy=remedy)
    return before[-1]


def exits_of(run: Run) -> dict[int, list[int]]:
    """Exit codes of commands that a program's requests tell of, where it is one whose way to tell them is known.

    Returns:
        By the call that took a request in: one for each result of a tool in it that states any.
    """
    found = dict[int, list[int]]()
    for call in run.calls:
        if (it := _arrival(call)) is not None:
            codes = [exit_code(m.text) for m in it.say if m.role == "tool"]
            if told := [code for code in codes if code is not None]:
                found[call.seq] = told
    return found


def _received(call: Call) -> int | None:
    """The number of the request that a call took in; None where it took in none."""
    return None if (it := _arrival(call)) is None else it.number


def _arrival(call: Call) -> Arrival | None:
    if call.kind != "act" or call.finish != "tool" or call.done < 0 or not call.action:  # redacted: it says no number
        return None
    if json.loads(call.action)[1] != "receive":
        return None
    return Arrival.read(call.text)
